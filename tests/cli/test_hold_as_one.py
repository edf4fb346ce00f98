"""A hold is one for all ranks, whatever happens meanwhile, and changes nothing of the training."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from stepwarden.report.records import read_findings, read_steps
from stepwarden.wire import from_line

from .conftest import alive, until

LONG = 300.0  # seconds: on a busy machine ranks take minutes to their first step
pytestmark = pytest.mark.timeout(900)
TRAIN = """
import hashlib, os, sys, time, torch, torch.distributed as dist
torch.manual_seed(0)
# Each attempt has keys of its own: else a rank may read the address that its peer had in the attempt before.
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank + 1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    sys.stdout.write(f"took {step} pid {os.getpid()}\\n")  # in one piece: torchrun's ranks don't buffer
    time.sleep(float(sys.argv[2]))
values = [p.detach() for p in model.parameters()] + [s["exp_avg_sq"] for s in optimizer.state.values()]
digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in values)).hexdigest()
sys.stdout.write(f"result {rank} {digest}\\n")
dist.destroy_process_group()
"""
MANIFEST = """
apiVersion: stepwarden.dev/v1alpha1
kind: TrainingJob
metadata: {{name: tiny}}
spec:
  numProcPerNode: 2
  hold: {hold}
  template:
    spec:
      containers:
      - name: trainer
        image: x
        command: [{command}]
"""


class Hub:
    """The hub of a run in progress, asked as an operator asks it."""

    def __init__(self, marker):
        self.marker = marker

    def environment(self):
        """That of the sidecar's process, which alone has the token."""
        for pid in alive(self.marker):
            variables = variables_of(pid)
            if "STEPWARDEN_TOKEN" in variables and (Path(variables["STEPWARDEN_DIR"]) / "port").exists():
                return variables | {"pid": pid}
        return None

    def ask(self, path, body=None):
        known = until(self.environment)
        port = (Path(known["STEPWARDEN_DIR"]) / "port").read_text().strip()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {known['STEPWARDEN_TOKEN']}"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
                return from_line(answer.read())
        except OSError:  # it is being started again
            return None

    def job(self):
        return self.ask("/v1/job")

    def hold(self):
        until(lambda: self.ask("/v1/instruction", {"hold": True}))

    def release(self):
        until(lambda: self.ask("/v1/instruction", {"hold": False}))

    def held(self):
        """The step that both ranks are held at, once they are."""
        job = self.job()
        places = {(rank.state, rank.step) for rank in job.ranks} if job else set()
        if len(places) == 1 and len(job.ranks) == 2 and next(iter(places))[0] == "held":
            return next(iter(places))[1] + 1  # above 0
        return None

    def passed(self, step):
        job = self.job()
        return job and len(job.ranks) == 2 and all(rank.step >= step for rank in job.ranks)


def variables_of(pid):
    try:
        lines = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


def results(stdout):
    lines = sorted(line for line in stdout.splitlines() if line.startswith("result"))
    assert len(lines) == 2
    return lines


@pytest.fixture
def hub(stepwarden):
    return Hub(stepwarden.marker)


def test_ten_holds_and_resumes_change_nothing_to_the_bit(stepwarden, hub):
    script = stepwarden.script(TRAIN)
    plain = stepwarden("run", "--nproc", "2", "--report", "plain", "--", script, "200", "0")
    assert plain.returncode == 0, plain.stderr
    process = stepwarden.start("run", "--nproc", "2", "--report", "held", "--", script, "200", "0.05")
    places = []
    until(lambda: hub.passed(2), LONG)
    for _ in range(10):
        hub.hold()
        places.append(until(hub.held, LONG) - 1)
        hub.release()
        until(lambda: hub.passed(places[-1] + 1), LONG)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert places == sorted(set(places))
    assert places[-1] < 199
    assert results(out) == results(plain.stdout)
    steps = read_steps(stepwarden.folder / "held" / "steps.jsonl")
    assert {rank: [each.step for each in taken] for rank, taken in steps.items()} == {
        rank: list(range(200)) for rank in (0, 1)
    }


def test_ranks_that_torchrun_starts_again_are_held_before_their_first_update(stepwarden, hub):
    stepwarden.script(TRAIN)
    command = "torchrun, --standalone, --nproc-per-node=2, --max-restarts=2, train.py, '60', '0.05'"
    job = stepwarden.script(MANIFEST.format(hold="false", command=command), "job.yaml")
    process = stepwarden.start("run", "-f", job, "--report", "r")
    until(lambda: hub.passed(5), LONG)
    hub.hold()
    assert until(hub.held, LONG) - 1 >= 5
    ranks = {variables_of(pid).get("LOCAL_RANK"): pid for pid in stepwarden.left()}
    os.kill(ranks["1"], signal.SIGKILL)
    assert until(lambda: hub.held() == 1, LONG)
    again = {variables_of(pid).get("LOCAL_RANK"): pid for pid in stepwarden.left()}
    assert not {ranks["0"], ranks["1"]} & {again["0"], again["1"]}
    hub.release()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    taken = [line for line in out.splitlines() if line.endswith(f"pid {again['1']}")]
    assert len(taken) == 60
    found = read_findings(stepwarden.folder / "r" / "findings.jsonl")
    assert (found[0].kind, found[0].rank, found[0].severity) == ("RankFailed", 1, "critical")


def test_a_hold_outlasts_a_killed_sidecar(stepwarden, hub):
    stepwarden.script(TRAIN)
    command = "torchrun, train.py, '10', '0'"
    job = stepwarden.script(MANIFEST.format(hold="true", command=command), "job.yaml")
    process = stepwarden.start("run", "-f", job, "--report", "r", "--hold-timeout", "20s")
    assert until(hub.held, LONG) == 1
    killed = hub.environment()["pid"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: (known := hub.environment()) and known["pid"] != killed and hub.held() == 1, LONG)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "the sidecar has ended: the training goes on, and it is started again" in err
    assert "the hold is over" in err
    assert len(results(out)) == 2
    assert not read_findings(stepwarden.folder / "r" / "findings.jsonl")
