"""What a run needs to be installed, checked without importing it."""

from importlib import metadata
from importlib.util import find_spec

from stepwarden.cli.failure import UsageError

NEEDED = ("aiohttp", "jinja2", "prometheus_client", "tabulate", "yaml")
OLDEST_TORCH = (2, 4)


def check() -> None:
    """Raise `UsageError` where something is missing. The ranks run by this same Python."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        message = f"{', '.join(missing)} missing: pip install 'stepwarden[run]'"
        raise UsageError(message)
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = None
    if complaint := complain(torch):
        raise UsageError(complaint)


def complain(version: str | None) -> str | None:
    """Say what is wrong with a version of torch; None: nothing."""
    if version is None:
        return "torch is missing in this Python: pip install torch (any version from 2.4 on)"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST_TORCH:
        return f"torch {version} is too old: pip install 'torch>=2.4'"
    return None
