"""What two real ranks tell of themselves while one of them waits for the other."""

import shutil

import pytest
import torch._C._distributed_c10d as c10d
from hearing import Sidecar

from stepwarden.pulse import Pulse

STEPS = 12
OWN = ("data", "forward", "backward", "optimizer")
AWAY = ("forward", "data", "objects")  # where the late rank stays, in that order


def last(sidecar, rank, condition):
    """Return the rank's last pulse that is so, if there is one."""
    return next((one for one in reversed(sidecar.of(Pulse)) if one.rank == rank and condition(one)), None)


@pytest.fixture(scope="module")
def heard(folders, torchrun):
    """Let the late rank go on each time that both ranks have been heard to stand still."""
    sidecar, met = Sidecar(folders()), {}
    process = torchrun("apart.py", sidecar.folder, STEPS, directory=sidecar.folder)
    try:
        for name, step in zip(AWAY, (3, 5, 7), strict=True):

            def still(one, step=step):
                return one.step == step and one.still >= 1

            met[name] = sidecar.wait(
                lambda now, still=still: (
                    (first := last(now, 0, still)) and (second := last(now, 1, still)) and (first, second)
                )
            )
            (sidecar.folder / name).touch()

        def done(one):
            return one.steps == STEPS

        met["end"] = sidecar.wait(lambda now: all(last(now, rank, done) for rank in (0, 1)))
        met["end"] = (last(sidecar, 0, done), last(sidecar, 1, done))
        (sidecar.folder / "end").touch()
        assert process.wait(120) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
        sidecar.close()
        shutil.rmtree(sidecar.folder)
    return met


def test_a_rank_that_stays_away_is_shown_with_its_phase_and_the_users_line(heard):
    for name, phase in (("forward", "forward"), ("data", "data"), ("objects", "data")):
        pulse = heard[name][1]
        assert (pulse.phase, pulse.collective, pulse.waiting) == (phase, "", 0)
        assert pulse.stack.endswith("time.sleep(0.05)  # away\n")
        assert "stepwarden/agent" not in pulse.stack
        assert pulse.file.endswith("apart.py")
    assert heard["data"][1].marks == ("sleeping",)
    assert heard["forward"][1].marks == ()


@pytest.mark.parametrize(
    ("name", "phase", "collective", "line"),
    [
        ("forward", "backward", "all_reduce", "loss.backward()"),
        ("data", "data", "all_reduce", "dist.all_reduce(torch.ones(1))"),
        ("objects", "data", "all_gather_object", "dist.all_gather_object([None, None], step)"),
    ],
)
def test_a_rank_that_waits_is_shown_with_its_collective(heard, name, phase, collective, line):
    waiting, away = heard[name]
    assert (waiting.phase, waiting.collective) == (phase, collective)
    assert waiting.waiting >= waiting.still >= 1
    assert waiting.sequence > away.sequence >= 0
    assert line in waiting.stack
    assert waiting.marks == ()
    assert away.recorded == {}


def test_what_torch_has_recorded_of_a_collective_is_shown(heard):
    recorded = {name: heard[name][0].recorded for name in AWAY}
    if not hasattr(c10d, "_dump_fr_trace_json"):  # an older torch, which records nothing of gloo
        assert recorded == {name: {} for name in AWAY}
        return
    assert {each["group"] for each in recorded.values()} == {"default_pg"}
    # The reducer's one is of all gradients at once; pickled objects are preceded by their sizes.
    assert (recorded["forward"]["name"], recorded["forward"]["tensors"]) == ("all_reduce", "float[28]")
    assert (recorded["data"]["name"], recorded["data"]["tensors"]) == ("all_reduce", "float[1]")
    assert (recorded["objects"]["name"], recorded["objects"]["tensors"]) == ("all_gather", "long[1]")
    numbers = [recorded[name]["sequence"] for name in AWAY]
    assert numbers == sorted(set(numbers))


def test_a_rank_that_waits_is_not_slow(heard):
    waiting, away = heard["end"]
    waited = sum(heard[name][0].waiting for name in AWAY)
    assert waited >= 3
    assert waiting.spent["waiting"] >= waited
    assert away.spent["forward"] >= heard["forward"][0].waiting
    assert own(away) - own(waiting) >= waited / 2
    assert waiting.longest >= heard["forward"][0].waiting
    assert 0 < waiting.median <= waiting.longest


def own(pulse):
    return sum(pulse.spent[part] for part in OWN)
