"""Where an exception began, and what of it is told."""

import pytest

from stepwarden.agent import failures
from stepwarden.agent.failing import origins

GLOO = "[/w/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.0.0.1]:40000"
REMOTE = """Caught ValueError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/venv/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/workspace/data.py", line 17, in __getitem__
    raise ValueError("bad sample")
  File "/venv/site-packages/numpy/core.py", line 1, in array
ValueError: bad sample
"""


class DistNetworkError(RuntimeError):
    """As torch's own is named."""


def error(words, cause=None, context=None, kind=RuntimeError):
    made = kind(words)
    made.__context__ = context
    if cause is not None:  # setting it hides the context, even to None
        made.__cause__ = cause
    return made


@pytest.mark.parametrize(
    ("raised", "peer"),
    [
        (error(GLOO), True),
        (error("Timed out waiting 1800000ms for recv, gloo/transport/tcp/unbound_buffer.cc"), True),
        (error("no such socket", kind=DistNetworkError), True),
        (error("Connection closed by peer"), False),  # of the user's own connection
        (error("gloo can't reduce this type"), False),
        (error("while reducing", cause=error(GLOO)), True),
        (error("while reducing", context=error(GLOO)), True),
        (error(GLOO, context=error("bad batch", kind=ValueError)), False),  # it began here
    ],
)
def test_a_collective_that_lost_a_peer_is_no_fault_of_this_rank(raised, peer):
    assert origins.of_a_peer(raised) is peer


def test_an_exception_that_hides_what_led_to_it_began_there():
    hidden = error("outer", context=error(GLOO))
    hidden.__suppress_context__ = True
    assert origins.of_a_peer(hidden) is False


def test_a_chain_that_bites_its_tail_ends():
    one, two = error("one"), error("two")
    one.__context__, two.__context__ = two, one
    assert list(origins.chain(one)) == [one, two]


def test_a_worker_processes_error_is_told_with_its_own_line():
    found = failures.failed(error(REMOTE, kind=ValueError), 0, 3)
    assert (found.file, found.line) == ("/workspace/data.py", 17)
    assert found.message == (
        "ValueError: Caught ValueError in DataLoader worker process 3. ValueError: bad sample (exit code 1)"
    )
    assert 'File "/workspace/data.py", line 17' in found.evidence["traceback"]


def test_a_pools_error_is_told_with_the_line_in_its_cause():
    remote = error(
        '\n"""\nTraceback (most recent call last):\n  File "/workspace/pool.py", line 5, in work\n"""'
    )
    found = failures.failed(error("bad", cause=remote, kind=KeyError), 0, 3)
    assert (found.file, found.line) == ("/workspace/pool.py", 5)
    assert found.message == "KeyError: 'bad' (exit code 1)"


def test_a_text_without_frames_leaves_the_place_to_the_traceback():
    assert origins.frames("no frame") == []
    assert origins.remote(error("no frame")) == ""
