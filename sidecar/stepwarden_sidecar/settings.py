"""What a sidecar is told by its environment. Reads no file, opens nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepwarden import wire

ENV_BIND = "STEPWARDEN_BIND"  # the address to listen at
ENV_JOB = "STEPWARDEN_JOB"  # name of the TrainingJob, for the metrics' labels
ENV_NAMESPACE = "STEPWARDEN_NAMESPACE"  # and its namespace

MAX_RANKS = 16_384
MAX_PORT = 65_535
MAX_SOCKET_PATH = 107  # what sockaddr_un holds, less its final zero


class SettingsError(ValueError):
    """An environment that no sidecar can start from, in a sentence that names the variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A sidecar's settings. `hub` is None where this sidecar is it, `ranks` where nobody said how many."""

    directory: Path
    token: str = field(repr=False)
    hub: str | None = None
    pod: int = 0
    ranks: int | None = None
    port: int = wire.DEFAULT_PORT
    bind: str = "0.0.0.0"  # noqa: S104 - the operator and Prometheus call from other machines
    report: Path | None = None
    labels: tuple[tuple[str, str], ...] = ()  # on every metric


def read(environment: Mapping[str, str]) -> Settings:
    """Read the settings. Raises `SettingsError`."""
    directory = Path(required(environment, wire.ENV_DIRECTORY, "the folder that it shares with the ranks"))
    if len(str(directory / wire.SIDECAR_SOCKET).encode()) > MAX_SOCKET_PATH:
        message = f"{wire.ENV_DIRECTORY} is too long for a unix socket: {directory}"
        raise SettingsError(message)
    report = environment.get(wire.ENV_REPORT)
    pod = number(environment, wire.ENV_POD, (0, MAX_RANKS - 1))
    port = number(environment, wire.ENV_PORT, (0, MAX_PORT))
    named = {"training_job": environment.get(ENV_JOB), "namespace": environment.get(ENV_NAMESPACE)}
    return Settings(
        directory=directory,
        token=required(environment, wire.ENV_TOKEN, "the secret that whoever asks it must know"),
        hub=hub(environment.get(wire.ENV_HUB), pod),
        pod=pod or 0,
        ranks=number(environment, wire.ENV_RANKS, (1, MAX_RANKS)),
        port=wire.DEFAULT_PORT if port is None else port,
        bind=environment.get(ENV_BIND) or "0.0.0.0",  # noqa: S104 - as above
        report=Path(report) if report else None,
        labels=tuple((name, value) for name, value in named.items() if value),
    )


def required(environment: Mapping[str, str], name: str, meaning: str) -> str:
    """Return a variable that there is no default for."""
    value = environment.get(name)
    if not value:
        message = f"{name} is not set: {meaning}"
        raise SettingsError(message)
    return value


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
