import signal

import pytest

from stepwarden.pulse import Pulse, RankExit
from stepwarden_sidecar import deaths
from stepwarden_sidecar.deaths import WORD, Before, Death, Deaths

CRASH = """Fatal Python error: Segmentation fault

Thread 0x00007f97c94506c0 (most recent call first):
  File "/a/lib/python3.11/site-packages/stepwarden/agent/link.py", line 77 in orders
  File "/srv/other.py", line 9 in run

Current thread 0x00007f97ca02d740 (most recent call first):
  File "/a/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/srv/site-packages/torch/_tensor.py", line 3 in backward
  File "/srv/train.py", line 13 in step
  File "/srv/train.py", line 40 in <module>

Extension modules: numpy, torch (total: 2)
"""


ABORTED = """Fatal Python error: Aborted

Thread 0x00007f1f837fe6c0 (most recent call first):
  File "/srv/train.py", line 982 in beside
  File "/a/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f2040c22b80 (most recent call first):
  File "/a/site-packages/stepwarden/agent/hooks/collectives.py", line 120 in watched
  File "/a/site-packages/torch/distributed/distributed_c10d.py", line 4181 in all_reduce
  File "/a/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/srv/train.py", line 6 in <module>

Extension modules: numpy, torch (total: 2)
"""


def exit_(code, **more):
    return RankExit(pid=7, code=code, time=0.0, **more)


@pytest.mark.parametrize(
    ("said", "crash", "message", "facts"),
    [
        (exit_(-9), "", "the process was killed by SIGKILL", {"exit_code": 137, "signal": "SIGKILL"}),
        (
            exit_(-9, oom_kills=1),
            "",
            "the process was killed by SIGKILL (out of memory: the kernel killed 1 process in its cgroup)",
            {"exit_code": 137, "signal": "SIGKILL", "oom_kills": 1, "local": True},
        ),
        (
            exit_(-9, oom_kills=3),
            "",
            "the process was killed by SIGKILL (out of memory: the kernel killed 3 processes in its cgroup)",
            {"exit_code": 137, "signal": "SIGKILL", "oom_kills": 3, "local": True},
        ),
        (
            exit_(-11, oom_kills=2),
            CRASH,
            "the process was killed by SIGSEGV (segmentation fault) at /srv/train.py:13",
            {"exit_code": 139, "signal": "SIGSEGV", "oom_kills": 2, "local": True},
        ),
        (
            None,
            CRASH,
            "the process was killed by SIGSEGV (segmentation fault) at /srv/train.py:13",
            {"exit_code": 139, "signal": "SIGSEGV", "local": True},
        ),
        (exit_(-15), "", "the process was killed by SIGTERM", {"exit_code": 143, "signal": "SIGTERM"}),
        (
            exit_(-35),
            "",
            "the process was killed by signal 35",
            {"exit_code": 163, "signal": "signal 35", "local": True},
        ),
        (exit_(3), "", "the process ended with exit code 3", {"exit_code": 3, "local": True}),
        (None, "", "the process is gone without a word: nobody has said how it ended", {}),
        (None, "torn\x00", "the process is gone without a word: nobody has said how it ended", {}),
    ],
)
def test_each_way_of_dying_in_words(said, crash, message, facts):
    found = deaths.finding(1, 20, 7, said, crash, Before())
    assert (found.kind, found.severity, found.step, found.rank) == ("RankFailed", "critical", 20, 1)
    assert found.message == message
    evidence = dict(found.evidence)
    stack = evidence.pop("traceback", "")
    assert evidence == facts | {"pid": 7}
    if crash is CRASH:
        assert (found.file, found.line) == ("/srv/train.py", 13)
        assert "string_at" in stack
        assert "link.py" not in stack
        assert "numpy" not in stack


def test_an_abort_of_gloo_s_own_thread_is_told_by_what_the_main_thread_was_in():
    found = deaths.finding(0, 3, 7, exit_(-6), ABORTED, Before())
    assert found.message == (
        "the process was killed by SIGABRT at /srv/train.py:6, in all_reduce: gloo aborts a rank that is "
        "sent more than its tensor takes, so compare what each rank brings to it"
    )
    assert (found.file, found.line) == ("/srv/train.py", 6)
    assert "beside" not in found.evidence["traceback"]


@pytest.mark.parametrize(
    ("crash", "code"),
    [
        (ABORTED.replace("Thread 0x00007f2", "Current thread 0x00007f2"), -6),  # of the user's own
        (ABORTED.replace("/distributed/", "/nn/"), -6),
        (ABORTED, -9),
    ],
)
def test_no_other_death_is_told_so(crash, code):
    found = deaths.finding(0, 3, 7, exit_(code), crash, Before())
    assert found.message.endswith("train.py:6")


SEEN = ", last seen"


def at(phase, **more):
    return Pulse(rank=1, step=20, time=0.0, phase=phase, file="/srv/train.py", line=41, **more)


@pytest.mark.parametrize(
    ("crash", "before", "where"),
    [
        ("", Before(), ""),
        (
            "",
            Before("", at("forward"), 0.44),
            f"{SEEN} 0.4 s before in the forward pass at /srv/train.py:41",
        ),
        (
            "",
            Before("", at("backward", collective="all_reduce"), 1.0),
            f"{SEEN} 1.0 s before in all_reduce at /srv/train.py:41",
        ),
        ("", Before("Interrupted", at("data"), 1.0), " (KeyboardInterrupt)"),
        (CRASH, Before("", at("forward"), 0.4), " at /srv/train.py:13"),
    ],
)
def test_where_it_was_seen_last_is_told_where_no_stack_is_left(crash, before, where):
    found = deaths.finding(1, 20, 7, exit_(-9), crash, before)
    assert found.message == f"the process was killed by SIGKILL{where}"
    assert ("seen" in found.evidence) == (not crash and before.pulse is not None)
    if SEEN in where:
        assert found.file is None  # it may have gone on since
        assert found.evidence["seen"]["line"] == 41


def test_a_long_name_is_cut():
    told = Pulse(rank=1, step=20, time=0.0, collective="c" * 9999, file="f" * 9999, line=1)
    assert len(deaths.finding(1, 20, 7, None, "", Before("", told, 1.0)).message) < 1000


def test_every_fault_that_faulthandler_tells_of_is_known():
    assert {number.name for number in deaths.FATAL.values()} == {
        "SIGSEGV",
        "SIGFPE",
        "SIGABRT",
        "SIGBUS",
        "SIGILL",
    }


def test_a_death_waits_a_moment_for_the_launcher_s_word():
    known = Deaths()
    known.lost(7, 1.0)
    known.lost(8, 1.0)
    assert known.due(1.0) == []
    known.exited(exit_(-9), 1.1)
    assert known.due(1.1) == [Death(7, exit_(-9))]
    assert known.due(1.0 + WORD) == [Death(8, None)]
    assert known.due(9.0) == []


def test_the_launcher_s_word_alone_is_enough_unless_it_only_asked():
    known = Deaths()
    known.exited(exit_(1), 0.0)
    assert known.due(0.0) == [Death(7, exit_(1))]
    asked = exit_(-signal.SIGTERM, asked=True)
    known.exited(asked, 1.0)
    assert known.due(5.0) == []
    known.lost(7, 6.0)
    assert known.due(6.0) == [Death(7, asked)]
    known.exited(exit_(-signal.SIGTERM), 7.0)  # how it ended then is what was asked for
    assert known.due(7.0) == [Death(7, asked)]


@pytest.mark.parametrize(
    ("state", "said", "news"),
    [
        ("running", None, True),
        ("held", exit_(-9), True),
        ("failed", exit_(1), False),
        ("ended", None, False),
        ("ended", exit_(3), True),
        ("ended", exit_(0), False),
        ("ended", exit_(-2), True),
        ("ended", exit_(-15, asked=True), False),
    ],
)
def test_what_a_rank_said_itself_is_not_said_again(state, said, news):
    assert deaths.is_news(state, said) is news
