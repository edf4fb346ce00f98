"""What a torchrun says of the processes that it started; of a real one tests/cli speaks."""

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from lifelines import Lifelines

from stepwarden.agent.failing import oom
from stepwarden.agent.launcher import PATIENCE, Launcher


class Failure:
    """As torch makes it."""

    def __init__(self, pid, exitcode):
        self.pid, self.exitcode = pid, exitcode


def ended(code):
    process = subprocess.Popen(["/bin/sh", "-c", f"exit {code}"])
    process.wait()
    return SimpleNamespace(proc=process)


@pytest.fixture
def torchrun():
    """The part of torch that starts processes: two of three have ended badly."""

    class Context:
        def start(self):
            self.subprocess_handlers = {0: ended(3), 1: ended(0), 2: ended(4)}

        def pids(self):
            return {rank: handler.proc.pid for rank, handler in self.subprocess_handlers.items()}

        def close(self, death_sig=None):
            return death_sig

    return SimpleNamespace(PContext=Context, ProcessFailure=Failure)


@pytest.fixture
def lives(folders):
    made = Lifelines(folders(), answer=b"told\n")
    yield made
    made.close()


def started(torchrun, folder):
    Launcher(str(folder)).install(torchrun)
    context = torchrun.PContext()
    context.start()
    return [handler.proc.pid for handler in context.subprocess_handlers.values()]


def test_all_that_ended_badly_is_told_at_the_first_failure(torchrun, lives):
    first, _, last = started(torchrun, lives.path.parent)
    made = torchrun.ProcessFailure(pid=first, exitcode=3)
    assert (made.pid, made.exitcode, type(made)) == (first, 3, Failure)
    lives.wait(lambda lives: len(lives.heard) == 2)
    assert {said.pid: (said.code, said.asked) for said in lives.heard} == {
        first: (3, False),
        last: (4, False),
    }
    torchrun.ProcessFailure(last, 4)
    assert len(lives.heard) == 2


def test_what_torchrun_ends_itself_is_told_as_such_and_a_new_attempt_begins_anew(torchrun, lives):
    first, fine, _ = started(torchrun, lives.path.parent)
    torchrun.ProcessFailure(first, 3)
    torchrun.ProcessFailure(fine, -15)
    lives.wait(lambda lives: len(lives.heard) == 3)
    assert (lives.heard[-1].pid, lives.heard[-1].code, lives.heard[-1].asked) == (fine, -15, True)
    again = torchrun.PContext()
    again.start()
    torchrun.ProcessFailure(again.subprocess_handlers[0].proc.pid, 3)
    lives.wait(lambda lives: len(lives.heard) == 5)
    assert [said.asked for said in lives.heard[3:]] == [False, False]


def test_it_waits_for_an_answer_and_not_for_ever(torchrun, lives):
    lives.answer = b""
    first, *_ = started(torchrun, lives.path.parent)
    began = time.monotonic()
    torchrun.ProcessFailure(first, 3)
    assert PATIENCE <= time.monotonic() - began < 60


def test_without_a_sidecar_torchrun_is_as_ever(torchrun, folders):
    first, *_ = started(torchrun, folders())
    assert torchrun.ProcessFailure(first, 3).pid == first


def test_another_torch_is_left_alone(lives):
    Launcher(str(lives.path.parent)).install(SimpleNamespace())
    assert lives.heard == []


def test_where_the_count_of_killed_processes_may_be():
    assert oom.candidates(["0::/pods/a"])[0] == Path("/sys/fs/cgroup/pods/a/memory.events")
    assert oom.candidates(["9:cpu:/x", "4:memory:/"])[0] == Path("/sys/fs/cgroup/memory/memory.oom_control")
    assert oom.kills() is None or oom.kills() >= 0
