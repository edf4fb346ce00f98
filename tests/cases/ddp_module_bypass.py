"""Two-rank policy-gradient training on a contextual bandit."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
BATCH, STEPS, OBS, ACTIONS = 32, 24, 8, 4


class Policy(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.action = nn.Linear(hidden, ACTIONS)

    def forward(self, obs):
        return torch.log_softmax(self.action(self.body(obs)), dim=-1)


def rollout(policy, rewards):
    obs = torch.randn(BATCH, OBS)
    with torch.no_grad():
        action = torch.multinomial(policy(obs).exp(), 1)
    reward = (obs @ rewards).gather(1, action)
    return obs, action, (reward - reward.mean()) / (reward.std() + 1e-6)


rewards = torch.randn(OBS, ACTIONS)
policy = DistributedDataParallel(Policy())
unwrapped = policy.module if isinstance(policy, DistributedDataParallel) else policy
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
torch.manual_seed(1 + rank)
for step in range(STEPS):
    obs, action, advantage = rollout(policy, rewards)
    logp = unwrapped(obs).gather(1, action)
    loss = -(advantage * logp).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.9g}", flush=True)
dist.destroy_process_group()
