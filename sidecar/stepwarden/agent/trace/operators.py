"""What torch's functions are called, and which of them compute nothing."""

from __future__ import annotations

from typing import Any

SILENT = frozenset(
    {
        "shape", "dtype", "device", "layout", "size", "stride", "dim", "ndim", "numel", "nelement", "is_leaf",
        "requires_grad", "grad_fn", "is_contiguous", "is_floating_point", "is_complex", "is_cuda", "is_cpu",
        "is_sparse", "is_meta", "is_quantized", "is_nested", "is_inference", "data_ptr", "element_size",
        "storage_offset", "untyped_storage", "storage", "names", "output_nr", "retains_grad", "len", "hash",
        "repr", "str", "format", "dir", "register_hook", "register_post_accumulate_grad_hook", "retain_grad",
        "is_tensor", "is_storage", "result_type", "can_cast", "is_same_size", "get_device", "itemsize",
        "nbytes", "version", "backward_hooks", "base", "is_pinned", "is_shared", "volatile", "set_grad",
        "get_grad", "set_requires_grad", "bool",
    }
)  # fmt: skip
"""Names of what only asks about a tensor."""

SHAPED = frozenset(
    {
        "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like",
        "new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided",
    }
)  # fmt: skip
"""Names of what takes only a tensor's shape and type: no value flows."""

FIRST = frozenset({"expand_as", "view_as", "reshape_as", "type_as"})
"""Names of what takes only the shape or type of its second argument."""

NUMBERS = frozenset({"item", "tolist", "float", "numpy", "array", "complex"})
"""Names of what takes a value out of torch."""


def flowing(name: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
    """Return the inputs whose values an operator uses."""
    if name in SHAPED:
        return ()
    return inputs[:1] if name in FIRST else inputs


def short(function: Any) -> str:
    """Return the name that a user would say."""
    name = getattr(function, "__name__", None) or type(function).__name__
    if name in {"__get__", "__set__", "__delete__"}:
        owner = getattr(getattr(function, "__self__", None), "__name__", "attribute")
        if name != "__get__":
            return f"set_{owner}"
        return "get_grad" if owner == "grad" else str(owner).strip("_")
    name = str(name).partition(".")[0]
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return REVERSED.get(name, name)
    if name.endswith("_") and len(name) > 1:
        name = name.rstrip("_")
    return name.lstrip("_")


REVERSED = {
    f"{prefix}{name}": name
    for name in ("add", "sub", "mul", "matmul", "div", "floordiv", "mod", "pow", "and", "or", "xor")
    for prefix in ("r", "i")
} | {"truediv": "div", "rtruediv": "div", "itruediv": "div", "neg": "neg"}
"""Operators by their special methods: `2 - x` is `sub`."""
