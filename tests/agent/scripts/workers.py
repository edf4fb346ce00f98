"""Two loaders whose workers take a bad step of their own; then one good step of the rank's own."""

import builtins

import torch
from torch.utils.data import DataLoader, Dataset


class Trains(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        parameter = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        (parameter * float("nan")).sum().backward()
        optimizer.step()
        return index


def main():
    print("chained", getattr(builtins, "chained", None))  # noqa: T201 - a script prints
    for context in ("fork", "spawn"):
        loader = DataLoader(Trains(), num_workers=1, multiprocessing_context=context)
        print(f"worker {context} did {len(list(loader))} steps")  # noqa: T201 - a script prints
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    parameter.sum().backward()
    optimizer.step()


if __name__ == "__main__":
    main()
