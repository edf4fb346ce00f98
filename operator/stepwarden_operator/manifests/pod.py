"""The user's pod template, with the agent and the sidecar added."""

import copy
from typing import Any

from stepwarden.wire import DEFAULT_PORT
from stepwarden_operator.manifests.env import trainer_env
from stepwarden_operator.manifests.meta import labels
from stepwarden_operator.manifests.sidecar import agent_container, sidecar_container
from stepwarden_operator.names import (
    AGENT_DIRECTORY,
    AGENT_VOLUME,
    RUN_DIRECTORY,
    RUN_VOLUME,
    TOKEN_VOLUME,
    secret_name,
)
from stepwarden_operator.settings import Settings
from stepwarden_operator.training_job import TrainingJob


def pod_template(job: TrainingJob, settings: Settings) -> dict[str, Any]:
    """Build the template. What the user gave stays, but for what makes ranks find each other."""
    template: dict[str, Any] = copy.deepcopy(dict(job.template))
    meta, spec = template.get("metadata") or {}, template["spec"]
    injected = [agent_container(settings), sidecar_container(job, settings)]
    return {
        "metadata": {
            **meta,
            "labels": (meta.get("labels") or {}) | labels(job),
            "annotations": (meta.get("annotations") or {}) | scrape(),
        },
        "spec": spec
        | {
            "subdomain": job.name,
            "restartPolicy": "Never",
            "initContainers": injected + (spec.get("initContainers") or []),
            "containers": [with_agent(job, container) for container in spec["containers"]],
            "volumes": (spec.get("volumes") or []) + volumes(job),
        },
    }


def with_agent(job: TrainingJob, container: dict[str, Any]) -> dict[str, Any]:
    """Add what the ranks need to the trainer's container; leave the others alone."""
    if container["name"] != job.trainer:
        return container
    mounts = [
        {"name": AGENT_VOLUME, "mountPath": AGENT_DIRECTORY, "readOnly": True},
        {"name": RUN_VOLUME, "mountPath": RUN_DIRECTORY},
    ]
    return {"terminationMessagePolicy": "FallbackToLogsOnError"} | {
        **container,
        "env": trainer_env(job, container.get("env") or []),
        "volumeMounts": (container.get("volumeMounts") or []) + mounts,
    }


def scrape() -> dict[str, str]:
    """Return the annotations that a Prometheus without the PodMonitor kind finds pods by."""
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(DEFAULT_PORT),
        "prometheus.io/path": "/metrics",
    }


def volumes(job: TrainingJob) -> list[dict[str, Any]]:
    """Return the folders that the pod's processes share (the agent's code, the sockets), and the token's."""
    shared = [{"name": name, "emptyDir": {}} for name in (AGENT_VOLUME, RUN_VOLUME)]
    return [*shared, {"name": TOKEN_VOLUME, "secret": {"secretName": secret_name(job.name)}}]
