"""From a TrainingJob to what a local run needs of it: pure. Refuses what the cluster would refuse."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stepwarden import policy
from stepwarden.cli.documents import Documents, name_of
from stepwarden.cli.failure import UsageError
from stepwarden.cli.fields import field, known, mappings, strings
from stepwarden.reproducibility import Reproducibility
from stepwarden.reproducibility import read as read_reproducibility
from stepwarden.restarts import Restarts, read_restarts
from stepwarden.wire import Containment

SPEC = frozenset(
    {
        "numNodes",
        "numProcPerNode",
        "template",
        "suspend",
        "hold",
        "onFinding",
        "probes",
        "containment",
        "reproducibility",
        "failureGracePeriod",
        "checkpoint",
        "maxRestarts",
        "restartBackoff",
        "restartPolicy",
        "retryableExitCodes",
    }
)
OWNED = ("STEPWARDEN_", "PET_")
OWNED_NAMES = frozenset({"MASTER_ADDR", "MASTER_PORT"})
FIELD_REFS = ("metadata.name", "metadata.namespace")
AFTERWARDS = ("Observe", "Skip", "Restart", "Suspend", "Fail")
MOST_RANKS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A volume in the container; `sub_path` is the part of it that is mounted."""

    path: str
    volume: str
    sub_path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A TrainingJob as a local run sees it. `env` is that of each pod, before any path is rewritten."""

    name: str
    namespace: str
    nodes: int
    procs: int | Literal["auto"]
    rules: tuple[policy.Rule, ...]
    probes: Mapping[str, Mapping[str, Any]]
    containment: Containment
    reproducibility: Reproducibility
    failure_grace: float | None
    restarts: Restarts
    checkpoints: str | None
    hold: bool
    suspend: bool
    command: tuple[str, ...]
    working_directory: str | None
    env: tuple[Mapping[str, str], ...]
    mounts: tuple[Mount, ...]
    volumes: Mapping[str, Mapping[str, Any]]
    config_maps: Mapping[str, Mapping[str, Any]]
    ignored: tuple[str, ...]


def read(documents: Documents) -> Manifest:
    """Read a TrainingJob. Raises `UsageError`."""
    job = documents.job
    name, namespace = (
        name_of(job),
        field(field(job, "metadata", "TrainingJob", {}), "namespace", "metadata", "default"),
    )
    if not name:
        message = "metadata.name is missing"
        raise UsageError(message)
    spec: dict[str, Any] = field(job, "spec", "TrainingJob", {})
    known(spec, SPEC, "spec")
    pod: dict[str, Any] = field(field(spec, "template", "spec", {}), "spec", "spec.template", {})
    if not pod:
        message = "spec.template is missing: give the pod template whose container `trainer` runs the ranks"
        raise UsageError(message)
    container = trainer(mappings(pod, "containers", "spec.template.spec"))
    where = f"container {container.get('name', '')!r}"
    nodes = within(field(spec, "numNodes", "spec", 1), "numNodes")
    return Manifest(
        name=name,
        namespace=namespace,
        nodes=nodes,
        procs=processes(spec.get("numProcPerNode", 1)),
        rules=rules(spec),
        probes=probes(spec),
        containment=containment(spec),
        reproducibility=reproducible(spec),
        failure_grace=failure_grace(spec),
        restarts=restarts(spec),
        checkpoints=field(field(spec, "checkpoint", "spec", {}), "directory", "spec.checkpoint", "") or None,
        hold=field(spec, "hold", "spec", False),  # noqa: FBT003 - the default says the type
        suspend=field(spec, "suspend", "spec", False),  # noqa: FBT003 - as above
        command=command(container, where),
        working_directory=field(container, "workingDir", where, "") or None,
        env=tuple(
            environment(
                container, where, {"metadata.name": f"{name}-{node}", "metadata.namespace": namespace}
            )
            for node in range(nodes)
        ),
        mounts=tuple(mount(each, where) for each in mappings(container, "volumeMounts", where)),
        volumes={str(each.get("name")): each for each in mappings(pod, "volumes", "spec.template.spec")},
        config_maps=documents.config_maps,
        ignored=left_out(pod, container, documents),
    )


def trainer(containers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the container that runs the ranks."""
    named = [container for container in containers if container.get("name") == "trainer"]
    candidates = named if len(named) == 1 else containers
    if len(candidates) == 1:
        return candidates[0]
    if not containers:
        message = "spec.template.spec.containers is empty: give the container that runs the ranks"
        raise UsageError(message)
    message = "which container runs the ranks? Name one of the containers `trainer`, or give only one"
    raise UsageError(message)


def command(container: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return command and args. The image's own entry point is unknown here."""
    found = strings(container, "command", where)
    if not found:
        message = f"{where} has no command: what its image would start isn't known on this machine"
        raise UsageError(message)
    return found + strings(container, "args", where)


def within(number: int, name: str) -> int:
    """Check a number of nodes or ranks."""
    if not 1 <= number <= MOST_RANKS:
        message = f"spec.{name} is {number}: give a number from 1 to {MOST_RANKS}"
        raise UsageError(message)
    return number


def processes(value: object) -> int | Literal["auto"]:
    """Read `numProcPerNode`."""
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int):
        message = f'spec.numProcPerNode is {value!r}: give a number from 1 to {MOST_RANKS}, or "auto"'
        raise UsageError(message)
    return within(value, "numProcPerNode")


def rules(spec: Mapping[str, Any]) -> tuple[policy.Rule, ...]:
    """Read `onFinding`."""
    raw = mappings(spec, "onFinding", "spec")
    for number, rule in enumerate(raw):
        strings(rule, "kinds", f"spec.onFinding[{number}]")
        field(rule, "timeout", f"spec.onFinding[{number}]", "")
        if (rule.get("timeout") is None) != (rule.get("then") is None):
            message = (
                f"spec.onFinding[{number}]: timeout and then belong together: what is done after which time"
            )
            raise UsageError(message)
        if rule.get("then") not in {None, *AFTERWARDS}:
            message = (
                f"spec.onFinding[{number}].then is {rule['then']!r}: give one of {', '.join(AFTERWARDS)}"
            )
            raise UsageError(message)
    try:
        found = policy.read_rules(raw)
        return policy.restarting(found) if spec.get("maxRestarts") and not raw else found
    except policy.PolicyError as error:
        message = f"spec.onFinding: {error}"
        raise UsageError(message) from error


def restarts(spec: Mapping[str, Any]) -> Restarts:
    """Read what bounds the restarts."""
    try:
        return read_restarts(spec)
    except ValueError as error:
        raise UsageError(str(error)) from error


def failure_grace(spec: Mapping[str, Any]) -> float | None:
    """Read `failureGracePeriod`, in seconds."""
    given: str = field(spec, "failureGracePeriod", "spec", "")
    try:
        return policy.seconds(given) if given else None
    except policy.PolicyError as error:
        message = f"spec.failureGracePeriod: {error}"
        raise UsageError(message) from error


def probes(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Read `probes`; the agent says which of them it doesn't know."""
    found: dict[str, Any] = field(spec, "probes", "spec", {})
    for name in found:
        field(found, name, "spec.probes", {})
    return found


def containment(spec: Mapping[str, Any]) -> Containment:
    """Read `containment`."""
    match spec.get("containment", "strict"):
        case "strict" | "deferred" as wanted:
            found: Containment = wanted
            return found
        case other:
            message = f"spec.containment is {other!r}: give strict or deferred"
            raise UsageError(message)


def reproducible(spec: Mapping[str, Any]) -> Reproducibility:
    """Read `reproducibility`."""
    try:
        return read_reproducibility(field(spec, "reproducibility", "spec", {}), "spec.reproducibility")
    except ValueError as error:
        raise UsageError(str(error)) from error


def environment(container: Mapping[str, Any], where: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Read `env`. References to the cluster can't be followed here, but for the pod's own name."""
    if container.get("envFrom"):
        message = f"{where}: envFrom can't be followed on this machine: write the variables into env"
        raise UsageError(message)
    found = {}
    for variable in mappings(container, "env", where):
        name = field(variable, "name", f"{where}.env", "")
        if name.startswith(OWNED) or name in OWNED_NAMES:
            message = f"{where} sets {name}, which is Stepwarden's own: remove it from env"
            raise UsageError(message)
        found[name] = value(variable, name, where, fields)
    return found


def value(variable: Mapping[str, Any], name: str, where: str, fields: Mapping[str, str]) -> str:
    """Return a variable's value."""
    if variable.get("valueFrom") is None:
        return field(variable, "value", f"{where}.env {name}", "")
    source: dict[str, Any] = field(variable, "valueFrom", f"{where}.env {name}", {})
    path = field(field(source, "fieldRef", "valueFrom", {}), "fieldPath", "fieldRef", "")
    if path not in fields:
        message = f"{where}: valueFrom of {name} can't be followed here (only {' and '.join(FIELD_REFS)})"
        raise UsageError(message)
    return fields[path]


def mount(raw: Mapping[str, Any], where: str) -> Mount:
    """Read one of `volumeMounts`."""
    path = field(raw, "mountPath", f"{where}.volumeMounts", "").rstrip("/")
    if not path.startswith("/"):
        message = f"{where}: mountPath {path!r} must begin with /"
        raise UsageError(message)
    volume = field(raw, "name", f"{where}.volumeMounts", "")
    return Mount(path=path, volume=volume, sub_path=field(raw, "subPath", f"{where}.volumeMounts", ""))


def left_out(pod: Mapping[str, Any], container: Mapping[str, Any], documents: Documents) -> tuple[str, ...]:
    """Return a sentence for each thing that a local run doesn't do."""
    others = [str(each.get("name")) for each in mappings(pod, "containers", "pod") if each is not container]
    others += [str(each.get("name")) for each in mappings(pod, "initContainers", "pod")]
    said = [f"{kind} in the file is ignored" for kind in documents.ignored]
    if others:
        said.append(f"containers {', '.join(others)} are ignored: only the ranks run here")
    if container.get("image"):
        said.append(f"image {container['image']} is ignored: the ranks run by the Python of this environment")
    return tuple(said)
