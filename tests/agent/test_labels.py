"""The user's own record_function labels: nested, left in any order, and kept for an exception."""

import functools
import threading

import pytest
import torch
from torch.profiler import record_function

from stepwarden.agent import failures
from stepwarden.agent.hooks import labels


@pytest.fixture(autouse=True)
def _followed():
    undo = labels.install()
    yield
    undo()
    assert labels.current() is None


def test_labels_nest():
    assert labels.current() is None
    with record_function("forward_pass"):
        with record_function("attention_layer_2"), record_function("log_softmax_stable"):
            assert labels.current() == "forward_pass > attention_layer_2 > log_softmax_stable"
        assert labels.current() == "forward_pass"
    assert labels.current() is None


def test_a_decorator_is_a_label_too():
    @record_function("inner")
    def inside():
        return labels.current()

    assert inside() == "inner"


def test_threads_have_their_own():
    seen = []
    with record_function("here"):
        thread = threading.Thread(target=lambda: seen.append(labels.current()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_blocks_may_be_left_out_of_order():
    first, second = record_function("first"), record_function("second")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert labels.current() == "second"
    second.__exit__(None, None, None)


def raised(function):
    try:
        function()
    except RuntimeError as error:
        return error
    return None


def failing():
    with record_function("forward_pass"), record_function("attention"):
        message = "boom"
        raise RuntimeError(message)


def wrapping():
    try:
        failing()
    except RuntimeError as error:
        message = "outer"
        raise RuntimeError(message) from error


@pytest.mark.parametrize("function", [failing, wrapping])
def test_an_exception_keeps_the_labels_that_were_open(function):
    error = raised(function)
    assert labels.of(error) == "forward_pass > attention"
    found = failures.failed(error, 0, 3)
    assert found.label == "forward_pass > attention"
    assert "raised within: forward_pass > attention" in found.evidence["traceback"]


def test_an_exception_outside_of_all_labels_has_none():
    raised(failing)
    assert labels.of(RuntimeError()) is None
    assert failures.failed(RuntimeError("x"), 0, 0).label is None


def test_another_block_may_be_resumed():
    with record_function("update"):
        with labels.resumed(("forward_pass",)), record_function("attention"):
            assert labels.current() == "forward_pass > attention"
        assert labels.current() == "update"


def test_the_compiler_takes_labelled_code_whole():
    @functools.partial(torch.compile, backend="eager", fullgraph=True)
    def labelled(x):
        with record_function("inside"):
            return x + 1

    assert torch.equal(labelled(torch.zeros(2)), torch.ones(2))
