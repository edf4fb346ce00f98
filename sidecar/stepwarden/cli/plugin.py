"""
`kubectl stepwarden`: what a person does with a TrainingJob on a cluster, by way of their own kubectl.

It reads the job and writes either `spec.hold` or an annotation; the operator does the rest.
Standard library only. Where kubectl fails, its own words and exit code are given.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from stepwarden.cli import findings
from stepwarden.cli.failure import USAGE
from stepwarden.cli.say import say

RESOURCE = "trainingjobs.stepwarden.dev"
ACKNOWLEDGE = "stepwarden.dev/acknowledge"
JOB_LABEL, INDEX_LABEL = "stepwarden.dev/job", "batch.kubernetes.io/job-completion-index"
CONTAINER = "trainer"
NOTHING = 1  # exit code: there was nothing to do


class KubectlError(Exception):
    """Kubectl failed; it has said why. Carries its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"kubectl ended with {code}")
        self.code = code


def main(given: Sequence[str] | None = None) -> int:
    """Run the kubectl plugin, and return its exit code."""
    parser = argparse.ArgumentParser(prog="kubectl stepwarden", description="Look at and steer TrainingJobs.")
    add_to(parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND"))
    return act(parser.parse_args(given))


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the plugin's commands."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("name", metavar="NAME", help="the TrainingJob")
    shared.add_argument("-n", "--namespace", help="its namespace")
    shared.add_argument("--context", help="as kubectl takes it")
    shared.add_argument("--kubeconfig", help="as kubectl takes it")
    found = commands.add_parser("findings", parents=[shared], help="show what was found in a TrainingJob")
    found.add_argument("-o", "--output", choices=("text", "json"), default="text")
    commands.add_parser("hold", parents=[shared], help="hold all ranks in place")
    resume = commands.add_parser("resume", parents=[shared], help="end a hold, and go on")
    resume.add_argument(
        "--update",
        choices=("skip", "apply"),
        default="skip",
        help="what becomes of the held update (default: skip)",
    )
    logs = commands.add_parser("logs", parents=[shared], help="show what the ranks print")
    which = logs.add_mutually_exclusive_group()
    which.add_argument("--rank", type=int, help="only the node of this rank")
    which.add_argument("--node", type=int, help="only this node")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as they print more")
    logs.add_argument("--tail", type=int, default=-1, help="only so many last lines of each (default: all)")


def act(parsed: argparse.Namespace) -> int:
    """Carry out a command, and return its exit code."""
    if shutil.which("kubectl") is None:
        say("error: there is no kubectl in PATH")
        return USAGE
    actions = {"findings": show, "hold": hold, "resume": resume, "logs": logs}
    try:
        return actions[parsed.subcommand](parsed)
    except KubectlError as error:
        return error.code


def show(parsed: argparse.Namespace) -> int:
    """Print the findings in a job's status."""
    job = read(parsed)
    found = job.get("status", {}).get("findings") or []
    if parsed.output == "json":
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        sys.stdout.write(findings.text(parsed.name, found, job.get("status", {})))
    return 0


def hold(parsed: argparse.Namespace) -> int:
    """Ask the operator to hold the job."""
    if read(parsed).get("spec", {}).get("hold"):
        sys.stdout.write(f"{parsed.name} is held already, as spec.hold is true\n")
        return 0
    patch(parsed, {"spec": {"hold": True}})
    sys.stdout.write(f"{parsed.name}: spec.hold is true now: all ranks wait at their next common step\n")
    return 0


def resume(parsed: argparse.Namespace) -> int:
    """End what holds the job: a person's hold, a finding's, or both."""
    job = read(parsed)
    until = findings.open_until(job.get("status", {}))
    body: dict[str, Any] = {}
    done = []
    if job.get("spec", {}).get("hold"):
        body["spec"] = {"hold": False}
        done.append("spec.hold is false now")
    if until is not None:
        (attempt, step), run = until, job.get("status", {}).get("run", 0)
        later = f",{run},{attempt}" if attempt else f",{run}" if run else ""
        body["metadata"] = {"annotations": {ACKNOWLEDGE: f"{step},{parsed.update}{later}"}}
        fate = "left out" if parsed.update == "skip" else "applied"
        done.append(f"findings up to step {step} are acknowledged, that update is {fate}")
    if not body:
        sys.stdout.write(f"{parsed.name}: nothing to resume: it isn't held\n")
        return NOTHING
    patch(parsed, body)
    sys.stdout.write(f"{parsed.name}: {'; '.join(done)}\n")
    return 0


def logs(parsed: argparse.Namespace) -> int:
    """Show the trainers' logs."""
    job = read(parsed)
    selector = f"{JOB_LABEL}={parsed.name}"
    node = parsed.node
    if parsed.rank is not None:
        node = parsed.rank // findings.ranks_per_node(job)
    if node is not None:
        selector += f",{INDEX_LABEL}={node}"
    nodes = int(job.get("spec", {}).get("numNodes", 1))
    arguments = ["logs", "-l", selector, "-c", container(job), "--prefix", f"--tail={parsed.tail}"]
    if parsed.follow:
        arguments += ["-f", f"--max-log-requests={max(5, nodes)}"]
    return subprocess.run([*kubectl(parsed), *arguments], check=False).returncode  # noqa: S603 - the person's kubectl


def container(job: Mapping[str, Any]) -> str:
    """Return the name of the container that runs the ranks."""
    containers = job.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    return str(containers[0].get("name", CONTAINER)) if len(containers) == 1 else CONTAINER


def read(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the job. Raises `KubectlError`."""
    answer = call(parsed, ["get", RESOURCE, parsed.name, "-o", "json"])
    job: dict[str, Any] = json.loads(answer)
    return job


def patch(parsed: argparse.Namespace, body: Mapping[str, Any]) -> None:
    """Change the job. Raises `KubectlError`."""
    call(parsed, ["patch", RESOURCE, parsed.name, "--type=merge", "-p", json.dumps(body)])


def call(parsed: argparse.Namespace, arguments: Sequence[str]) -> str:
    """Run kubectl, which says on stderr what is wrong. Raises `KubectlError`."""
    command = [*kubectl(parsed), *arguments]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603 - as above
    if done.returncode != 0:
        raise KubectlError(done.returncode)
    return done.stdout


def kubectl(parsed: argparse.Namespace) -> list[str]:
    """Return kubectl with what is handed on to it."""
    options = {"namespace": parsed.namespace, "context": parsed.context, "kubeconfig": parsed.kubeconfig}
    return ["kubectl", *(f"--{name}={value}" for name, value in options.items() if value is not None)]


if __name__ == "__main__":
    sys.exit(main())
