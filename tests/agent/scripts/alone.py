"""One rank whose gradient is NaN once."""

import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.weight.requires_grad_(requires_grad=False)
(model(torch.ones(1)) * float("nan")).sum().backward()
optimizer.step()
