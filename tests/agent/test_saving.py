"""The training is asked for a checkpoint in each way that a program may listen to."""

import re

import pytest

from stepwarden import wire
from stepwarden.checkpoint.newest import judged

AT = 5


def saved(number, ranks):
    def told(sidecar):
        return {said.rank for said in sidecar.of(wire.RankState) if said.saved == number} == set(range(ranks))

    return told


def begin(torchrun, sidecar, folder, how, ranks, **more):
    """Start a training, and hold it once it has taken a step."""
    more |= {wire.ENV_CHECKPOINTS: str(folder), wire.ENV_SAVE_FILE: str(sidecar.folder / "save")}
    process = torchrun("saves.py", how, folder, ranks=ranks, directory=sidecar.folder, **more)
    sidecar.wait(lambda heard: len({each.rank for each in heard.of(wire.StepTaken)}) == ranks)
    at = max(step.step for step in sidecar.of(wire.StepTaken)) + 50
    sidecar.order(hold_at=at)
    sidecar.wait(lambda heard: len(heard.held(at)) == ranks)
    assert not list(folder.glob("*.pt"))
    sidecar.order(hold_at=at, save=1)
    return process, at


def test_functions_are_called_in_all_ranks_at_the_same_boundary(torchrun, sidecar, tmp_path):
    process, at = begin(torchrun, sidecar, tmp_path, "function", 2)
    sidecar.wait(saved(1, 2))
    at_save = {said.step for said in sidecar.of(wire.RankState) if said.saved}
    (tmp_path / "end").touch()
    sidecar.order()
    process.communicate()
    assert at_save == {at}  # they were still held
    assert [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)] == [str(at)] * 2
    [found] = judged(tmp_path)
    assert (found.candidate.path.name, found.word) == (f"step-{at}.pt", "good")


@pytest.mark.parametrize("how", ["file", "signal", "huggingface"])
def test_a_program_that_saves_behind_its_step_is_let_through(torchrun, sidecar, tmp_path, how):
    more = {wire.ENV_SAVE_SIGNAL: "SIGUSR1"} if how == "signal" else {}
    process, at = begin(torchrun, sidecar, tmp_path, how, 1, **more)
    sidecar.wait(saved(1, 1))
    process.kill()
    process.communicate()
    found = next(judged(tmp_path))
    assert found.word == "good"
    assert int(re.search(r"\d+", found.candidate.path.name)[0]) in (at, at + 1)  # Trainer counts from 1


def test_lightnings_trainer_saves_at_the_boundary(torchrun, sidecar, tmp_path):
    process, at = begin(torchrun, sidecar, tmp_path, "lightning", 1)
    sidecar.wait(saved(1, 1))
    process.kill()
    process.communicate()
    [found] = judged(tmp_path)
    assert (found.candidate.path.name, found.word) == (f"stepwarden-step-{at}.ckpt", "good")
