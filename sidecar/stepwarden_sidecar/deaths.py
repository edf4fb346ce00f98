"""
How a rank's process ended, of which the rank itself could not tell: pure.

The kernel closes a dead process' lifeline, so that it is dead is known at once. How it died its launcher says
a moment later, and Python's faulthandler may have left a stack in a file just before.
"""

import re
import signal
from dataclasses import dataclass, replace
from typing import Any

from stepwarden.calls import collective
from stepwarden.failure import rank_failed
from stepwarden.pulse import Pulse, RankExit
from stepwarden.wire import Finding, State
from stepwarden_sidecar.ranks import LIVE

WORD = 0.3  # seconds that a launcher may take to say how a process ended; torchrun looks each 0.1 s
KEPT = 1024  # exits of processes whose lifeline is still open, the last ones
LONGEST = 16 * 1024  # characters of a stack
PATH = 300  # characters of a file's name, its end
INTERRUPTED = "Interrupted"  # the reason of a rank that a KeyboardInterrupt ended
FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S*)', re.MULTILINE)
HOOK = "/stepwarden/agent/hooks/collectives.py"  # stands around torch's functions in the rank
UNLIKE = "gloo aborts a rank that is sent more than its tensor takes, so compare what each rank brings to it"
LIBRARY = re.compile(r"site-packages|dist-packages|/lib(64)?/python\d|^<|/stepwarden/")
FATAL = {  # first words of faulthandler's report
    "Segmentation fault": signal.SIGSEGV,
    "Floating point exception": signal.SIGFPE,
    "Floating-point exception": signal.SIGFPE,  # from Python 3.14 on
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
}
OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT}


@dataclass(frozen=True, slots=True)
class Death:
    """A process that ended; `exit` is None where its launcher has not said how."""

    pid: int
    exit: RankExit | None


class Deaths:
    """The processes that are gone, until it is known how they ended."""

    def __init__(self) -> None:
        self.gone: dict[int, float] = {}  # since when, on the reader's clock
        self.exits: dict[int, RankExit] = {}
        self.asked: dict[int, None] = {}  # processes that a launcher asked to end, the last ones

    def lost(self, pid: int, now: float) -> None:
        """Take in that a process' lifeline is closed."""
        self.gone.setdefault(pid, now)

    def exited(self, said: RankExit, now: float) -> None:
        """
        Take in a launcher's word: of a process that it only asks to end, its lifeline tells the moment.

        What is said of that process afterwards, as the signal that it ended by, is no news.
        """
        if said.asked:
            self.asked[said.pid] = None
        self.exits[said.pid] = replace(said, asked=said.pid in self.asked)
        for known in (self.exits, self.asked):
            while len(known) > KEPT:
                del known[next(iter(known))]
        if not said.asked:
            self.lost(said.pid, now)

    def due(self, now: float) -> list[Death]:
        """Return the deaths that nothing more is waited for, once."""
        ready = [pid for pid, since in self.gone.items() if pid in self.exits or now >= since + WORD]
        for pid in ready:
            del self.gone[pid]
        return [Death(pid, self.exits.pop(pid, None)) for pid in ready]


def is_news(state: State, said: RankExit | None) -> bool:
    """
    Whether a rank's death is more than what it has said itself.

    One that said that it ended, as at a `raise SystemExit(3)`, may still have failed by its launcher's word.
    So may one that was interrupted: a person's Ctrl-C comes to its launcher as well, which then ends all.
    """
    failed = said is not None and said.code != 0 and not said.asked
    return state in LIVE or (state == "ended" and failed)


@dataclass(frozen=True, slots=True)
class Before:
    """What was known of a rank: the reason of its last state, and what it was at so many seconds before."""

    reason: str = ""
    pulse: Pulse | None = None
    seconds: float = 0.0

    @property
    def words(self) -> str:
        """That in words, to follow on how it ended; "" where nothing is known."""
        if self.reason == INTERRUPTED:
            return " (KeyboardInterrupt)"
        if self.pulse is None:
            return ""
        at = self.pulse.collective[:PATH] or f"the {self.pulse.part}"
        place = f"{(self.pulse.file or '')[-PATH:]}:{self.pulse.line}"
        return f", last seen {self.seconds:.1f} s before in {at} at {place}"

    def told(self) -> dict[str, Any] | None:
        """Put it as evidence; None where nothing is known."""
        if self.pulse is None:
            return None
        body = {"seconds": round(self.seconds, 2), "phase": self.pulse.phase}
        return body | {"collective": self.pulse.collective, "file": self.pulse.file, "line": self.pulse.line}


@dataclass(frozen=True, slots=True)
class Ending:
    """A death in words: `signal` and `code` as far as they are known, and whether the fault was its own."""

    message: str
    signal: str | None = None
    code: int | None = None
    local: bool | None = None


def ending(said: RankExit | None, crash: str) -> Ending:
    """Put a death in words, from a launcher's and from faulthandler's report."""
    code = said.code if said else None
    number = -code if code is not None and code < 0 else fatal(crash)
    if number is not None:
        return killed(number, said.oom_kills if said else None)
    if code:
        return Ending(f"the process ended with exit code {code}", None, code, local=True)
    return Ending("the process is gone without a word: nobody has said how it ended")


def killed(number: int, oom_kills: int | None) -> Ending:
    """Put a death by a signal in words; one that comes from outside may be a consequence."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    memory = number == signal.SIGKILL and bool(oom_kills)
    said = f"the process was killed by {name}"
    if memory:
        processes = "1 process" if oom_kills == 1 else f"{oom_kills} processes"
        said += f" (out of memory: the kernel killed {processes} in its cgroup)"
    elif number == signal.SIGSEGV:
        said += " (segmentation fault)"
    return Ending(said, name, 128 + number, local=None if number in OUTSIDE and not memory else True)


def fatal(crash: str) -> int | None:
    """Return the signal that faulthandler names in its report."""
    return next((number for words, number in FATAL.items() if f"Fatal Python error: {words}" in crash), None)


def stack(crash: str) -> str:
    """
    Return faulthandler's word on the fault and on the thread that it is of, without the other threads.

    Of a thread of C++ it knows nothing: then the main thread's is returned, which comes last.
    """
    head, _, rest = crash.partition("\n")
    name = "Current thread " if "Current thread " in rest else "Thread "
    thread = rest.rpartition(f"\n{name}")[2].partition("\n\n")[0] if name in rest else ""
    return f"{head}\n{thread and name}{thread}".strip()[:LONGEST]


def aborted_in(crash: str) -> str:
    """Return the collective that the main thread was in as a thread of C++ aborted, "" if in none."""
    if "Current thread " in crash:
        return ""
    calls = ((frame["file"], frame["name"]) for frame in FRAME.finditer(stack(crash)))
    return collective(calls, lambda file: file.endswith(HOOK))


def place(crash: str) -> tuple[str | None, int | None]:
    """Return the user's innermost line in faulthandler's report, which has the last call first."""
    for frame in FRAME.finditer(stack(crash)):
        if not LIBRARY.search(frame["file"]):
            return frame["file"], int(frame["line"])
    return None, None


def finding(  # noqa: PLR0913, PLR0917 - which process, and what its launcher, faulthandler and it have said
    rank: int, step: int, pid: int, said: RankExit | None, crash: str, before: Before
) -> Finding:
    """Make the finding of a rank that died during a step."""
    end = ending(said, crash)
    file, line = place(crash)
    where = f" at {file}:{line}" if file else before.words
    facts = {
        "exit_code": end.code,
        "signal": end.signal,
        "local": end.local,
        "traceback": stack(crash) or None,
        "oom_kills": said.oom_kills if said else None,
        "pid": pid,
        "seen": None if file else before.told(),
    }
    known = {name: value for name, value in facts.items() if value is not None}
    called = aborted_in(crash) if end.signal == signal.SIGABRT.name else ""
    why = f", in {called}: {UNLIKE}" if called else ""
    return rank_failed(rank, step, f"{end.message}{where}{why}", place=(file, line), evidence=known)
