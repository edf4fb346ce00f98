"""What the chart tells the operator, by environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    The operator's settings.

    `image` is injected into the training pods: our own, so that both sides speak alike.
    `key` makes the jobs' tokens; it is a secret, so it isn't shown.
    """

    image: str
    pull_policy: str = "IfNotPresent"
    port: int = 8080
    key: bytes = field(repr=False)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read them. Raises `SystemExit` with a sentence where one is missing."""
    image, key = environ.get("STEPWARDEN_IMAGE", ""), read_key(environ)
    if not image or not key:
        message = (
            "STEPWARDEN_IMAGE and STEPWARDEN_KEY (or STEPWARDEN_KEY_FILE) must be set: see charts/stepwarden"
        )
        raise SystemExit(message)
    return Settings(
        image=image,
        pull_policy=environ.get("STEPWARDEN_IMAGE_PULL_POLICY", "IfNotPresent"),
        port=int(environ.get("STEPWARDEN_OPERATOR_PORT", "8080")),
        key=key,
    )


def read_key(environ: Mapping[str, str]) -> bytes:
    """Read the key from the file that the chart mounts, or from the variable."""
    if path := environ.get("STEPWARDEN_KEY_FILE"):
        return Path(path).read_bytes().strip()
    return environ.get("STEPWARDEN_KEY", "").encode()
