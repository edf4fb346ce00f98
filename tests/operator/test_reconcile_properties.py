"""What holds for every job that the operator may find."""

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import DEAD, NOW, PODS, after, asked, report, settled

from stepwarden.policy import Rule
from stepwarden.restarts import Restarts
from stepwarden.wire import Finding
from stepwarden_operator.observe import Child, Observed, timestamp
from stepwarden_operator.training_job import Acknowledged

findings = st.builds(
    Finding,
    kind=st.sampled_from(["NonFiniteLoss", "NonFiniteGradient", "RankFailed"]),
    severity=st.sampled_from(["info", "warning", "critical"]),
    step=st.integers(0, 50),
    message=st.just("m"),
    rank=st.sampled_from([None, 0, 1]),
)
reports = st.none() | st.builds(
    report,
    st.sampled_from(["running", "held", "failed", "ended"]),
    st.sampled_from(["running", "held", "failed", "ended"]),
    findings=st.lists(findings, max_size=25),
    hold_at=st.none() | st.integers(0, 50),
    acknowledged=st.integers(-1, 50),
)
rules = st.builds(
    Rule,
    action=st.sampled_from(["Observe", "Skip", "Hold", "Restart", "Suspend", "Fail"]),
    timeout=st.none() | st.just(60.0),
    then=st.none() | st.sampled_from(["Observe", "Skip", "Restart", "Suspend", "Fail"]),
    times=st.none() | st.just(1),
)
jobs = st.builds(
    asked,
    suspend=st.booleans(),
    hold=st.booleans(),
    restarts=st.builds(Restarts, most=st.integers(0, 2), backoff=st.sampled_from([0.0, 10.0])),
    rules=st.lists(rules, min_size=1, max_size=2).map(tuple),
    acknowledged=st.builds(
        Acknowledged,
        step=st.integers(-1, 50),
        update=st.sampled_from(["skip", "apply"]),
        run=st.integers(0, 1),
    ),
)
times = st.none() | st.just(timestamp(NOW))
children = st.none() | st.builds(
    Child,
    uid=st.just("j1"),
    created=st.just(timestamp(NOW)),
    suspend=st.booleans(),
    suspended=st.booleans(),
    restarts=st.integers(0, 1),
    complete=times,
    failed=times,
)
pods = st.lists(st.sampled_from([*PODS, DEAD, dataclasses.replace(PODS[0], terminating=True)]), max_size=3)
worlds = st.builds(
    Observed, job=jobs, child=children, pods=pods.map(tuple), report=reports, progress_due=st.booleans()
)


@settings(deadline=None, max_examples=150)
@given(first=worlds, then=worlds, later=st.sampled_from([0.0, 30.0, 100.0]))
def test_reconcile_settles_whatever_came_before(first, then, later):
    known = after(first, NOW)
    job = dataclasses.replace(then.job, status=known.job.status)
    settled(dataclasses.replace(then, job=job, announced=known.announced), NOW + later)


@settings(deadline=None, max_examples=150)
@given(first=worlds, then=worlds)
def test_no_finding_is_lost_and_no_acknowledgement_shrinks(first, then):
    old = after(first, NOW).job.status
    new = after(dataclasses.replace(then, job=dataclasses.replace(then.job, status=old)), NOW).job.status
    assert new["findingsCount"] >= old["findingsCount"]
    assert acknowledged(new) >= acknowledged(old)


@settings(deadline=None, max_examples=150)
@given(first=worlds, then=worlds, cut=st.integers(0, 5), later=st.sampled_from([0.0, 30.0]))
def test_an_operator_killed_at_any_action_and_the_next_one_restart_at_most_once(first, then, cut, later):
    known = after(first, NOW)
    job = dataclasses.replace(then.job, status=known.job.status)
    world = dataclasses.replace(then, job=job, announced=known.announced)
    before = restarts(world)
    killed = after(world, NOW + later, actions=cut)
    ended = settled(killed, NOW + later)
    assert restarts(ended) in (before, before + 1)
    held_or_suspended = then.job.hold or then.job.suspend
    assert not (held_or_suspended and restarts(ended) > before)
    assert restarts(ended) == restarts(settled(world, NOW + later))
    assert ended.child is None or ended.child.restarts <= restarts(ended)


def restarts(world):
    made = world.child.restarts if world.child else 0
    return max(world.job.status.get("restarts", 0), made)


def acknowledged(status):
    return status["run"], status.get("acknowledged", {}).get("step", -1)
