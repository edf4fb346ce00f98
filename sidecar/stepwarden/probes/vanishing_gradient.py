"""
VanishingGradient: gradients of a trainable part are zero, or vanish beside the rest, and stay so.

A part is a module with weight matrices: a bias by itself, in front of a normalisation or of a softmax, gets
rounding noise by construction. Dead units, saturation, rounding operators, two factors that are both zero
and underflow do it. Healthy: what is small and grows (zero-initialised gates and adapters), what no backward
pass reaches (idle experts and heads), what the loss weighs with zero on purpose: the graph tells them apart.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

RATIO = 1e-7  # of the largest root mean square among the gradients of modules with matrices
RISE = 10.0  # times the ratio at the beginning: then it is growing
SHOWN = 10  # other parts, in the evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """
    A module whose gradients vanish beside the rest.

    `steps` is how many in a row it was so, `first` and `last` are the ratios of its gradients' root mean
    square to the largest of all, at the beginning and now. `reached`: a backward pass reaches it,
    by no factor of zero; `bypassed`: what lies before it gets gradients on another way. None: not looked.
    """

    name: str
    steps: int
    first: float
    last: float
    reached: bool | None = None
    bypassed: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """All parts whose gradients vanish in a step, in order of registration; the names of those that live."""

    parts: tuple[Part, ...] = ()
    living: tuple[str, ...] = ()


KIND = "VanishingGradient"
NEEDS = Quiet
DEFAULTS: Mapping[str, float] = {
    "steps": 20.0,  # in a row
    "idle": 200.0,  # the same for a part that others bypass: a residual branch, an expert, a head
}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether some part has stopped to learn."""
    quiet = seen.record(Quiet)
    if quiet is None:
        return Verdict("unknown", "NotSeen", "the gradients' sizes were not read")
    bad = [part for part in quiet.parts if stays(part, settings)]
    if not bad:
        return Verdict("ok", "Alive", f"{len(quiet.parts)} parts have vanishing gradients, none for long")
    worst = min(reversed(bad), key=lambda part: part.last)
    name = whole(worst.name, {part.name for part in bad}, quiet.living)
    others = sorted({part.name for part in bad if not within(part.name, name)})
    message = describe(worst, name, len(others))
    measured = {"ratio": worst.last, "ratio_at_first": worst.first, "steps": worst.steps}
    found = finding(
        seen,
        KIND,
        message,
        severity="warning",
        first_step=max(seen.step - worst.steps + 1, 0),
        evidence={**measured, "others": others[:SHOWN], "bypassed": worst.bypassed},
    )
    return Verdict("bad", "Vanishing", message, replace(found, module=name))


def stays(part: Part, settings: Mapping[str, float]) -> bool:
    """Whether a part's gradients vanish for good."""
    rising = part.last > RISE * part.first
    needed = settings["idle"] if part.bypassed else settings["steps"]
    return part.reached is True and part.bypassed is not None and not rising and part.steps >= needed


def whole(name: str, bad: Collection[str], living: Sequence[str]) -> str:
    """Return the largest module around a part in which nothing lives."""
    best, most = name, 1
    while "." in name:
        name = name.rpartition(".")[0]
        if any(within(other, name) for other in living):
            break
        if (count := sum(within(other, name) for other in bad)) > most:
            best, most = name, count
    return best


def within(name: str, outer: str) -> bool:
    """Whether a module is another one, or lies in it."""
    return name == outer or name.startswith(f"{outer}.")


def describe(part: Part, name: str, others: int) -> str:
    """Say it in a sentence."""
    size = "are exactly zero" if part.last == 0 else f"are {part.last:.1g} of the largest"
    more = f", and in {others} more modules" if others else ""
    return (
        f"the weights of {name} don't learn: for {part.steps} steps their gradients {size}{more}: look for "
        "dead or saturated units, a rounding operator, weights that are all zero, underflow in half precision"
    )
