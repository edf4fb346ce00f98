"""Bodies that look like the messages between the processes, with all that JSON can say in them."""

import string

from hypothesis import strategies as st

numbers = st.integers() | st.sampled_from([2**31, 2**63, -(2**63), 10**400, -1]) | st.floats()
words = st.text(string.printable, max_size=8) | st.sampled_from(
    ["running", "held", "failed", "critical", "NaN", "-Infinity", "NonFiniteGradient", "RankFailed", "skip"]
)
leaves = st.none() | st.booleans() | numbers | words
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
small = st.integers(-1, 5)
ranks = st.fixed_dictionaries(
    {"rank": small, "pod": small, "state": st.sampled_from(["running", "held", "failed", "ended"])},
    optional={
        "step": numbers | small,
        "time": leaves,
        "loss": leaves,
        "steps_per_second": leaves,
        "reason": leaves,
        "agree": st.booleans(),
        "saved": numbers,
    },
)
findings = st.fixed_dictionaries(
    {
        "kind": words,
        "severity": st.sampled_from(["info", "warning", "critical"]),
        "step": numbers | small,
        "message": words,
        "rank": small,
    },
    optional={
        "ranks": st.lists(numbers, max_size=3),
        "evidence": st.dictionaries(words | st.just("local"), anything, max_size=3),
        "first_step": numbers,
        "line": numbers,
    },
)
replicas = st.fixed_dictionaries(
    {"rank": small, "run": words, "step": small, "optimizer": small, "count": small, "size": st.just(2)},
    optional={"group": words, "norm": leaves, "samples": st.lists(leaves, max_size=3), "scale": leaves},
)
pulses = st.fixed_dictionaries(
    {"rank": small, "step": numbers | small, "time": numbers},
    optional={
        "still": leaves,
        "waiting": leaves,
        "sequence": numbers,
        "collective": words,
        "median": leaves,
        "spread": leaves,
        "longest": leaves,
        "steps": numbers,
        "spent": st.dictionaries(words, leaves, max_size=3),
        "marks": st.lists(words, max_size=2),
    },
)
pods = st.fixed_dictionaries(
    {"pod": small},
    optional={
        "ranks": st.lists(ranks, max_size=4),
        "findings": st.lists(findings, max_size=4),
        "replicas": st.lists(replicas, max_size=4),
        "pulses": st.lists(pulses, max_size=4),
    },
)
instructions = st.fixed_dictionaries(
    {},
    optional={"hold": st.booleans(), "acknowledged": numbers, "update": words, "save": numbers},
)
copies = st.fixed_dictionaries(
    {
        "boot": words,
        "cursor": words,
        "published": numbers,
        "instruction": instructions,
        "findings": st.lists(findings, max_size=3),
        "pending": st.lists(findings, max_size=3),
        "ranks": st.lists(ranks, max_size=3),
    }
)
