"""Ranks that are stuck because another one failed end by themselves; who is not stuck is left alone."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hearing import Sidecar
from lifelines import Lifelines

from stepwarden import wire
from stepwarden.agent.failing import freeing
from stepwarden.agent.failing.sockets import is_between_ranks

SCRIPT = Path(__file__).parent / "scripts" / "stuck.py"
GONE = wire.Finding(
    kind="RankFailed",
    severity="critical",
    step=4,
    rank=3,
    ranks=(3,),
    message="ValueError: boom (exit code 1)",
    evidence={"traceback": "Traceback (most recent call last):\nValueError: boom", "local": True},
)


@pytest.fixture(scope="module")
def stuck(folders, poll):
    """Let three ranks come to where they are stuck, and tell them that a fourth one has failed."""
    folder = folders()
    sidecar, lives = Sidecar(folder), Lifelines(folder)
    process = subprocess.Popen([sys.executable, SCRIPT, folder])
    poll(lambda: len(list(folder.glob("*.here"))) == 3 or process.poll())
    sidecar.order(told=(GONE,))
    codes = {name: int(poll(text(folder / f"{name}.code"))) for name in ("reducing", "making")}
    ended = (folder / "computing.code").exists()
    (folder / "done").touch()
    process.wait()
    codes["computing"] = int((folder / "computing.code").read_text())
    texts = {name: (folder / f"{name}.err").read_text() for name in codes}
    yield SimpleNamespace(folder=folder, sidecar=sidecar, codes=codes, texts=texts, ended=ended)
    lives.close()
    sidecar.close()


def text(path):
    return lambda: path.exists() and path.read_text()


def failure(stuck, rank):
    [found] = [said for said in stuck.sidecar.of(wire.Finding) if said.rank == rank]
    return found


def test_a_rank_in_a_collective_ends_as_by_any_other_exception(stuck):
    assert stuck.codes["reducing"] == 1
    found = failure(stuck, 0)
    assert found.message.startswith("RuntimeError: ")
    assert found.evidence["local"] is False
    assert found.evidence["because"] == 3
    assert found.file == str(SCRIPT)
    shut = [name for name, said in stuck.texts.items() if "connections of gloo are shut" in said]
    assert shut  # which rank does so first, ends the other's collective too
    assert "RuntimeError" in stuck.texts["reducing"]


def test_connections_that_are_not_gloos_stay_open(stuck):
    assert (stuck.folder / "said").read_bytes() == b"still open"


def test_a_rank_that_can_not_be_freed_is_ended(stuck):
    assert stuck.codes["making"] == 1
    found = failure(stuck, 1)
    assert found.message == "stuck, and ended by stepwarden (exit code 1)"
    assert (found.evidence["local"], found.evidence["because"]) == (False, 3)
    assert "in new_group" in found.evidence["traceback"]
    assert "this one ends by os._exit(1) at\n" in stuck.texts["making"]


def test_a_rank_that_is_not_stuck_goes_on(stuck):
    assert not stuck.ended
    assert stuck.codes["computing"] == 0
    assert "os._exit" not in stuck.texts["computing"]


def test_every_rank_prints_who_failed_and_where_it_is_itself(stuck):
    for rank, (name, said) in enumerate(stuck.texts.items()):
        assert said.count("rank 3 failed at step 4: ValueError: boom (exit code 1)\nTraceback") == 1
        assert f"stepwarden: rank {rank}: itself at step 0:\n" in said
        assert f"in {name}" in said


def test_an_order_that_is_said_again_is_not_printed_again(stuck):
    assert len(stuck.sidecar.of(wire.RankState)) > 6  # they were told, and have said so
    assert all(said.count("boom") == 2 for said in stuck.texts.values())


@pytest.mark.parametrize(
    ("ports", "its"),
    [
        ((40000, 35001), True),
        ((40000, 29500), False),  # the rendezvous' store
        ((29500, 40000), False),
        ((40000, 443), False),  # a service
        ((5432, 40000), False),
    ],
)
def test_which_new_connections_are_gloos(ports, its):
    assert is_between_ranks(ports, {29500}) is its


@pytest.mark.parametrize(
    ("given", "seconds"), [({}, 2.0), ({"": "1"}, 2.0), ("0.5", 0.5), ("0", 0.0), ("x", 2.0), ("inf", 2.0)]
)
def test_the_grace_period(given, seconds):
    variables = given if isinstance(given, dict) else {wire.ENV_GRACE: given}
    assert freeing.grace(variables) == seconds


def test_nobody_is_freed_without_a_grace_period():
    one = freeing.Freeing(0.0, None, None, None)
    one.begin()
    assert one.thread is None
