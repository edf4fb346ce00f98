"""`stepwarden check` on small scripts with real torch."""

import json
import math

import pytest

from stepwarden.report import layers
from stepwarden.wire import Note, to_dict

ADAPTED = """
import torch
from torch import nn

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * FACTOR * x ** 2

class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.idle = nn.Linear(4, 4)

    def forward(self, x):
        return Cube.apply(self.base(x) + self.lora_B(self.lora_A(x)))

torch.manual_seed(0)
model = Adapted()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
for step in range(50):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
    print(step)
"""


def rows(stdout):
    return [line.split() for line in stdout.splitlines()]


@pytest.mark.parametrize(("factor", "verdict"), [("3", "ok: analytical"), ("2", "FAILED: Jacobian mismatch")])
def test_layers_and_a_gradcheck(stepwarden, factor, verdict):
    stepwarden.script(ADAPTED.replace("FACTOR", factor))
    done = stepwarden("check", "--gradcheck", "Cube", "--gradcheck", "lora_A", "train.py")
    assert done.stdout.startswith("0\n1\n"), done.stderr
    assert "\n11\n" not in done.stdout
    table = {row[0]: row[1:] for row in rows(done.stdout) if row}
    assert table["base"][:4] == ["20", "yes", "-", "-"]
    assert table["idle"][-2:] == ["no", "gradient"]
    assert table["lora_A"][-1] == "ok"
    assert f"gradcheck Cube: {verdict}" in done.stdout
    assert "gradcheck lora_A: ok" in done.stdout
    assert done.returncode == 1  # of the idle layer, too
    report = stepwarden.folder / "stepwarden-check" / "report.html"
    assert "lora_B" in report.read_text()


def test_what_is_not_there_is_not_checked(stepwarden):
    stepwarden.script(ADAPTED.replace("self.idle = nn.Linear(4, 4)", "pass").replace("FACTOR", "3"))
    done = stepwarden("check", "--steps", "1", "--gradcheck", "nosuch", "train.py")
    assert "gradcheck nosuch: not checked: no module or Function of that name" in done.stdout
    assert done.returncode == 2


def test_a_script_without_steps(stepwarden):
    stepwarden.script("print('hello')")
    done = stepwarden("check", "train.py")
    assert (done.returncode, done.stdout) == (2, "hello\n")
    assert "nothing was checked" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "give a script"),
        (("--steps", "0", "train.py"), "--steps 0"),
        (("nosuch.py",), "there is no script nosuch.py"),
    ],
)
def test_what_cannot_be_meant(stepwarden, given, said):
    done = stepwarden("check", *given)
    assert done.returncode == 2
    assert said in done.stderr


def test_two_looks_make_one_table(tmp_path):
    notes = [
        Note(rank=0, topic="layers", body={"step": 1, "rows": {"a": [4, 4, 0.0], "b": [2, 0, None]}}),
        Note(rank=0, topic="layers", body={"step": 10, "rows": {"a": [4, 4, math.nan], "b": [2, 1, None]}}),
    ]
    path = tmp_path / "layers.jsonl"
    path.write_text("".join(json.dumps(to_dict(note)) + "\n" for note in notes))
    a, b = layers.read(path)
    assert (a.frozen, a.early, a.health) == ("no", 0.0, "ok")
    assert math.isnan(a.late)
    assert (b.frozen, b.late, b.health) == ("partly", None, "no gradient")
