"""Where the bundles of a rank go: one for each kind of finding, the first time that it is explained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepwarden.agent.replay import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepwarden.agent.replay.snapshot import Snapshot
    from stepwarden.agent.replay.story import Story
    from stepwarden.wire import Finding


class Shelf:
    """The folder of bundles; without one nothing is saved."""

    def __init__(self, folder: str | None, rank: int) -> None:
        """Begin empty."""
        self.folder, self.rank = folder, rank
        self.kinds: set[str] = set()

    def put(self, findings: Sequence[Finding], snapshot: Snapshot, story: Story) -> Mapping[str, str]:
        """Save a call, and return what the findings' evidence says of that. Never raises."""
        new = [finding for finding in findings if finding.kind not in self.kinds]
        if self.folder is None or not new:
            return {}
        self.kinds |= {finding.kind for finding in new}
        path = Path(self.folder) / f"{new[0].kind}-rank{self.rank}-step{new[0].step}.pt"
        try:
            bundle.save(path, snapshot, story)
        except Exception as error:  # noqa: BLE001 - what can't be pickled is the user's own, and no fault of the run
            text = " ".join(str(error).split())
            return {"bundle_failed": f"{type(error).__name__}: {text:.200}"}
        return {"bundle": str(path)}
