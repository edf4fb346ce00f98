"""What a sidecar that may be the next hub knows of the job by the hub before: pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stepwarden.wire import Finding, RankReport
from stepwarden_sidecar.job import KEPT
from stepwarden_sidecar.merge import Key, key


@dataclass(slots=True)
class Inherited:
    """Settled findings, the hub's own ranks' last ones, and all ranks as they were heard last."""

    settled: dict[Key, Finding] = field(default_factory=dict)
    pending: tuple[Finding, ...] = ()
    ranks: tuple[RankReport, ...] = ()
    copied: bool = True  # whether the sidecar's instruction is the one that the hub has

    def take(self, findings: Iterable[Finding]) -> list[Finding]:
        """Take in settled findings, and return the new ones; the earliest beyond what a job keeps go."""
        new = {key(each): each for each in findings if key(each) not in self.settled}
        self.settled |= new
        while len(self.settled) > KEPT:
            del self.settled[next(iter(self.settled))]
        return list(new.values())
