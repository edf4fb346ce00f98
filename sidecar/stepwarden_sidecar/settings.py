"""What a sidecar is told by its environment. Opens nothing, and reads one file: the token's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepwarden import wire
from stepwarden.probes import settings as probes

ENV_BIND = "STEPWARDEN_BIND"  # the address to listen at
ENV_JOB = "STEPWARDEN_JOB"  # name of the TrainingJob, for the metrics' labels
ENV_NAMESPACE = "STEPWARDEN_NAMESPACE"  # and its namespace
ENV_PODS = "STEPWARDEN_PODS"  # how many pods the job has, where any of them may be the hub
ENV_TOKEN_FILE = "STEPWARDEN_TOKEN_FILE"  # noqa: S105 - the variable's name: a file that holds the token
POD = "{pod}"  # in the hub's URL: the pod's index

MAX_RANKS = 16_384
MAX_PORT = 65_535
MAX_SOCKET_PATH = 107  # what sockaddr_un holds, less its final zero


class SettingsError(ValueError):
    """An environment that no sidecar can start from, in a sentence that names the variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    A sidecar's settings. `hub` is None where this sidecar is it, `ranks` where nobody said how many.

    `candidates` are the URLs of all pods' sidecars, by index, where any of them may be the hub.
    """

    directory: Path
    token: str = field(repr=False)
    hub: str | None = None
    candidates: tuple[str, ...] = ()
    pod: int = 0
    ranks: int | None = None
    port: int = wire.DEFAULT_PORT
    bind: str = "0.0.0.0"  # noqa: S104 - the operator and Prometheus call from other machines
    report: Path | None = None
    labels: tuple[tuple[str, str], ...] = ()  # on every metric
    probes: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: probes.DEFAULTS)


def read(environment: Mapping[str, str]) -> Settings:
    """Read the settings. Raises `SettingsError`."""
    directory = Path(required(environment, wire.ENV_DIRECTORY, "the folder that it shares with the ranks"))
    if len(str(directory / wire.SIDECAR_SOCKET).encode()) > MAX_SOCKET_PATH:
        message = f"{wire.ENV_DIRECTORY} is too long for a unix socket: {directory}"
        raise SettingsError(message)
    report = environment.get(wire.ENV_REPORT)
    pod = number(environment, wire.ENV_POD, (0, MAX_RANKS - 1))
    port = number(environment, wire.ENV_PORT, (0, MAX_PORT))
    url = environment.get(wire.ENV_HUB)
    pods = number(environment, ENV_PODS, (1, MAX_RANKS)) if url and POD in url else None
    named = {"training_job": environment.get(ENV_JOB), "namespace": environment.get(ENV_NAMESPACE)}
    return Settings(
        directory=directory,
        token=token(environment),
        hub=None if pods else hub(url, pod),
        candidates=candidates(url or "", pods, pod) if pods else (),
        pod=pod or 0,
        ranks=number(environment, wire.ENV_RANKS, (1, MAX_RANKS)),
        port=wire.DEFAULT_PORT if port is None else port,
        bind=environment.get(ENV_BIND) or "0.0.0.0",  # noqa: S104 - as above
        report=Path(report) if report else None,
        probes=probes.read(environment.get(wire.ENV_PROBES)).probes,
        labels=tuple((name, value) for name, value in named.items() if value),
    )


def required(environment: Mapping[str, str], name: str, meaning: str) -> str:
    """Return a variable that there is no default for."""
    value = environment.get(name)
    if not value:
        message = f"{name} is not set: {meaning}"
        raise SettingsError(message)
    return value


def token(environment: Mapping[str, str]) -> str:
    """Return the token: from the file that a Secret is mounted as, or from the variable."""
    if not (path := environment.get(ENV_TOKEN_FILE)):
        return required(environment, wire.ENV_TOKEN, "the secret that whoever asks it must know")
    try:
        found = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        message = f"{ENV_TOKEN_FILE} can't be read: {error}"
        raise SettingsError(message) from None
    if not found:
        message = f"{ENV_TOKEN_FILE} is empty: {path}"
        raise SettingsError(message)
    return found


def number(environment: Mapping[str, str], name: str, within: tuple[int, int]) -> int | None:
    """Return a variable as a whole number within bounds; None where it is unset or empty."""
    value = environment.get(name, "").strip()
    if not value:
        return None
    low, high = within
    if not value.isdecimal() or not low <= int(value) <= high:
        message = f"{name} is {value!r}: give a whole number from {low} to {high}"
        raise SettingsError(message)
    return int(value)


def hub(url: str | None, pod: int | None) -> str | None:
    """
    Return the hub's URL without a final slash; None where this sidecar is the hub.

    All pods of a job have the same template, so pod 0 is told its own URL.
    """
    if not url or pod == 0:
        return None
    if pod is None:
        message = f"{wire.ENV_POD} is not set: with {wire.ENV_HUB}, it says whether this pod is the hub's"
        raise SettingsError(message)
    if not url.startswith(("http://", "https://")):
        message = f"{wire.ENV_HUB} is {url!r}: give a URL, as in http://job-0.job:{wire.DEFAULT_PORT}"
        raise SettingsError(message)
    return url.rstrip("/")


def candidates(template: str, pods: int, pod: int | None) -> tuple[str, ...]:
    """Return every pod's URL; none where there is one pod alone: it is the hub."""
    hub(template, 1)  # raises where it is no URL
    if pod is None or pod >= pods:
        message = (
            f"{wire.ENV_POD} is {pod}: with {ENV_PODS}={pods}, give this pod's index, from 0 to {pods - 1}"
        )
        raise SettingsError(message)
    urls = tuple(template.replace(POD, str(each)).rstrip("/") for each in range(pods))
    return urls if pods > 1 else ()
