"""Layers with a low-rank adapter, by the names that peft, loralib and people's own code give its matrices."""

import re
from collections.abc import Iterator

from torch import nn

from stepwarden.agent.looks.names import clean

LORA = re.compile(r"lora(_|$|[ab]$|down|up)", re.IGNORECASE)


def layers(root: nn.Module) -> Iterator[tuple[str, list[nn.Parameter], list[tuple[str, nn.Parameter]]]]:
    """Yield the name of each such layer, its adapter's parameters, and its base weights with their names."""
    for prefix, module in root.named_modules():
        children = dict(module.named_children())
        own = {name: parameter for name, parameter in module._parameters.items() if parameter is not None}  # noqa: SLF001 - its own ones alone
        adapter = [parameter for name, parameter in own.items() if LORA.match(name)]
        for name, child in children.items():
            if LORA.match(name):
                adapter += child.parameters()
        if not adapter or LORA.search(prefix.rpartition(".")[2]):
            continue
        base = [(name, each) for name, each in own.items() if name == "weight"]
        for name, child in children.items():
            weight = child._parameters.get("weight")  # noqa: SLF001 - as above
            if not LORA.match(name) and weight is not None:
                base.append((f"{name}.weight", weight))
        found = [(clean(f"{prefix}.{name}".lstrip(".")), each) for name, each in base if each.dim() > 1]
        if found:
            yield clean(prefix), adapter, found
