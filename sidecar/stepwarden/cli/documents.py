"""From a file to Kubernetes objects: YAML's own complaints, in one line with the place."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stepwarden.cli.failure import UsageError

Object = Mapping[str, Any]

API_VERSION = "stepwarden.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class Documents:
    """The one TrainingJob of a file, the data of its ConfigMaps by name, and what else is in it."""

    job: Object
    config_maps: Mapping[str, Object]
    ignored: tuple[str, ...]


def load(path: Path) -> Documents:
    """Read a file. Raises `UsageError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"{path}: {error.strerror}"
        raise UsageError(message) from error
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"
        raise UsageError(message) from error
    return split(parse(text))


def parse(text: str) -> list[Any]:
    """Read the documents of a YAML text, without the empty ones."""
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        message = f"{line}not YAML: {error.problem or error.context}"
        raise UsageError(message) from error
    except yaml.YAMLError as error:
        message = f"not YAML: {error}".replace("\n", " ")
        raise UsageError(message) from error


def split(documents: list[Any]) -> Documents:
    """Sort the documents by what they are."""
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            message = f"document {number} is no Kubernetes object: it has no kind"
            raise UsageError(message)
    jobs = [document for document in documents if document["kind"] == "TrainingJob"]
    maps = [document for document in documents if document["kind"] == "ConfigMap"]
    others = [
        document["kind"] for document in documents if document["kind"] not in {"TrainingJob", "ConfigMap"}
    ]
    return Documents(only(jobs, others), {name_of(document): document for document in maps}, tuple(others))


def only(jobs: list[Object], others: list[str]) -> Object:
    """Return the one TrainingJob."""
    if not jobs:
        held = f": it holds {', '.join(others)}" if others else ""
        message = f"no TrainingJob in it{held}"
        raise UsageError(message)
    if len(jobs) > 1:
        message = f"{len(jobs)} TrainingJobs in it: a local run takes one"
        raise UsageError(message)
    if (version := jobs[0].get("apiVersion")) != API_VERSION:
        message = f"apiVersion is {version!r}: a TrainingJob has {API_VERSION}"
        raise UsageError(message)
    return jobs[0]


def name_of(document: Object) -> str:
    """Return the name in an object's metadata; empty where it has none."""
    metadata = document.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""
