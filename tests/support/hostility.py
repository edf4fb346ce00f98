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
steps = small | small | st.integers(0, 2**53) | st.integers() | numbers
reals = st.floats() | st.floats(0.0, 10.0) | st.sampled_from(["NaN", "Infinity", "-Infinity", None])
live = st.sampled_from(["running", "running", "held", "held", "failed", "ended"])
times = st.floats() | st.sampled_from(["NaN", "Infinity"])
ranks = st.fixed_dictionaries(
    {"rank": small, "pod": small, "state": live, "step": steps, "time": times, "steps_per_second": reals},
    optional={"loss": reals, "reason": words, "agree": st.booleans(), "saved": steps},
)
findings = st.fixed_dictionaries(
    {
        "kind": words,
        "severity": st.sampled_from(["info", "warning", "critical"]),
        "step": steps,
        "message": words,
        "rank": small,
    },
    optional={
        "ranks": st.lists(steps, max_size=3),
        "evidence": st.dictionaries(words | st.just("local"), anything, max_size=3),
        "first_step": steps,
        "line": steps,
    },
)
replicas = st.fixed_dictionaries(
    {"rank": small, "run": words, "step": small, "optimizer": small, "count": small, "size": st.just(2)},
    optional={"group": words, "norm": reals, "samples": st.lists(reals, max_size=3), "scale": reals},
)
pulses = st.fixed_dictionaries(
    {"rank": small, "step": steps, "time": times},
    optional={
        "still": reals,
        "waiting": reals,
        "sequence": steps,
        "collective": words,
        "median": reals,
        "spread": reals,
        "longest": reals,
        "steps": steps,
        "spent": st.dictionaries(words, reals, max_size=3),
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
    optional={
        "hold": st.booleans(),
        "acknowledged": steps,
        "update": st.sampled_from(["skip", "apply"]),
        "save": steps,
    },
)
copies = st.fixed_dictionaries(
    {
        "boot": words,
        "cursor": words,
        "published": steps,
        "instruction": instructions,
        "findings": st.lists(findings, max_size=3),
        "pending": st.lists(findings, max_size=3),
        "ranks": st.lists(ranks, max_size=3),
    }
)
