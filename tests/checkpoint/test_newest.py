"""Checkpoints of every format, whole and broken, written by torch itself."""

import os
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp

from stepwarden.checkpoint.find import candidates
from stepwarden.checkpoint.newest import judge, judged
from stepwarden.cli.__main__ import main


class Own:
    """A class that no reader of a checkpoint can import."""

    def __init__(self):
        self.weight = torch.ones(3)
        self.itself = self


def model():
    made = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(made.parameters())
    made(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return {"model": made.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}


def spoilt(value, dtype=torch.float32):
    tensor = torch.ones(5, 5, dtype=dtype)
    tensor[3, 2] = value
    return tensor


def distributed(folder, state):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that there is no process group: there is none
        dcp.save(state, checkpoint_id=folder)
    return folder


def word(path):
    [found] = [judge(each) for each in candidates(path.parent) if each.path == path]
    return found.word, found.reason


MASK = torch.triu(torch.full((4, 4), float("-inf")), 1)
SLACK = torch.cat([torch.ones(5), torch.full((5,), float("nan"))])


@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        (model(), "good"),
        ({"own": Own()}, "good"),
        (torch.nn.Linear(2, 2), "good"),  # a module as a whole
        ({"whole": torch.arange(3), "empty": torch.empty(0)}, "good"),
        ({"turned": torch.ones(4, 3).t(), "half": torch.ones(3, dtype=torch.bfloat16)}, "good"),
        ({"best": torch.tensor(float("inf"))}, "good"),  # a score that was never reached
        ({"mask": MASK}, "good"),
        (SLACK[:5], "good"),  # the NaN are in the storage, not in the tensor
        (SLACK, "poisoned"),
        ({"best": torch.tensor(float("nan"))}, "poisoned"),
        ({"a": {"weight": spoilt(float("nan"))}}, "poisoned"),
        ([spoilt(float("inf")).t()], "poisoned"),
        ({"weight": spoilt(float("-inf"))}, "poisoned"),
        ({"weight": spoilt(float("nan"), torch.bfloat16)}, "poisoned"),
        ({"weight": spoilt(complex(0, float("inf")), torch.complex64)}, "poisoned"),
        (torch.nn.Parameter(spoilt(float("nan"))), "poisoned"),
    ],
)
def test_what_torch_saves(tmp_path, saved, expected):
    path = tmp_path / "step-3.pt"
    torch.save(saved, path)
    assert word(path)[0] == expected


@pytest.mark.parametrize(
    ("saved", "part", "expected"),
    [
        (model(), 1.0, "good"),
        (model(), 0.5, "torn"),
        (model(), 0.99, "torn"),
        ([{"w": spoilt(float("nan"))}], 1.0, "poisoned"),
    ],
)
def test_what_torch_saved_before_it_made_archives(tmp_path, saved, part, expected):
    path = tmp_path / "step-3.pt"
    torch.save(saved, path, _use_new_zipfile_serialization=False)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    assert word(path)[0] == expected


def test_it_says_which_tensor(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"model": {"layer.0.weight": spoilt(float("nan"))}}, path)
    assert word(path) == ("poisoned", "a.pt holds NaN in model.layer.0.weight")


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".bin"])
def test_a_file_that_is_half_written_is_torn(tmp_path, part, suffix):
    path = tmp_path / f"last{suffix}"
    torch.save(model(), path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    assert word(path)[0] == ("good" if part == 1.0 else "torn")


@pytest.mark.parametrize(
    ("value", "cut", "expected"), [(1.0, 0, "good"), (1.0, 1, "torn"), (float("nan"), 0, "poisoned")]
)
def test_safetensors(tmp_path, value, cut, expected):
    numbers = torch.full((2, 3), value).numpy().tobytes()
    header = b'{"__metadata__":{"a":"b"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + numbers[: len(numbers) - cut])
    assert word(path)[0] == expected


def test_a_folder_of_shards(tmp_path):
    good = distributed(tmp_path / "good", {"model": {"w": torch.ones(100), "b": torch.ones(3)}, "step": 3})
    assert word(good) == ("good", "2 tensors are finite")
    bad = distributed(tmp_path / "bad", {"model": {"w": torch.tensor([1.0, float("nan")])}})
    assert word(bad)[0] == "poisoned"
    short = distributed(tmp_path / "short", {"w": torch.ones(100)})
    shard = next(short.glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-50])
    assert word(short)[0] == "torn"
    shard.unlink()
    assert "lacks __0_0.distcp, which holds w" in word(short)[1]
    (good / ".metadata").unlink()
    assert "it was never finished" in word(good)[1]


def test_a_folder_of_the_hugging_face_trainer(tmp_path):
    folder = tmp_path / "checkpoint-20"
    folder.mkdir()
    torch.save(model(), folder / "optimizer.pt")
    (folder / "config.json").write_text("{}")
    assert "no trainer_state.json: it was never finished" in word(folder)[1]
    (folder / "trainer_state.json").write_text("{}")
    assert word(folder)[0] == "good"
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "model-1-of-2.safetensors"}}')
    assert "lacks model-1-of-2.safetensors" in word(folder)[1]


def test_the_newest_that_is_whole_and_finite(tmp_path, capsys):
    for step, weight in enumerate([torch.ones(2), torch.ones(2), spoilt(float("nan")), torch.ones(2)]):
        path = tmp_path / "runs" / f"step-{step}.pt"
        path.parent.mkdir(exist_ok=True)
        torch.save({"w": weight}, path)
        os.utime(path, (1000 + step, 1000 + step))
    path.write_bytes(b"half")
    os.utime(path, (1003, 1003))
    assert [each.word for each in judged(tmp_path)] == ["torn", "poisoned", "good"]
    assert [each.word for each in judged(tmp_path, every=True)] == ["torn", "poisoned", "good", "good"]
    assert main(["checkpoint", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"newest good checkpoint: {tmp_path / 'runs' / 'step-1.pt'}"
    assert "step-2.pt holds NaN in w" in said


def test_none_is_an_exit_code(tmp_path, capsys):
    assert main(["checkpoint", str(tmp_path)]) == 1
    assert "none" in capsys.readouterr().out
    assert main(["checkpoint", str(tmp_path / "nowhere")]) == 2


def test_of_one_moment_the_highest_number_is_the_newest(tmp_path):
    for name in ("step-9.pt", "step-10.pt", "step-8.pt"):
        torch.save({}, tmp_path / name)
        os.utime(tmp_path / name, (1000, 1000))
    (tmp_path / "step-11.pt.tmp").write_bytes(b"")
    (tmp_path / ".step-12.pt").write_bytes(b"")
    assert [each.path.name for each in candidates(tmp_path)] == ["step-10.pt", "step-9.pt", "step-8.pt"]


def test_nothing_in_a_checkpoint_is_run(tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    torch.save({"x": Hostile(), "w": torch.ones(2)}, tmp_path / "a.pt")
    assert word(tmp_path / "a.pt")[0] == "good"
    assert not (tmp_path / "made").exists()
