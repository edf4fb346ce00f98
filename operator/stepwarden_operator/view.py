"""The cluster as the watches have told it, by job. Holds no truth of its own: a new one fills itself."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwarden.wire import JobReport
from stepwarden_operator.conditions import live
from stepwarden_operator.names import JOB_LABEL
from stepwarden_operator.observe import Child, Observed, Pod, Refusal, read_child, read_pod
from stepwarden_operator.training_job import TrainingJob, read_training_job

Key = tuple[str, str]  # namespace, name
OVER = ("Succeeded", "Failed")  # phases of a pod


@dataclass(slots=True)
class Entry:
    """All that is known of one TrainingJob, and of what bears its label."""

    key: Key
    body: dict[str, Any] | None = None
    jobs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    pods: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    report: JobReport | None = None
    report_pod: str = ""  # uid: another pod's hub begins anew
    refusal: Refusal | None = None
    pods_refused: str = ""
    announced: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    pods_changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def uid(self) -> str:
        """The TrainingJob's uid."""
        return str(self.body["metadata"]["uid"]) if self.body else ""

    @property
    def child(self) -> Child | None:
        """The Job that belongs to this very TrainingJob, not to one of the same name before it."""
        return next((read_child(job) for job in self.jobs.values() if owner(job) == self.uid), None)

    def read_pods(self, job: TrainingJob, child: Child | None) -> tuple[Pod, ...]:
        """Read the pods of that Job."""
        if child is None:
            return ()
        return tuple(read_pod(pod, job.trainer) for pod in self.pods.values() if owner(pod) == child.uid)

    def leftover(self, child: Child | None) -> tuple[str, ...]:
        """Name the pods of an earlier Job that still live: their processes may still write."""
        kept = child.uid if child else None
        old = (pod for pod in self.pods.values() if owner(pod) != kept)
        return tuple(pod["metadata"]["name"] for pod in old if pod["status"].get("phase") not in OVER)

    def observe(self, *, progress_due: bool) -> Observed:
        """Put together what a decision may look at. Raises `SpecError`."""
        assert self.body  # noqa: S101 - a keeper lives only as long as its TrainingJob
        job, child = read_training_job(self.body), self.child
        pods = self.read_pods(job, child)
        return Observed(
            job=job,
            child=child,
            pods=pods,
            leftover=self.leftover(child),
            report=self.report if any(pod.uid == self.report_pod for pod in pods) else None,
            refusal=self.refusal,
            pods_refused=self.pods_refused,
            progress_due=progress_due,
            announced=frozenset(self.announced),
        )

    def take(self, body: Mapping[str, Any]) -> bool:
        """Take a newer word about the TrainingJob; an older one than what we wrote ourselves is no news."""
        if self.uid == body["metadata"]["uid"] and version(body) < version(self.body):
            return False
        if self.uid and self.uid != body["metadata"]["uid"]:
            self.report, self.refusal, self.announced = None, None, set()
        self.body = slim(body)
        return True


class View:
    """All entries, by namespace and name."""

    def __init__(self) -> None:
        """Begin empty."""
        self.entries: dict[Key, Entry] = {}

    def entry(self, key: Key) -> Entry:
        """Return an entry, made if need be."""
        return self.entries.setdefault(key, Entry(key))

    def training_job(self, kind: str | None, body: Mapping[str, Any]) -> Entry:
        """Take an event about a TrainingJob."""
        meta = body["metadata"]
        entry = self.entry((meta["namespace"], meta["name"]))
        if kind == "DELETED":
            if entry.uid in ("", meta["uid"]):
                entry.body = None
                self.forget(entry)
        elif entry.take(body):
            entry.changed.set()
        return entry

    def job(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Take an event about a batch/v1 Job."""
        if entry := self.labelled(body):
            put(entry.jobs, kind, body)
            self.forget(entry)
            entry.changed.set()

    def pod(self, kind: str | None, body: Mapping[str, Any]) -> None:
        """Take an event about a pod."""
        if entry := self.labelled(body):
            put(entry.pods, kind, body)
            self.forget(entry)
            entry.changed.set()
            entry.pods_changed.set()

    def labelled(self, body: Mapping[str, Any]) -> Entry | None:
        """Return the entry of the job that an object bears the label of."""
        meta = body["metadata"]
        name = (meta.get("labels") or {}).get(JOB_LABEL)
        return self.entry((meta["namespace"], name)) if name else None

    def forget(self, entry: Entry) -> None:
        """Let go of an entry that nothing is known of any more."""
        if not (entry.body or entry.jobs or entry.pods):
            self.entries.pop(entry.key, None)

    def phases(self) -> Iterator[str]:
        """Yield each TrainingJob's phase."""
        for entry in self.entries.values():
            if entry.body:
                yield (entry.body.get("status") or {}).get("phase", "Pending")


def put(objects: dict[str, Mapping[str, Any]], kind: str | None, body: Mapping[str, Any]) -> None:
    """Take one object's newest word."""
    uid = body["metadata"]["uid"]
    if kind == "DELETED":
        objects.pop(uid, None)
    elif version(body) >= version(objects.get(uid)):
        objects[uid] = slim_child(body)


def owner(body: Mapping[str, Any]) -> str:
    """Return the uid of an object's controller."""
    owners = body["metadata"].get("ownerReferences") or ()
    return next((one["uid"] for one in owners if one.get("controller")), "")


def version(body: Mapping[str, Any] | None) -> int:
    """Return an object's resourceVersion: a number that grows, as Kubernetes 1.35 and later promise."""
    raw = body["metadata"].get("resourceVersion", "") if body else ""
    return int(raw) if raw.isdigit() else 0


def slim(body: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what is read of a TrainingJob: managed fields and the applied copy double its size."""
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    if annotations := meta.get("annotations"):
        meta["annotations"] = {
            k: v for k, v in annotations.items() if not k.startswith("kubectl.kubernetes.io/")
        }
    return {**body, "metadata": meta}


def slim_child(body: Mapping[str, Any]) -> dict[str, Any]:
    """Keep what is read of a Job or pod: not its template."""
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    spec = body.get("spec") or {}
    kept = {key: spec[key] for key in ("suspend", "activeDeadlineSeconds") if key in spec}
    return {"metadata": meta, "spec": kept, "status": dict(body.get("status") or {})}


def short_of_pods(observed: Observed) -> bool:
    """Whether the Job controller has made fewer pods than it should have."""
    child = observed.child
    if child is None or child.suspend or child.complete or child.failed:
        return False
    return len(live(observed.pods)) < observed.job.num_nodes
