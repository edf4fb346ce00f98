"""Ranks as RankHung sees them: ten steps a second, and one thing that is odd."""

from stepwarden.probes.ranks import rank_hung
from stepwarden.probes.ranks.seen import Seen
from stepwarden.pulse import Pulse

FIT = {"steps": 40, "median": 0.1, "spread": 0.01, "longest": 0.2, "file": "/x/train.py", "line": 30}
FRESH = {"silent": 0.1, "state": "running", "cut": False, "unmoved": 0.0, "within": 1e9}


def rank(number, phase="data", **more):
    """A rank that makes ten steps a second."""
    seen = {name: more.pop(name, default) for name, default in FRESH.items()}
    return Seen(pulse=Pulse(rank=number, step=8, time=1.0, phase=phase, **FIT | more), **seen)


def waiting(number, seconds=2.5, name="all_reduce", **more):
    return rank(number, "backward", collective=name, waiting=seconds, sequence=41, **more)


def still(number, phase, seconds=2.5, **more):
    return rank(number, phase, still=seconds, unmoved=seconds, **more)


def judge(*seen, expected=None, **settings):
    return rank_hung.judge(seen, {**rank_hung.DEFAULTS, **settings}, expected)


STACK = '  File "/lib/torch/autograd/graph.py", line 8, in run\n'
USERS = '  File "/lib/torch/autograd/graph.py", line 8, in run\n  File "/x/train.py", line 9, in hook\n'
