"""The two containers that are ours: one brings the agent, one stays beside the trainer."""

import json
from typing import Any

from stepwarden.wire import (
    DEFAULT_PORT,
    ENV_DIRECTORY,
    ENV_HUB,
    ENV_POD,
    ENV_PORT,
    ENV_PROBES,
    ENV_RANKS,
)
from stepwarden_operator.manifests.env import completion_index
from stepwarden_operator.names import (
    AGENT_CONTAINER,
    AGENT_DIRECTORY,
    AGENT_VOLUME,
    METRICS_PORT,
    RUN_DIRECTORY,
    RUN_VOLUME,
    SIDECAR_CONTAINER,
    TOKEN_DIRECTORY,
    TOKEN_KEY,
    TOKEN_VOLUME,
)
from stepwarden_operator.settings import Settings
from stepwarden_operator.training_job import TrainingJob

SECURITY = {  # what Pod Security's "restricted" asks for, and a root file system that stays as it is
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def agent_container(settings: Settings) -> dict[str, Any]:
    """Build the init container that copies the agent to where the trainer's Python looks first."""
    return common(settings, AGENT_CONTAINER) | {
        "command": ["python", "-m", "stepwarden.inject", AGENT_DIRECTORY],
        "volumeMounts": [{"name": AGENT_VOLUME, "mountPath": AGENT_DIRECTORY}],
    }


def sidecar_container(job: TrainingJob, settings: Settings) -> dict[str, Any]:
    """Build the native sidecar: it starts before the trainer, and never keeps the pod from ending."""
    return common(settings, SIDECAR_CONTAINER) | {
        "command": ["python", "-m", "stepwarden_sidecar"],
        "restartPolicy": "Always",
        "ports": [{"name": METRICS_PORT, "containerPort": DEFAULT_PORT}],
        "env": sidecar_env(job),
        "volumeMounts": [
            {"name": RUN_VOLUME, "mountPath": RUN_DIRECTORY},
            {"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True},
        ],
        "startupProbe": {
            "httpGet": {"path": "/healthz", "port": METRICS_PORT},
            "periodSeconds": 1,
            "failureThreshold": 60,
        },
    }


def sidecar_env(job: TrainingJob) -> list[dict[str, Any]]:
    """Build the sidecar's variables. Each can be the hub of the others: they are told where all are."""
    values = {
        ENV_DIRECTORY: RUN_DIRECTORY,
        ENV_PORT: str(DEFAULT_PORT),
        ENV_HUB: f"http://{job.name}-{{pod}}.{job.name}:{DEFAULT_PORT}",
        "STEPWARDEN_PODS": str(job.num_nodes),
        "STEPWARDEN_TOKEN_FILE": f"{TOKEN_DIRECTORY}/{TOKEN_KEY}",
        ENV_RANKS: str(job.ranks),
        ENV_PROBES: json.dumps(job.probes),
        "STEPWARDEN_JOB": job.name,
        "STEPWARDEN_NAMESPACE": job.namespace,
    }
    return [
        *({"name": name, "value": value} for name, value in values.items()),
        {"name": ENV_POD, "valueFrom": completion_index()},
    ]


def common(settings: Settings, name: str) -> dict[str, Any]:
    """Return what both have in common."""
    return {
        "name": name,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "securityContext": SECURITY,
        "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "256Mi"}},
    }
