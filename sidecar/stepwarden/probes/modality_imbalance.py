"""
ModalityImbalance: the gradients of two encoders that share a loss are out of proportion.

The starved one hardly learns, and clipping by the common norm takes from it what is left. Encoders run
side by side into one operator of one term of the loss: an encoder and its decoder don't, an actor and its
critic neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

CLOSING = 3.0  # times smaller than at the beginning: the ratio is on its way back


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportion:
    """
    The encoders with the smallest and the largest gradient norm of a step.

    `steps` is how many in a row the same two were out of proportion, by at least the factor of the
    settings, `first` the norms' ratio at the beginning and `last` now. `shared`: whether both
    run into one term of the loss; None: not looked.
    """

    starved: str
    dominant: str
    norms: tuple[float, float]
    steps: int
    first: float
    last: float
    shared: bool | None = None


KIND = "ModalityImbalance"
NEEDS = Proportion
DEFAULTS: Mapping[str, float] = {"factor": 1000.0, "steps": 5.0}


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether two encoders are out of proportion."""
    pair = seen.record(Proportion)
    if pair is None:
        return Verdict("unknown", "NoEncoders", "there are no two encoders side by side")
    message = f"the gradient norm of {pair.dominant} is {pair.last:.3g} times that of {pair.starved}"
    if not pair.last >= settings["factor"] or pair.steps < settings["steps"]:
        return Verdict("ok", "InProportion", message)
    if pair.shared is None:
        return Verdict("unknown", "NotLooked", "it is not known yet whether they share a loss")
    if not pair.shared:
        return Verdict("ok", "LossesApart", "they don't run side by side into one term of the loss")
    if pair.last * CLOSING < pair.first:
        return Verdict("ok", "Closing", f"{message}, and was {pair.first:.3g} times")
    message += (
        f" ({pair.norms[1]:.3g} and {pair.norms[0]:.3g}) for {pair.steps} steps in a row although they share "
        f"a loss: look at the scale of what {pair.starved} puts out, or give it a learning rate of its own"
    )
    measured = {"ratio": pair.last, "ratio_at_first": pair.first, "dominant": pair.dominant}
    first_step = max(seen.step - pair.steps + 1, 0)
    found = finding(seen, KIND, message, severity="warning", first_step=first_step, evidence=measured)
    return Verdict("bad", "OutOfProportion", message, replace(found, module=pair.starved))
