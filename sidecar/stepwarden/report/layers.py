"""The table of layers of a run, from the notes that its first rank made: pure but for reading them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepwarden.report.records import lines
from stepwarden.wire import Note

EARLY, LATE = 1, 10  # the steps at which the agent makes its notes

Health = Literal["ok", "no gradient", "zero gradient", "not looked at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One module's own parameters; `early` and `late` are gradient norms, None without a gradient."""

    name: str
    parameters: int
    trainable: int
    early: float | None
    late: float | None
    steps: int  # of the two, that were looked at

    @property
    def frozen(self) -> str:
        """Whether it is frozen, as a word."""
        return "yes" if self.trainable == 0 else "no" if self.trainable == self.parameters else "partly"

    @property
    def health(self) -> Health:
        """What its gradients say: a trainable layer gets some, a frozen one none."""
        if not self.trainable:
            return "ok"
        if not self.steps:
            return "not looked at"
        if self.early is None and self.late is None:
            return "no gradient"
        return "zero gradient" if not self.early and not self.late else "ok"


def read(path: Path) -> list[Layer]:
    """Read `layers.jsonl`, in the order of the model's modules; empty where there is none."""
    return table(lines(path, Note))


def table(notes: Iterable[Note]) -> list[Layer]:
    """Put the two looks side by side."""
    looks: dict[int, dict[str, Sequence[float | None]]] = {EARLY: {}, LATE: {}}
    for note in notes:
        if note.body.get("step") in looks:
            looks[note.body["step"]] |= note.body["rows"]
    names = list(looks[EARLY]) or list(looks[LATE])
    return [layer(name, looks[EARLY].get(name), looks[LATE].get(name)) for name in names]


def layer(name: str, early: Sequence[float | None] | None, late: Sequence[float | None] | None) -> Layer:
    """Make one row: what is trainable is as it was at the later look."""
    seen = [look for look in (late, early) if look is not None]
    return Layer(
        name=name or "(root)",
        parameters=int(seen[0][0] or 0),
        trainable=int(seen[0][1] or 0),
        early=number(early),
        late=number(late),
        steps=len(seen),
    )


def number(look: Sequence[float | None] | None) -> float | None:
    """Return a look's gradient norm: on the wire NaN is a word."""
    return None if look is None or look[2] is None else float(look[2])
