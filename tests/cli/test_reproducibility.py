"""Two runs with the same seed are the same to the bit, DataLoader workers included."""

import json

import pytest

SCRIPT = """
import random, sys
import numpy, torch
from torch.utils.data import DataLoader, Dataset

class Noise(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.rand(4), numpy.random.rand() + random.random()

if __name__ == "__main__":
    print(list({"a", "b", "c", "d", "e"}), random.random(), numpy.random.rand())
    print(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Noise(), 4, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1])
    for step, (x, noise) in enumerate(loader):
        optimizer.zero_grad()
        loss = model(x).square().mean() + noise.mean()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.17g}", flush=True)
"""
ASKED = ("--threads", 2, "--deterministic")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_the_same_seed_gives_the_same_run(stepwarden, context):
    script = stepwarden.script(SCRIPT)

    def run(seed):
        return stepwarden("run", "--seed", seed, *ASKED, "--report", "r", "--", script, context)

    first, again, other = run(7), run(7), run(8)
    assert first.returncode == again.returncode == other.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    lines, others = first.stdout.splitlines(), other.stdout.splitlines()
    assert lines[1] == "2 True"
    assert len(lines) == 4
    assert [line == one for line, one in zip(lines, others, strict=True)] == [False, True, False, False]
    assert "RandomStateUnset" not in first.stderr


def test_what_the_script_sets_instead_is_named(stepwarden):
    script = stepwarden.script(
        "import torch\n"
        "torch.manual_seed(1234)\n"
        "torch.set_num_threads(1)\n"
        "p = torch.nn.Parameter(torch.rand(3))\n"
        "o = torch.optim.SGD([p], lr=0.1)\n"
        "p.sum().backward()\n"
        "o.step()\n"
    )
    ran = stepwarden("run", "--seed", 7, *ASKED, "--report", "r", "--", script)
    assert ran.returncode == 0
    (line,) = (stepwarden.folder / "r" / "findings.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["kind"], found["severity"], found["step"]) == ("RandomStateUnset", "warning", 0)
    assert (found["file"], found["line"]) == (str(script), 2)
    assert "torch.get_num_threads() is 1" in found["message"]
