"""
The agent of one rank: what happens at the boundary of each optimizer step.

It is a guest in the user's process. Its own errors end itself and not the training, it calls
no collective, changes no number, and blocks only where a hold was asked for.
"""

import functools
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer

from stepwarden import policy
from stepwarden.agent.agreement import Agreement
from stepwarden.agent.crew import Crew
from stepwarden.agent.environment import Environment
from stepwarden.agent.gate import Gate
from stepwarden.agent.hooks.calls import Call, Calls
from stepwarden.agent.hooks.losses import Losses
from stepwarden.agent.hooks.replicas import Local
from stepwarden.agent.judge import Judge, strongest, unknowns
from stepwarden.agent.link import Link
from stepwarden.agent.looks.reading import Before, Reading, capturing, read
from stepwarden.agent.saving.asking import Asking
from stepwarden.agent.say import say
from stepwarden.agent.standing import Standing, skip
from stepwarden.agent.watch import PERIOD, Host, Moment
from stepwarden.probes import Observation
from stepwarden.wire import Finding, Message, StepTaken, Update


class Agent:
    """One rank's agent. `link` is None where there is no sidecar: then it never holds."""

    def __init__(self, environment: Environment, link: Link | None) -> None:
        """Begin before the first step."""
        self.environment = environment
        self.gate = Gate(link.attempt if link else 0)
        self.agreement = Agreement(self.gate, environment)
        self.losses = Losses()
        self.local = Local()
        self.judges: WeakKeyDictionary[Optimizer, Judge] = WeakKeyDictionary()
        self.host = Host(environment, self.losses, self.local)
        self.host.tell = self.tell
        self.host.aside = self.aside
        self.crew = Crew(self.host)
        self.calls = Calls(lambda: self.host.step, self.began, self.ended)
        self.losses.began, self.losses.ended = self.crew.backward_began, self.crew.backward_ended
        self.late: deque[tuple[Moment, tuple[object, ...]]] = deque()
        self.updating: WeakKeyDictionary[Optimizer, Moment] = WeakKeyDictionary()
        self.stepped: float | None = None
        self.off = False
        self.gate.saving = Asking(environment.rank)
        self.standing = Standing(environment.rank, link, self.unknown, self.gate.saving.look)

    def guard(self, function: Callable[..., object], *args: Any) -> None:
        """Call one of the agent's own functions: its error ends the agent, and nothing else."""
        if self.off:
            return
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host, whatever went wrong
            self.broke(f"{type(error).__name__}: {error}")

    def broke(self, why: str = "its watcher thread ended") -> None:
        """Go off for good, and let the training go on."""
        self.off = True
        self.gate.abandon()
        self.host.ticks.clear()
        self.judges.clear()
        say(f"rank {self.environment.rank}: the agent failed and is off, the training goes on: {why:.500}")

    def began(self, call: Call) -> None:
        """Stand before an outermost module call."""
        if not self.off:
            self.crew.forward_began(call)

    def ended(self, call: Call, output: object) -> None:
        """Stand behind one."""
        if not self.off:
            self.crew.forward_ended(call, output)

    def before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """
        Stand before an optimizer's step: torch calls it.

        With a closure the gradients are made within the step, so the boundary is behind the
        closure's first call.
        """
        if self.off or torch.compiler.is_compiling():
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            self.guard(self.boundary, optimizer)
            return None
        watched = self.behind(closure, optimizer)
        if len(args) > 1:
            return (args[0], watched, *args[2:]), kwargs
        return args, {**kwargs, "closure": watched}

    def behind(self, closure: Callable[..., Any], optimizer: Optimizer) -> Callable[..., Any]:
        """Return a closure that has the boundary behind its first call."""
        passed = False

        @functools.wraps(closure)
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal passed
            outcome = closure(*args, **kwargs)
            if not passed:
                passed = True
                self.guard(self.boundary, optimizer)
            return outcome

        return watched

    def boundary(self, optimizer: Optimizer) -> None:
        """Read, judge, report, and act."""
        began = time.perf_counter()
        judge = self.judges.get(optimizer)
        if judge is None:
            judge = self.judges[optimizer] = Judge(self.environment)
        if capturing():
            judge.blind("CudaGraphCapture")
            return
        judge.count += 1
        self.standing.step = max(self.standing.step, judge.count - 1)
        reading = read(optimizer, self.before(judge.count - 1, began))
        moment = self.updating[optimizer] = self.moment(optimizer, judge, reading)
        records = self.crew.boundary(moment)
        self.host.step = self.standing.step + 1
        findings: list[Finding] = []
        while self.late and self.late[0][0].reading.arrived:
            self.catch_up()
        if judge.count == 1 or self.environment.waits(on_host=reading.on_host):
            findings = self.judged(moment, judge, records, late=False)
            self.taken(moment, time.perf_counter() - began)
        else:
            reading.send_to_host()
            reading.overhead += time.perf_counter() - began
            self.late.append((moment, records))
        self.act(optimizer, judge, findings)

    @staticmethod
    def moment(optimizer: Optimizer, judge: Judge, reading: Reading) -> Moment:
        """Say where an optimizer is."""
        return Moment(
            optimizer=optimizer,
            step=reading.step,
            count=judge.count - 1,
            due=(judge.count - 1) % PERIOD == 0,
            reading=reading,
            names=lambda: judge.known(optimizer).names(optimizer),
            roots=lambda: judge.known(optimizer).owners(optimizer),
        )

    def judged(
        self, moment: Moment, judge: Judge, records: tuple[object, ...], *, late: bool
    ) -> list[Finding]:
        """Judge a step whose numbers are there, and report its new findings."""
        moment.values = values = moment.reading.values()
        records += self.crew.numbers(moment)
        seen = judge.observe(moment, values, records, late=late)
        findings = self.crew.explain(moment, judge.findings(seen))
        judge.remember(seen)
        self.report(findings)
        return findings

    def after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Stand behind an optimizer's step: torch calls it."""
        del args, kwargs
        if not self.off and not torch.compiler.is_compiling():
            self.guard(self.updated, optimizer)

    def updated(self, optimizer: Optimizer) -> None:
        """Judge what an update did; what is found then is only said."""
        moment = self.updating.pop(optimizer, None)
        if moment is None or not (records := self.crew.stepped(moment)):
            return
        judge = self.judges[optimizer]
        seen = Observation(
            rank=self.environment.rank,
            step=moment.step,
            updated=True,
            late=True,
            records=records,
            norms=tuple(judge.norms),
            losses=tuple(judge.losses),
        )
        self.report(self.crew.explain(moment, judge.findings(seen)))

    def aside(self, optimizer: Optimizer, records: tuple[object, ...]) -> None:
        """Judge records of a step without a boundary, as one that a scaler skips; they are only said."""
        judge = self.judges.get(optimizer)
        if judge is None:
            judge = self.judges[optimizer] = Judge(self.environment)
        rank, step = self.environment.rank, self.host.step
        seen = Observation(rank=rank, step=step, updated=True, late=True, records=records)
        self.report(judge.findings(seen))

    def made(self, optimizer: Optimizer) -> None:
        """Note a new optimizer."""
        self.host.optimizers.append(weakref.ref(optimizer))
        self.crew.optimizer_made(optimizer)

    def before(self, step: int, began: float) -> Before:
        """Gather what came before the boundary, and begin the next step."""
        seconds = None if self.stepped is None else began - self.stepped
        self.stepped = began
        local, spent = self.local.take()
        return Before(
            step=max(self.standing.step, step),
            loss=self.losses.take(),
            local=local,
            place=self.losses.place,
            began=time.time(),
            seconds=seconds,
            spent=spent,
        )

    def catch_up(self) -> None:
        """Judge the earliest step that was put off. Waits for the device, unless its numbers have arrived."""
        moment, records = self.late.popleft()
        judge = self.judges[moment.optimizer]
        findings = self.judged(moment, judge, records, late=True)
        self.taken(moment, moment.reading.overhead)
        if any(finding.severity == "critical" for finding in findings):
            judge.applied(moment.step)

    def finish(self) -> None:
        """Judge all steps that were put off."""
        while self.late:
            self.catch_up()

    def report(self, findings: list[Finding]) -> None:
        """Say the findings of a step: to the sidecar, or on stderr where there is none."""
        for finding in findings:
            if self.standing.link is not None:
                self.standing.link.say_finding(finding)
            elif finding.severity != "info":
                say(f"rank {finding.rank} at step {finding.step}: {finding.kind}: {finding.message}")

    def taken(self, moment: Moment, overhead: float) -> None:
        """Say that a step reached its boundary."""
        reading, values = moment.reading, moment.values
        if self.standing.link is not None and values is not None:
            self.standing.link.say(
                StepTaken(
                    rank=self.environment.rank,
                    step=reading.step,
                    time=reading.began,
                    seconds=reading.seconds,
                    loss=values.loss,
                    gradient_norm=values.gradient_norm,
                    overhead_seconds=overhead + reading.spent,
                    dropped=self.standing.link.dropped,
                    agree=self.agreement.takes_part(moment.optimizer),
                )
            )

    def act(self, optimizer: Optimizer, judge: Judge, findings: list[Finding]) -> None:
        """Do what the policy asks for: go on, skip the update, or wait for orders."""
        actions = list(map(judge.action, findings))
        if self.standing.link is not None:
            actions += self.agreement.asked(optimizer, self.standing.step)
        update: Update = "skip" if strongest(actions) == "Skip" else "apply"
        if self.standing.link is not None:
            pausing = tuple(finding for finding in findings if judge.action(finding) in policy.PAUSING)
            pauses = any(action in policy.PAUSING for action in actions)
            held = functools.partial(self.standing.held, pausing, pauses=pauses)
            ordered = self.gate.pass_(self.standing.step, finding=pauses, held=held)
            update = ordered if pauses else update
            if self.standing.go_on(update):
                self.stepped = time.perf_counter()
        if update == "skip":
            self.updating.pop(optimizer, None)
            skip(optimizer)
        elif any(finding.severity == "critical" for finding in findings):
            judge.applied(self.standing.step)
        self.crew.released(update)

    def tell(self, message: Message) -> None:
        """Say something to the sidecar, if there is one."""
        if self.standing.link is not None:
            self.standing.link.say(message)

    def unknown(self) -> dict[str, str]:
        """Return by kind why it can't be told."""
        return {"agent": "AgentFailed"} if self.off else self.host.unknown | unknowns(self.judges)
