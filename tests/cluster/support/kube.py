"""A cluster as a person at a terminal sees it: kubectl, helm, and a deadline for everything."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 240.0  # seconds: two busy cores import torch in four pods at once; a deadline, not a pace


class CommandError(AssertionError):
    """A command that should have succeeded, with what it said."""


def run(*argv, stdin=None, env=None, check=True):
    """Run a command; give back what it printed."""
    done = subprocess.run(argv, input=stdin, env=env, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise CommandError(f"{' '.join(argv)} exited {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout if check else done


def until(what, condition, within=PATIENCE, told=lambda: ""):
    """Poll until a condition gives something true, and return that."""
    end = time.monotonic() + within
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not after {within:.0f} s: {what}\n{told()}")
        time.sleep(0.3)
    return found


def table(text):
    """Read what `kubectl get` prints: one dict a row, an empty cell being an empty string."""
    header, *lines = text.splitlines()
    columns = list(re.finditer(r"\S+(?: \S+)*", header))
    ends = [column.start() for column in columns[1:]] + [None]
    spans = [(column[0], column.start(), end) for column, end in zip(columns, ends, strict=True)]
    return [{name: line[start:end].strip() for name, start, end in spans} for line in lines]


class Kube:
    """One namespace of a cluster."""

    def __init__(self, kubeconfig, path, namespace="default"):
        self.kubeconfig, self.path, self.namespace = kubeconfig, path, namespace
        self.env = {**os.environ, "KUBECONFIG": kubeconfig, "PATH": f"{path}:{os.environ['PATH']}"}

    def at(self, namespace):
        return Kube(self.kubeconfig, self.path, namespace)

    def __call__(self, *args, stdin=None):
        """Run kubectl; give back what it printed."""
        return run("kubectl", f"--namespace={self.namespace}", *args, stdin=stdin, env=self.env)

    def tries(self, *args, stdin=None):
        """Run kubectl; give back how that went."""
        argv = ("kubectl", f"--namespace={self.namespace}", *args)
        return run(*argv, stdin=stdin, env=self.env, check=False)

    def plugin(self, *args):
        """Run `kubectl stepwarden`, which takes kubectl's namespace option after its own name."""
        return run("kubectl", "stepwarden", *args, "-n", self.namespace, env=self.env)

    def helm(self, *args):
        return run("helm", *args, env=self.env)

    def apply(self, *documents):
        return self("apply", "-f", "-", stdin=as_list(documents))

    def get(self, *args):
        """Read objects as they are; None where there is none."""
        done = self.tries("get", *args, "-o", "json")
        if done.returncode != 0:
            assert "NotFound" in done.stderr, done.stderr
            return None
        return json.loads(done.stdout)

    def items(self, *args):
        return self.get(*args)["items"]

    def row(self, name, *args):
        """Read a TrainingJob's line of `kubectl get tj`."""
        return table(self("get", "tj", name, *args))[0]

    def told(self, name):
        """Gather what a person would look at when a job is not as it should be."""
        commands = (("get", "tj,job,pods,svc", "-o", "wide"), ("describe", "tj", name))
        ranks = ("logs", "-l", f"stepwarden.dev/job={name}", "-c", "trainer", "--tail=15", "--prefix")
        said = [self.tries(*command).stdout for command in (*commands, ranks)]
        operator = self.at("stepwarden-system").tries(
            "logs", "-l", "app.kubernetes.io/name=stepwarden", "--tail=40"
        )
        return "\n".join([*said, operator.stdout])

    def until_state(self, name, state, within=PATIENCE):
        """Wait until `kubectl get tj` shows a state; return that line."""

        def shown():
            row = self.row(name)
            return row if row["STATE"] == state else None

        return until(f"{name} is {state}", shown, within, lambda: self.told(name))

    def until_step(self, name, step, within=PATIENCE):
        """Wait until the job is known to have got so far."""

        def reached():
            shown = self.row(name)["STEP"]
            return shown and int(shown) >= step

        return until(f"{name} takes step {step}", reached, within, lambda: self.told(name))

    def condition(self, name, kind):
        """Read one condition of a TrainingJob; an empty dict where it has none."""
        status = self.get("tj", name).get("status", {})
        return next((c for c in status.get("conditions", ()) if c["type"] == kind), {})

    def until_condition(self, name, kind, within=PATIENCE, **expected):
        """Wait until a condition has these fields; return it."""

        def holds():
            found = self.condition(name, kind)
            return found if expected.items() <= found.items() else None

        return until(f"{kind} has {expected}", holds, within, lambda: self.told(name))

    def pods(self, name):
        """Map the names of a job's pods to their uids."""
        found = self.items("pods", "-l", f"stepwarden.dev/job={name}")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}

    def events(self, name):
        """List a TrainingJob's Events as (reason, count), in the order of their making."""
        selector = f"involvedObject.kind=TrainingJob,involvedObject.name={name}"
        found = self.items("events", "--field-selector", selector)
        found.sort(key=lambda event: event.get("firstTimestamp") or event.get("eventTime") or "")
        return [(event["reason"], event.get("count") or 1) for event in found]

    def pod_of(self, name, index=0):
        """Name a job's pod by its completion index."""
        selector = f"stepwarden.dev/job={name},batch.kubernetes.io/job-completion-index={index}"
        pods = until(f"pod {index} of {name}", lambda: self.items("pods", "-l", selector))
        return pods[0]["metadata"]["name"]


def as_list(documents):
    """Put manifests as one document that kubectl takes."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


def harness(*args):
    """Run the tests' own cluster tool; give back what it printed."""
    return run(sys.executable, str(Path(__file__).parents[1] / "harness"), *args).strip()
