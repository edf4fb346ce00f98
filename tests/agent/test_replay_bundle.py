"""A bad step in a file: run again in a process that knows nothing of it."""

import ast
import subprocess
import sys

import pytest
import torch
from torch import nn

from stepwarden.agent.hooks.calls import Call
from stepwarden.agent.replay import script, shelf, snapshot, story
from stepwarden.agent.replay.__main__ import OTHERWISE, REPRODUCED, UNREADABLE
from stepwarden.agent.replay.buffers import Buffers
from stepwarden.wire import Finding

TRAINING = '''
"""A script whose training must not be run again."""
import torch
from torch import nn
from stepwarden.agent import attach

WIDTH = 4
UNUSED = open("/nowhere/at/all")  if __name__ == "elsewhere" else None


class Distance(nn.Module):
    def forward(self, x):
        return x.pow(2).sum(-1).sqrt()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.distance = Distance()

    def forward(self, x):
        return self.distance(self.proj(x))


attach()
print("training")
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(6, WIDTH)
x[2] = 0
model(x).sum().backward()
optimizer.step()
'''


def run(*command, **more):
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False, timeout=240, **more
    )


def replay(path):
    return run("-m", "stepwarden.cli", "replay", path)


def test_a_bundle_of_a_script_is_reproduced_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.setenv("STEPWARDEN_REPLAY_DIR", str(tmp_path / "replays"))
    monkeypatch.setenv("STEPWARDEN_RANK", "0")
    trained = run(tmp_path / "train.py")
    assert trained.returncode == 0, trained.stderr
    (path,) = (tmp_path / "replays").iterdir()
    assert path.name == "NonFiniteGradient-rank0-step0.pt"
    (tmp_path / "train.py").unlink()
    again = replay(path)
    assert again.returncode == REPRODUCED, again.stdout + again.stderr
    assert "training" not in again.stdout
    assert "op           sqrt" in again.stdout
    assert "module       distance" in again.stdout
    assert again.stdout.splitlines()[-1] == "reproduced"


def test_what_is_no_bundle_is_said_in_one_line(tmp_path):
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04 torn")
    torn = replay(tmp_path / "torn.pt")
    assert torn.returncode == UNREADABLE
    assert len(torn.stderr.splitlines()) == 1
    assert "it is no bundle" in torn.stderr


def taken(model, x, gradient):
    call = Call(module=model, args=(x,), kwargs={}, step=3, place=None)
    one = snapshot.take(call, Buffers(), copies=False)
    one.ended = True
    one.gradients = {0: gradient}
    return one


FOUND = Finding(kind="NonFiniteGradient", severity="critical", step=3, message="")
TOLD = story.Story(status="ok", cause="the backward of log made NaN", op="log", module="", line=1)


def test_another_culprit_is_not_taken_for_the_same(tmp_path):
    one = taken(nn.Linear(2, 1), torch.ones(1, 2), torch.ones(1, 1))
    said = shelf.Shelf(str(tmp_path), 0).put([FOUND], one, TOLD)
    again = replay(said["bundle"])
    assert again.returncode == OTHERWISE
    assert "all is finite: not reproduced" in again.stdout


def test_each_kind_is_saved_once_and_what_cannot_be_saved_is_said(tmp_path):
    class Local(nn.Linear):
        pass

    place = shelf.Shelf(str(tmp_path), 2)
    failed = place.put([FOUND], taken(Local(2, 1), torch.ones(1, 2), torch.ones(1, 1)), TOLD)
    assert "Local" in failed["bundle_failed"]
    assert place.put([FOUND], taken(nn.Linear(2, 1), torch.ones(1, 2), torch.ones(1, 1)), TOLD) == {}
    assert (
        shelf.Shelf(None, 2).put([FOUND], taken(nn.Linear(2, 1), torch.ones(1, 2), torch.ones(1)), TOLD) == {}
    )
    assert not list(tmp_path.glob("*.pt"))


def test_what_is_too_large_is_not_saved(tmp_path):
    large = taken(nn.Linear(2, 1), torch.empty(1 << 26, 2, device="meta"), None)
    said = shelf.Shelf(str(tmp_path), 0).put([FOUND], large, TOLD)
    assert "512 MiB are more than 256 MiB" in said["bundle_failed"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("import os\nx = 1\n", ["import os"], id="an assignment that nobody needs"),
        pytest.param(
            "x = 1\ny = x + 1\ndef f(): return y\n", ["x = 1", "y = x + 1", "def f"], id="one behind"
        ),
        pytest.param("for i in range(3):\n    pass\nprint(1)\nif True:\n    x = 2\n", [], id="what trains"),
        pytest.param("class A:\n    pass\nA().run()\n", ["class A"], id="a call"),
    ],
)
def test_only_what_definitions_need_is_run_again(text, kept):
    statements = [ast.unparse(one) for one in script.needed(ast.parse(text))]
    assert len(statements) == len(kept)
    assert all(one.startswith(start) for one, start in zip(statements, kept, strict=True))
