"""A TrainingJob as its manifest says, read into types. Pure; raises `SpecError` with a sentence."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from stepwarden.attempt import Moment
from stepwarden.policy import FAILURE_GRACE, PolicyError, Rule, read_rules, restarting, seconds
from stepwarden.reproducibility import Reproducibility, read
from stepwarden.restarts import Restarts, read_restarts
from stepwarden.wire import Update
from stepwarden_operator.checkpoint import Checkpoint, read_checkpoint
from stepwarden_operator.names import ACKNOWLEDGE, TRAINER

ANNOTATION = re.compile(r"\s*([0-9]+)\s*(?:,\s*(skip|apply)?\s*(?:,\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?)?)?")
Read = TypeVar("Read")
GPU_SUFFIX = ".com/gpu"  # nvidia.com/gpu, amd.com/gpu, ...


class SpecError(ValueError):
    """A TrainingJob that can't be meant, in a sentence. The CRD refuses most of these earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """
    Findings of a run up to `step` are dealt with, and `update` is what becomes of the held update.

    `attempt` is that of the step: ranks may have been started again within their pods.
    """

    step: int = -1
    update: Update = "skip"
    run: int = 0
    attempt: int = 0

    @property
    def until(self) -> Moment:
        """The last moment of the run that is dealt with."""
        return self.attempt, self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """What the user asks for. `ranks_per_node` is numProcPerNode with "auto" resolved."""

    name: str
    namespace: str
    uid: str
    generation: int
    num_nodes: int
    ranks_per_node: int
    template: Mapping[str, Any]
    trainer: str
    suspend: bool
    hold: bool
    rules: tuple[Rule, ...]
    probes: Mapping[str, Any]
    containment: str
    reproducibility: Reproducibility
    checkpoint: Checkpoint | None
    restarts: Restarts
    failure_grace: float
    acknowledged: Acknowledged
    status: Mapping[str, Any]

    @property
    def run(self) -> int:
        """How often its pods have begun anew, by a suspension or a restart: a run counts its steps from 0."""
        return int(self.status.get("run", 0))

    @property
    def ranks(self) -> int:
        """How many ranks the whole job has."""
        return self.num_nodes * self.ranks_per_node


def read_training_job(body: Mapping[str, Any]) -> TrainingJob:
    """Read the object as the API gives it. Raises `SpecError`."""
    meta, spec = body["metadata"], body.get("spec") or {}
    template = spec.get("template")
    if not template:
        message = "spec.template is missing: give the pod template whose container `trainer` runs the ranks"
        raise SpecError(message)
    trainer = find_trainer(template.get("spec", {}).get("containers", ()))
    return TrainingJob(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta["uid"],
        generation=meta.get("generation", 0),
        num_nodes=spec.get("numNodes", 1),
        ranks_per_node=ranks_per_node(spec.get("numProcPerNode", 1), trainer),
        template=template,
        trainer=trainer["name"],
        suspend=spec.get("suspend", False),
        hold=spec.get("hold", False),
        rules=rules(spec),
        probes=spec.get("probes") or {},
        containment=spec.get("containment", "strict"),
        reproducibility=sensible(lambda: read(spec.get("reproducibility") or {}, "spec.reproducibility")),
        checkpoint=sensible(lambda: read_checkpoint(spec.get("checkpoint"))),
        restarts=sensible(lambda: read_restarts(spec)),
        failure_grace=sensible(lambda: failure_grace(spec)),
        acknowledged=read_acknowledged((meta.get("annotations") or {}).get(ACKNOWLEDGE, "")),
        status=body.get("status") or {},
    )


def rules(spec: Mapping[str, Any]) -> tuple[Rule, ...]:
    """
    Read `spec.onFinding`. Raises `SpecError`.

    Who gives maxRestarts and no rules wants a crashed job restarted, as JobSet does by that name.
    """
    try:
        found = read_rules(spec.get("onFinding"))
        return restarting(found) if spec.get("maxRestarts") and not spec.get("onFinding") else found
    except PolicyError as error:
        raise SpecError(str(error)) from error


def sensible(reading: Callable[[], Read]) -> Read:
    """Read a part of the spec. Raises `SpecError`."""
    try:
        return reading()
    except ValueError as error:
        raise SpecError(str(error)) from error


def failure_grace(spec: Mapping[str, Any]) -> float:
    """Read `spec.failureGracePeriod`, in seconds."""
    given = spec.get("failureGracePeriod")
    return FAILURE_GRACE if given is None else seconds(str(given))


def find_trainer(containers: Any) -> Mapping[str, Any]:
    """Return the container that runs the ranks: the one named `trainer`, or the only one."""
    named = [container for container in containers if container.get("name") == TRAINER]
    candidates = named or list(containers)
    if len(candidates) != 1:
        message = "which container runs the ranks? Name one of the containers `trainer`, or give only one"
        raise SpecError(message)
    return cast("Mapping[str, Any]", candidates[0])


def ranks_per_node(raw: int | str, trainer: Mapping[str, Any]) -> int:
    """Resolve numProcPerNode: "auto" is the GPUs of the trainer's container, or 1 without any."""
    if raw != "auto":
        return int(raw)
    limits = (trainer.get("resources") or {}).get("limits") or {}
    return sum(int(count) for name, count in limits.items() if name.endswith(GPU_SUFFIX)) or 1


def read_acknowledged(text: str) -> Acknowledged:
    """
    Read the annotation, STEP[,UPDATE[,RUN[,ATTEMPT]]]. One that makes no sense acknowledges nothing.

    It is written by hand at times, and a typing error must not release a poisoned update.
    """
    found = ANNOTATION.fullmatch(text)
    if not found:
        return Acknowledged()
    step, update, run, attempt = found.groups()
    return Acknowledged(
        step=int(step), update=cast("Update", update or "skip"), run=int(run or 0), attempt=int(attempt or 0)
    )
