"""DataRepeated, as one rank sees it: a sampler that shuffles each epoch alike; see `replicas` too."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stepwarden.probes.finding import finding
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict

KIND = "DataRepeated"
DEFAULTS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """A pass over a shuffling DistributedSampler: its epoch, and whether that was trained on before."""

    epoch: int
    repeated: bool
    file: str | None = None
    line: int | None = None


NEEDS = Epochs


def probe(seen: Observation, settings: Mapping[str, float]) -> Verdict:
    """Say whether a new epoch has an order of its own."""
    epochs = seen.record(Epochs)
    if epochs is None:
        return Verdict("unknown", "NoSampler", "no DistributedSampler was begun in this step")
    if not epochs.repeated:
        return Verdict("ok", "NewOrder", f"the sampler's epoch {epochs.epoch} is new")
    message = (
        f"the DistributedSampler gives every epoch the batches of epoch {epochs.epoch} in the same order: "
        "call sampler.set_epoch(epoch) before each epoch"
    )
    found = finding(seen, KIND, message, severity="warning", evidence={"epoch": epochs.epoch})
    if epochs.file is not None:
        found = replace(found, file=epochs.file, line=epochs.line)
    return Verdict("bad", "SameOrder", message, found)
