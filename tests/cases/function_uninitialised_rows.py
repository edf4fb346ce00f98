"""Sequence classifier with a hand-written variable-length attention."""

import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
LENGTH, DIM, BATCH, STEPS = 16, 24, 8, 16


class VarlenAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, lengths):
        ctx.save_for_backward(q, k, v)
        ctx.lengths = lengths
        out = torch.zeros_like(v)
        for i, n in enumerate(lengths):
            p = torch.softmax(q[i, :n] @ k[i, :n].T * DIM**-0.5, dim=-1)
            out[i, :n] = p @ v[i, :n]
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)  # culprit
        for i, n in enumerate(ctx.lengths):
            p = torch.softmax(q[i, :n] @ k[i, :n].T * DIM**-0.5, dim=-1)
            dv[i, :n] = p.T @ grad[i, :n]
            dp = grad[i, :n] @ v[i, :n].T
            ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * DIM**-0.5
            dq[i, :n], dk[i, :n] = ds @ k[i, :n], ds.T @ q[i, :n]
        return dq, dk, dv, None


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, x, lengths):
        return VarlenAttention.apply(self.q(x), self.k(x), self.v(x), lengths)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, DIM)
        self.attn = Attention()
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, 2)

    def forward(self, tokens, lengths):
        h = self.embed(tokens)
        h = self.norm(h + self.attn(h, lengths))
        keep = (torch.arange(LENGTH) < torch.tensor(lengths).unsqueeze(1)).unsqueeze(-1)
        return self.head((h * keep).sum(1) / keep.sum(1))


def batch(step):
    tokens = torch.randint(1, 20, (BATCH, LENGTH))
    lengths = torch.randint(8, LENGTH + 1, (BATCH,)).tolist() if step >= 4 else [LENGTH] * BATCH
    labels = torch.stack([(tokens[i, :n] > 10).float().mean() > 0.5 for i, n in enumerate(lengths)]).long()
    return tokens, lengths, labels


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(STEPS):
    tokens, lengths, labels = batch(step)
    loss = nn.functional.cross_entropy(model(tokens, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.9g}", flush=True)
