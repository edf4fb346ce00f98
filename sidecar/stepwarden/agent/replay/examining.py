"""One saved call run again under the recorder, forward and backward: what is to blame in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwarden.agent.replay import backward, magnitude, run, tree
from stepwarden.agent.replay.preserving import preserved
from stepwarden.agent.replay.recording import Recording
from stepwarden.probes import birth as births

if TYPE_CHECKING:
    from torch import Tensor

    from stepwarden.agent.replay.snapshot import Snapshot
    from stepwarden.probes.birth import Birth, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """
    What a replay of one call showed.

    `birth` is what is to blame, None where nothing was bad. `incoming` and `outputs` say whether the
    gradients that came back, and the call's results, were finite; `partial`: a gradient was too large.
    """

    steps: list[Step]
    birth: Birth | None
    incoming: bool
    outputs: bool
    partial: bool
    why: str | None = None  # the recording is incomplete
    prefix: str = ""


def examine(snapshot: Snapshot) -> Examined:
    """Run a call again, and put all back. Raises `CannotReplay`, and whatever the model raises."""
    if (why := run.refused(snapshot)) is not None:
        raise run.CannotReplay(why)
    with preserved([snapshot.module]):
        return within(snapshot)


def within(snapshot: Snapshot) -> Examined:
    """Run a call again, where all is put back by the caller."""
    leaves: dict[int, Tensor] = {}
    recording = Recording(snapshot.module)
    output = run.again(snapshot, recording, leaves)
    recording.finish()
    results = list(tree.tensors(output))
    came = {index: gradient for index, gradient in snapshot.gradients.items() if gradient is not None}
    finite = {index for index, gradient in came.items() if math.isfinite(magnitude.signed(gradient))}
    roots = [
        (results[index], came[index])
        for index in sorted(finite)  # an output that is used inside as well got the inside's gradient too
        if index < len(results) and results[index].requires_grad
    ]
    used = [recording.eaten(tensor) for index, tensor in enumerate(results) if index in snapshot.gradients]
    nodes, bad = [], []
    incoming = len(finite) == len(came)
    if roots:
        wanted = [parameter for parameter in snapshot.module.parameters() if parameter.requires_grad]
        found = backward.again(roots, [*wanted, *leaves.values()], recording.makers)
        nodes, bad = found.nodes, found.bad
    birth = None
    if bad or not incoming or not roots:
        birth = births.of_step(recording.steps, nodes, bad, used)
    return Examined(
        steps=recording.steps,
        birth=birth,
        incoming=incoming,
        outputs=all(math.isfinite(eaten.largest) for eaten in used),
        partial=len(came) < len(snapshot.gradients),
        why=recording.recorder.why,
        prefix=snapshot.prefix,
    )
