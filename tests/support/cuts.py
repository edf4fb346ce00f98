"""Models whose graph is cut; the line that does it ends with `# cut`."""
# ruff: noqa: ARG004 - custom Functions are called by torch

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Two(nn.Module):
    """A body and a head; what stands between them is the case."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.head(self.between(self.body(x)) * self.scale)

    def between(self, h):
        return h


class Detached(Two):
    def between(self, h):
        return h.detach()  # cut


class DetachedInPlace(Two):
    def between(self, h):
        h = h * 1
        h.detach_()  # cut
        return h


class Data(Two):
    def between(self, h):
        return h.data  # cut


class NoGrad(Two):
    def between(self, h):
        with torch.no_grad():  # cut
            return torch.relu(h)


class NoGradDecorated(Two):
    @torch.no_grad()
    def between(self, h):
        return torch.relu(h)  # cut


class SwitchedOff(Two):
    def between(self, h):
        torch.set_grad_enabled(False)  # cut
        h = torch.tanh(h)
        torch.set_grad_enabled(True)
        return h


class Numpy(Two):
    def between(self, h):
        array = h.detach().numpy()  # cut
        return torch.from_numpy(array)


class Copied(Two):
    def between(self, h):
        return torch.tensor(h)  # cut


class ArgMax(Two):
    def between(self, h):
        best = h.argmax(dim=-1)  # cut
        return functional.one_hot(best, 4).float()


class Long(Two):
    def between(self, h):
        return (h * 10).long().float()  # cut


class Rounded(Two):
    def between(self, h):
        out = torch.zeros(h.shape)
        with torch.no_grad():  # cut
            out[:] = h
        return out


class Filled(Two):
    def between(self, h):
        out = torch.zeros(h.shape)
        out.data.copy_(h)  # cut
        return out


class Item(Two):
    def forward(self, x):
        scale = self.scale.item()  # cut
        return self.head(self.body(x) * scale)


class Float(Two):
    def forward(self, x):
        return self.head(self.body(x) * float(self.scale))  # cut


class Reciprocal(Two):
    def forward(self, x):
        scale = self.scale.exp().item()  # cut
        scale = 1.0 / (scale + 0.5)
        return self.head(self.body(x) * scale)


class ToList(Two):
    def between(self, h):
        rows = h.tolist()  # cut
        return torch.tensor(rows)


class NumpyScalar(Two):
    def forward(self, x):
        scale = np.exp(self.scale.detach().numpy())  # cut
        return self.head(self.body(x) * float(scale))


def plain(tensor):
    return tensor.detach().cpu().numpy()  # cut


class Helped(Two):
    def between(self, h):
        array = np.sin(plain(h))
        return torch.from_numpy(array)


class Legacy(Two):
    def between(self, h):
        rows = [[2 * one for one in row] for row in h.tolist()]  # cut
        return torch.FloatTensor(rows)


class Stacked(Two):
    def forward(self, x):
        scales = torch.tensor([self.scale, self.scale])  # cut
        return self.head(self.body(x) * scales.sum())


class WeightData(Two):
    def forward(self, x):
        return self.head(functional.linear(x, self.body.weight.data) * self.scale)  # cut


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


class ReturnsNone(Two):
    def between(self, h):
        return Doubling.apply(h)  # cut


doubled = Doubling.apply


class BoundApply(Two):
    def between(self, h):
        return Doubling.apply(h)  # cut


class Marked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x * 2
        ctx.mark_non_differentiable(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad


class NotDifferentiable(Two):
    def between(self, h):
        return Marked.apply(h)  # cut


class Closing(Two):
    def between(self, h):
        scale = self.scale

        class Scaling(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * scale

            @staticmethod
            def backward(ctx, grad):
                return grad

        return Scaling.apply(h)  # cut

    def forward(self, x):
        return self.head(self.between(self.body(x)))


class Reentrant(Two):
    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=True)  # cut
        return self.head(h * self.scale)


class WithoutGraph(Two):
    def forward(self, x):
        x = x.clone().requires_grad_()
        energy = self.body(x).pow(2).sum()
        (force,) = torch.autograd.grad(energy, x)  # cut
        return self.head(force * self.scale)


class Sampled(Two):
    def between(self, h):
        return torch.normal(h, 1.0).detach()  # cut


BODY = {"body.weight", "body.bias"}
FAULTS = [
    (Detached, "detach", BODY),
    (DetachedInPlace, "detach", BODY),
    (Data, "data", BODY),
    (NoGrad, "relu", BODY),
    (NoGradDecorated, "relu", BODY),
    (SwitchedOff, "tanh", BODY),
    (Numpy, "detach", BODY),
    (Copied, "tensor", BODY),
    (ArgMax, "argmax", BODY),
    (Long, "long", BODY),
    (Rounded, "setitem", BODY),
    (Filled, "data", BODY),
    (Item, "item", {"scale"}),
    (Float, "float", {"scale"}),
    (Reciprocal, "item", {"scale"}),
    (ToList, "tolist", BODY),
    (NumpyScalar, "detach", {"scale"}),
    (Helped, "detach", BODY),
    (Legacy, "tolist", BODY),
    (Stacked, "tensor", {"scale"}),
    (WeightData, "data", {"body.weight"}),
    (ReturnsNone, "Doubling", BODY),
    (BoundApply, "Doubling", BODY),
    (NotDifferentiable, "Marked", BODY),
    (Closing, "Scaling", {"scale"}),
    (Reentrant, "checkpoint", BODY),
    (WithoutGraph, "grad", BODY),
]
