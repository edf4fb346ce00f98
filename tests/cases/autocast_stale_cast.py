"""Policy-gradient training in mixed precision with several updates on each rollout."""

import torch
from torch import nn

torch.manual_seed(0)
ROLLOUTS, UPDATES, BATCH, OBS, ACTIONS = 6, 4, 64, 12, 5


class Policy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.action = nn.Linear(hidden, ACTIONS)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.action(h).float(), self.value(h).float().squeeze(-1)


truth = torch.randn(OBS, ACTIONS)


def collect(policy):
    obs = torch.randn(BATCH, OBS)
    with torch.no_grad():
        logits, value = policy(obs)
        action = torch.distributions.Categorical(logits=logits).sample()
        logp = torch.log_softmax(logits, -1).gather(1, action.unsqueeze(1)).squeeze(1)
    reward = (obs @ truth).gather(1, action.unsqueeze(1)).squeeze(1)
    return obs, action, logp, reward, reward - value


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
step = 0
for rollout in range(ROLLOUTS):
    obs, action, old_logp, reward, advantage = collect(policy)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # culprit
        for update in range(UPDATES):
            logits, value = policy(obs)
            logp = torch.log_softmax(logits, -1).gather(1, action.unsqueeze(1)).squeeze(1)
            ratio = (logp - old_logp).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = -gain + 0.5 * nn.functional.mse_loss(value, reward)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.9g}", flush=True)
            step += 1
