"""What a rank prints when another one fails or hangs: who, where, the whole traceback, and its own stack."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepwarden.agent.failing import stacks
from stepwarden.agent.say import say
from stepwarden.failure import is_crash
from stepwarden.wire import Finding

TRACEBACK = 0.5  # seconds that printing a traceback may take
VERBS = {"RankFailed": "failed", "RankHung": "hangs", "RankStraggling": "is slow"}
TEXTS = ("traceback", "stack")  # of a finding's evidence, as they were printed


class Peers:
    """
    What this rank has been told of others, each once.

    `ends` says whether the main thread is at its own end already. `heard` is called after what is new was
    printed, with whether a rank is gone. `cause` is the first failure of those.
    """

    def __init__(
        self, rank: int, step: Callable[[], int], ends: Callable[[], bool], heard: Callable[[bool], object]
    ) -> None:
        """Begin with nothing told."""
        self.rank, self.step, self.ends, self.heard = rank, step, ends, heard
        self.known: set[tuple[object, ...]] = set()
        self.told: tuple[Finding, ...] = ()
        self.cause: Finding | None = None
        self.arrived = threading.Event()
        self.lock, self.closed = threading.RLock(), False  # who prints has it

    def say(self, text: str) -> None:
        """Print something behind a traceback that is being printed, unless the interpreter is about to go."""
        first = self.lock.acquire(timeout=TRACEBACK)
        try:
            if not self.closed:
                say(text)
        finally:
            if first:
                self.lock.release()

    def close(self) -> None:
        """Wait for what is being printed, and print nothing from here on."""
        with self.lock:
            self.closed = True

    def take(self, told: Sequence[Finding]) -> None:
        """Take in what orders tell; print what is new. Called by the watcher's thread."""
        self.told = tuple(told)
        new = [each for each in told if name(each) not in self.known]
        if not new:
            return
        self.known |= set(map(name, new))
        others = [each for each in new if each.kind != "RankFailed" or each.rank != self.rank]
        for each in others:
            text = "\n".join([*lines(each), *of_others(each.evidence.get("stacks"), self.rank)])
            self.say(f"rank {self.rank}: {text}")
        if others and not self.ends():
            stack = stacks.of(threading.main_thread())
            self.say(f"rank {self.rank}: itself at step {self.step()}:\n{stack}")
        causes = list(filter(is_crash, others))
        if causes and self.cause is None:
            self.cause = causes[0]
        if others:
            self.heard(bool(causes))
        if causes:
            self.arrived.set()

    @property
    def stands(self) -> bool:
        """Whether another rank's end is still one of the job's present attempt."""
        return any(is_crash(each) and each.rank != self.rank for each in self.told)


def name(finding: Finding) -> tuple[object, ...]:
    """Return what tells two told findings apart; texts may be cut to another length meanwhile."""
    return (finding.kind, finding.severity, finding.step, finding.rank)


def lines(finding: Finding) -> list[str]:
    """Put a finding as a rank's log has it."""
    who = "a rank" if finding.rank is None else f"rank {finding.rank}"
    found = [f"{who} {VERBS.get(finding.kind, finding.kind)} at step {finding.step}: {finding.message}"]
    texts = [str(finding.evidence.get(each) or "").rstrip() for each in TEXTS]
    return found + list(filter(None, texts)) + of_tensors(finding.evidence.get("tensors"))


def of_others(stacks: Any, own: int) -> list[str]:
    """Put the stacks that a finding has of other ranks than this one."""
    others = stacks.items() if isinstance(stacks, Mapping) else ()
    return [f"rank {rank} is at\n{str(text).rstrip()}" for rank, text in others if str(rank) != str(own)]


def of_tensors(tensors: Any) -> list[str]:
    """Put the tensors of a traceback's frames."""
    if not isinstance(tensors, Mapping) or not tensors:
        return []
    found = ["tensors in its frames:"]
    for frame, named in tensors.items():
        if isinstance(named, Mapping):
            found.append(f"  {frame}: " + ", ".join(f"{place} {what}" for place, what in named.items()))
    return found
