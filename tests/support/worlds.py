"""Jobs as the operator may find them, and the cluster that does what it asks for."""

import dataclasses

from stepwarden.attempt import until
from stepwarden.policy import Rule
from stepwarden.wire import Finding, JobReport, Orders, RankReport
from stepwarden_operator.actions import Announce, Create, DeleteJob, Instruct, PatchJob, WriteStatus
from stepwarden_operator.events import event_name
from stepwarden_operator.observe import Child, Exit, Observed, Pod, timestamp
from stepwarden_operator.reconcile import reconcile
from stepwarden_operator.training_job import read_training_job

NOW = 1_800_000_000.0
HOLD = Rule(kinds=("*",), severity="critical", action="Hold")


def asked(**changes):
    body = {
        "metadata": {"name": "tiny", "namespace": "ns", "uid": "u1", "generation": 1},
        "spec": {"numNodes": 2, "template": {"spec": {"containers": [{"name": "trainer"}]}}},
    }
    return dataclasses.replace(read_training_job(body), **changes)


def finding(step=47, kind="NonFiniteGradient", **more):
    return Finding(kind=kind, severity="critical", step=step, message="it holds NaN", rank=1, **more)


def report(*states, step=47, findings=(), **orders):
    ranks = tuple(
        RankReport(rank=number, pod=number, state=state, step=step, time=NOW, loss=2.5, steps_per_second=3.0)
        for number, state in enumerate(states)
    )
    return JobReport(version="1", ranks=ranks, findings=tuple(findings), orders=Orders(**orders))


CHILD = Child(uid="j1", created=timestamp(NOW), start_time=timestamp(NOW))
PODS = tuple(
    Pod(name=f"tiny-{index}-x", uid=f"p{index}", index=index, ip="10.0.0.1", running=True, up=True)
    for index in (0, 1)
)
RUNNING = Observed(job=asked(), child=CHILD, pods=PODS, report=report("running", "running"))
HELD = dataclasses.replace(
    RUNNING, job=asked(rules=(HOLD,)), report=report("held", "held", findings=[finding()], hold_at=47)
)


def merged(old, patch):
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict) and isinstance(new.get(key), dict):
            new[key] = merged(new[key], value)
        else:
            new[key] = value
    return new


def after(observed, now, actions=None):
    """Carry out what reconcile asks for, as the cluster would."""
    plan = reconcile(observed, now)
    for action in plan.actions[:actions]:
        match action:
            case Create(suspend, restarts):
                child = dataclasses.replace(CHILD, suspend=suspend, restarts=restarts)
                observed = dataclasses.replace(observed, child=child)
            case DeleteJob():
                observed = dataclasses.replace(observed, child=None, pods=(), report=None)
            case PatchJob(spec):
                suspend = spec.get("suspend", observed.child.suspend)
                deadline = spec.get("activeDeadlineSeconds", observed.child.deadline)
                child = dataclasses.replace(observed.child, suspend=suspend, deadline=deadline)
                observed = dataclasses.replace(observed, child=child)
            case WriteStatus(patch):
                job = dataclasses.replace(observed.job, status=merged(observed.job.status, patch))
                observed = dataclasses.replace(observed, job=job)
            case Instruct(instruction):
                attempt, acknowledged = max(until(instruction), until(observed.report.orders))
                orders = Orders(
                    hold_at=50 if instruction.hold else None,
                    attempt=attempt,
                    acknowledged=acknowledged,
                    update=instruction.update,
                    save=max(instruction.save, observed.report.orders.save),
                )
                told = dataclasses.replace(observed.report, orders=orders)
                observed = dataclasses.replace(observed, report=told)
            case Announce():
                announced = observed.announced | {event_name(observed.job, action)}
                observed = dataclasses.replace(observed, announced=announced)
    return observed


def settled(observed, now=NOW):
    """Reconcile until nothing is left to do; a second time must do, but where a Job is made anew."""
    rounds, most = 0, 2
    while actions := reconcile(observed, now).actions:
        assert rounds < most
        most = 5 if of(actions, DeleteJob) or of(actions, Create) else most
        observed, rounds = after(observed, now), rounds + 1
    return observed


def status(observed, now=NOW):
    return settled(observed, now).job.status


def condition(observed, kind):
    return next(c for c in status(observed)["conditions"] if c["type"] == kind)


def of(actions, cls):
    return [action for action in actions if isinstance(action, cls)]


def events(observed, now=NOW):
    return [event.reason for event in of(reconcile(observed, now).actions, Announce)]


def changed(observed, **job):
    return dataclasses.replace(observed, job=dataclasses.replace(observed.job, **job))


DEAD = dataclasses.replace(
    PODS[1], running=False, up=False, finished=True, exit=Exit(code=3, reason="Error", log="the disk is full")
)
FAILED = dataclasses.replace(
    RUNNING,
    child=dataclasses.replace(CHILD, failed=timestamp(NOW), failed_reason="PodFailurePolicy"),
    pods=(PODS[0], DEAD),
)
