"""On a GPU a healthy step waits for nothing under deferred containment: torch itself raises at each wait."""

import pytest
import torch
from torch import nn

from stepwarden.agent.attach import Attached
from stepwarden.agent.environment import Environment

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: no other device has waits"),
]


def test_healthy_steps_synchronise_nothing(sidecar):
    attached = Attached(Environment(rank=0, directory=str(sidecar.folder), containment="deferred"))
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(16, 64, device="cuda")
    try:
        for step in range(60):
            torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")  # the first steps look closely
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
        attached.detach()
    assert attached.agent.crew.host.unknown.get("agent") is None
    assert "WatchFailed" not in attached.agent.crew.host.unknown.values()
