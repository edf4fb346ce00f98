"""Watches over a run until it has ended: signals, groups, sidecar, findings, answers. Decides nothing."""

import signal
import time
from collections.abc import Sequence

from stepwarden.cli import course, fleet, screen, terminal
from stepwarden.cli.anew import Anew, crashed
from stepwarden.cli.course import Answer, Course
from stepwarden.cli.failure import STOPPED
from stepwarden.cli.fleet import Fleet
from stepwarden.cli.plan import Plan
from stepwarden.cli.say import say
from stepwarden.cli.sidecar import Sidecar
from stepwarden.cli.signals import Signals
from stepwarden.failure import is_consequence, is_crash
from stepwarden.policy import PAUSING, Decision, match
from stepwarden.wire import Finding, Instruction, JobReport

TICK = 0.1  # seconds between two looks
PROGRESS, WAITING = 2.0, 10.0  # seconds between two lines on the progress: of a run, and of a hold
SPARING = 20.0  # a look may take one part in so many of the time
SETTLE = 1.5  # seconds in which findings of the last step are merged


class Supervisor:
    """One run. `code` is what ended it, where that was not the training itself."""

    def __init__(self, plan: Plan, sidecar: Sidecar, groups: Fleet, *, interactive: bool, anew: Anew) -> None:
        self.rules = anew.rules(plan.rules)
        self.plan, self.sidecar, self.fleet, self.interactive = plan, sidecar, groups, interactive
        self.course = Course(instruction=Instruction(hold=plan.hold))
        self.told: tuple[object, Instruction] = (None, Instruction())
        self.code: int | None = None
        self.findings: Sequence[Finding] = ()
        self.known: set[screen.Key] = set()
        self.shown: set[str] = set()
        self.look_at = 0.0
        self.line, self.line_at = "", 0.0
        self.held_at: float | None = None  # when all ranks were first seen waiting

    def start(self) -> None:
        """Start the sidecar, and the groups once it listens. Raises `UsageError`."""
        self.sidecar.start()
        self.sidecar.wait_ready()
        self.instruct()
        if self.course.instruction.hold:
            say(*screen.held_at_start(self.plan.hold_timeout))
        self.fleet.start(self.plan.groups)

    def watch(self, signals: Signals) -> int:
        """Watch until all groups have ended; return the exit code."""
        while self.fleet.poll():
            for number in signals.take():
                self.signalled(number)
            self.sidecar.keep_up()
            self.look()
            time.sleep(TICK)
        deadline = time.monotonic() + SETTLE
        while self.code is None and not self.look() and time.monotonic() < deadline:
            time.sleep(TICK)
        return self.code if self.code is not None else self.fleet.failure or 0

    def signalled(self, number: signal.Signals) -> None:
        """End the run for a signal: as the ranks like after the first Ctrl-C, at once after the second."""
        if number is not signal.SIGINT:
            self.code = self.code or 128 + number
            self.fleet.end(number, fleet.TERM_GRACE)
        elif self.code is None:
            self.code = 128 + number
            say("Ctrl-C: waiting for the ranks to end; once more kills them")
            self.fleet.end(None if terminal.reaches_children() else number, fleet.INT_GRACE)
        else:
            self.fleet.kill()

    def look(self) -> bool:
        """Look at the hub, if it is time to; True when it knows that every rank has ended."""
        began = time.monotonic()
        report = self.sidecar.hub.report() if self.sidecar.hub and began >= self.look_at else None
        if report is None:
            return False
        # A job with many findings has long answers: looking at them must not take time from the training.
        self.look_at = began + SPARING * (time.monotonic() - began)
        states = [rank.state for rank in report.ranks]
        if self.held_at is None and len(states) == self.plan.ranks and set(states) == {"held"}:
            self.held_at, self.line_at = began, 0.0  # what is waited for is said at once, how short it be
        self.progress(report)
        self.show(report.findings)
        self.decide()
        return course.over(report)

    def show(self, findings: Sequence[Finding]) -> None:
        """Print the findings that are new: of each kind the first, and all that pause or end the run."""
        new = [finding for finding in findings if screen.key(finding) not in self.known]
        self.findings = findings
        self.known |= {screen.key(finding) for finding in new}
        followed = list(filter(is_consequence, new))
        for finding in (each for each in new if each not in followed):
            pauses = match(self.rules, finding).action in PAUSING
            if finding.kind not in self.shown or pauses or is_crash(finding):
                say(*screen.block(finding, self.rules, interactive=self.interactive))
            self.shown.add(finding.kind)
        if followed:
            say(screen.consequences(followed))

    def decide(self) -> None:
        """Let the policy, or the person, decide, and do it."""
        before = self.course
        answer = self.answer()
        self.course = course.turn(before, self.rules, self.findings, answer, time.time())
        if self.course.pause and not before.pause and not self.course.ended and self.interactive:
            terminal.forget_typed()
            say(screen.ASK)
        if self.course.instruction != before.instruction or self.course.stopped != before.stopped:
            say(screen.decided(before, self.course))
        self.instruct()
        if self.course.ended and not before.ended:
            self.code = self.code or (STOPPED if self.course.stopped else None)
            self.fleet.end(signal.SIGTERM, fleet.TERM_GRACE)

    def restart(self, code: int) -> Decision | None:
        """Return what the ended run is to be started anew for; a person's word ends it for good."""
        if self.code is not None:
            return None
        if self.course.answered == "restart":
            return self.course.pause
        return crashed(self.plan.rules, self.findings, code) if code else None

    def answer(self) -> Answer | None:
        """Return what a person says to the open question; a hold that nobody can end ends after its time."""
        held = self.course.instruction.hold
        if self.interactive and (held or self.course.pause):
            return terminal.answer()
        if not held or self.held_at is None or self.plan.hold_timeout is None:
            return None
        return "apply" if time.monotonic() >= self.held_at + self.plan.hold_timeout else None

    def instruct(self) -> None:
        """Tell the hub what stands, unless this hub has been told."""
        wanted = (self.sidecar.hub, self.course.instruction)
        if self.sidecar.hub and wanted != self.told and self.sidecar.hub.instruct(self.course.instruction):
            self.told = wanted

    def progress(self, report: JobReport) -> None:
        """Print where the ranks are, every now and then."""
        now, waiting = time.monotonic(), self.course.pause is not None
        if not self.plan.live or now < self.line_at + (WAITING if waiting else PROGRESS):
            return
        line = screen.progress(report.ranks)
        left = course.left(self.course, time.time())
        if line and waiting and left is not None:
            line = f"{line} | {left:.0f} s left"
        if line and line != self.line:
            say(line)
            self.line, self.line_at = line, now

    def ended_by(self) -> str:
        """Say what ended the run."""
        if self.course.stopped:
            return "stopped by a person" if self.course.by_person else "stopped by the policy"
        if self.code is not None:
            return f"signal {self.code - 128}"
        return "training"
