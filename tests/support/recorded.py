"""A model of two layers in a loop, and what is said of its graph."""

import linecache

from torch import nn

from stepwarden import wire

KIND = "GradientTruncated"


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).tanh())


def said(sidecar, steps):
    sidecar.wait(lambda heard: len(heard.of(wire.StepTaken)) >= steps)
    return [finding for finding in sidecar.of(wire.Finding) if finding.kind == KIND]


def source(finding):
    return linecache.getline(finding.file, finding.line).strip()


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
