"""The very end of a rank that failed: what Python takes down behind it has the rest of the grace period."""

import subprocess

import pytest

from stepwarden import wire

DEADLINE = 120  # seconds


@pytest.fixture
def ending(torchrun, sidecar, folders):
    """Start a rank of so many that ends in a way; return its process and its folder."""
    started = []

    def start(way, *, world):
        folder = folders()
        variables = {wire.ENV_GRACE: "0.6", "WORLD_SIZE": world}
        started.append(torchrun("last.py", folder, way, ranks=1, directory=sidecar.folder, **variables))
        return started[-1], folder

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", ["raises", "freezes"])
def test_a_rank_that_failed_is_gone_though_a_destructor_waits_for_ever(ending, way):
    process, folder = ending(way, world="2")
    said = process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 1, said
    assert (folder / "waits").exists(), said
    assert not (folder / "waited").exists()
    written = [(folder / name).read_text() for name in ("exits", "kept", "kept_by_c")]
    assert written == ["run", "a line", "a line"]
    assert "Traceback" in said
    assert "Timeout" not in said


def test_a_rank_that_failed_is_gone_though_a_pipe_has_no_reader(ending):
    process, folder = ending("full", world="2")
    said = process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 1, said
    assert (folder / "exits").exists(), said
    assert not (folder / "waited").exists()


@pytest.mark.parametrize(
    ("way", "world", "code"),
    [("0", "2", 0), ("3", "2", 3), ("raises", "1", 1)],
    ids=["well", "left", "alone"],
)
def test_any_other_rank_has_all_the_time(ending, poll, way, world, code):
    process, folder = ending(way, world=world)
    poll((folder / "waits").exists)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.0)  # longer than the grace period
    (folder / "go").touch()
    said = process.communicate(timeout=DEADLINE)[1]
    assert (process.returncode, (folder / "waited").exists()) == (code, True), said
