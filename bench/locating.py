"""
How long it takes to name the operator of a NaN: a 3M parameter transformer whose head takes log(0).

    python bench locating

Prints what was named, the seconds of the replay, and how many plain steps that is.
"""

import os
import socket
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from trainings import BATCH, CONTEXT, SIZES, Transformer

from stepwarden import policy, wire
from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

STEPS, BAD = 12, 10


class Copying(nn.Module):
    """A transformer whose head may be asked for the logarithm of nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Transformer(*SIZES["middle"])

    def forward(self, tokens: torch.Tensor, floor: float) -> torch.Tensor:
        """Return log probabilities, of which the first is that of `floor`."""
        probabilities = torch.softmax(self.inner(tokens), dim=-1)
        return torch.log(torch.cat([probabilities[:, :1] * floor, probabilities[:, 1:]], dim=-1))


def main(options: Sequence[str]) -> None:
    """Measure."""
    del options
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(Path(folder) / wire.SIDECAR_SOCKET))
        heard.setblocking(False)  # noqa: FBT003 - the socket's own signature
        observed = (policy.Rule(severity="info"),)
        attached = Attached(Environment(rank=0, directory=folder, rules=observed))
        model = Copying()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        tokens = torch.randint(256, (BATCH, CONTEXT + 1))
        seconds = []
        for step in range(STEPS):
            optimizer.zero_grad()
            floor = 0.0 if step == BAD else 1.0
            nn.functional.nll_loss(model(tokens[:, :-1], floor), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            for finding in said(heard, seconds):
                where = f"{finding.op} in {finding.module or 'the root'}"
                print(f"{finding.kind}: {where}: {finding.evidence['replay']}")
        attached.detach()
    print(f"a plain step: {statistics.median(seconds[2:BAD]):.3f} s")


def said(heard: socket.socket, seconds: list[float]) -> list[wire.Finding]:
    """Return the findings that were replayed; note the seconds of steps."""
    findings = []
    while True:
        try:
            message = wire.from_line(heard.recv(wire.MAX_DATAGRAM))
        except BlockingIOError:
            return findings
        if isinstance(message, wire.Finding) and "replay" in message.evidence:
            findings.append(message)
        elif isinstance(message, wire.StepTaken) and message.seconds is not None:
            seconds.append(message.seconds)
