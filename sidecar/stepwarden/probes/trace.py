"""A recorded part of a training step in plain values: which operators ran, on what, and where."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """
    What one tensor (or a Python number or array that came out of one) held for a while.

    A tensor that is changed in place is a new value. `id` counts up from 0 and is its place in
    `Trace.values`; `leaf` the name of the parameter or buffer that it is, `number` whether it is
    none of torch's. `nan`, `inf` (any infinity), `neg_inf_only` (its infinities are all negative)
    and `largest` (the largest finite magnitude) are None where it wasn't looked at.
    """

    id: int
    floating: bool
    requires_grad: bool
    leaf: str | None = None
    number: bool = False
    nan: bool | None = None
    inf: bool | None = None
    neg_inf_only: bool | None = None
    largest: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """
    One call of an operator, as the user's code called it.

    `name` is the short one (`matmul` for `@`, the class of a custom autograd.Function, `checkpoint`).
    What it changed in place is among its outputs. `module` is the innermost one running, without
    wrappers; `file` and `line` the user's source. `inside` is the index of the custom Function
    (`custom`) or reentrant checkpoint that ran it. `nodes` are the sequence numbers (first, end) of
    the autograd nodes that it made, `blocked` the inputs to which a custom backward gave None.
    `training` is the mode of that module, None outside of all. `switched` is the user's line that ran
    when gradients were switched off, `entered` the line of that block, or where it is a decorator, the
    line that ran in the decorated function. `callers` are the user's lines that called, the nearest
    first, where a number or an array came out.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: str | None = None
    file: str | None = None
    line: int | None = None
    label: str | None = None
    grad_enabled: bool = True
    inference: bool = False
    training: bool | None = None
    custom: bool = False
    inside: int | None = None
    nodes: tuple[int, int] = (0, 0)
    blocked: tuple[int, ...] = ()
    switched: tuple[str, int] | None = None
    entered: tuple[str, int] | None = None
    callers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """
    What was recorded, in the order of time: `values[n].id == n` and `ops[n].index == n`.

    `losses` are the values that backward started from; `why` says why it is incomplete, if it is.
    """

    values: tuple[Value, ...] = ()
    ops: tuple[Op, ...] = ()
    losses: tuple[int, ...] = ()
    why: str | None = None
