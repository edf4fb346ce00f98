"""The variables of the trainer's container: torchrun's, the agent's, then the user's."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stepwarden.policy import to_json
from stepwarden.reproducibility import variables
from stepwarden.wire import (
    ENV_CHECKPOINTS,
    ENV_CONTAINMENT,
    ENV_DIRECTORY,
    ENV_GRACE,
    ENV_POLICY,
    ENV_PROBES,
    ENV_SAVE_FILE,
    ENV_SAVE_SIGNAL,
)
from stepwarden_operator.names import AGENT_DIRECTORY, INDEX_ANNOTATION, RENDEZVOUS_PORT, RUN_DIRECTORY
from stepwarden_operator.training_job import TrainingJob

PYTHONPATH = "PYTHONPATH"
USERS_PYTHONPATH = "STEPWARDEN_USERS_PYTHONPATH"


def trainer_env(job: TrainingJob, users: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Build the variables. Ours stand first, so that the user's may refer to them as $(NAME)."""
    leader = f"{job.name}-0.{job.name}"
    ours = {
        ENV_DIRECTORY: RUN_DIRECTORY,
        ENV_POLICY: to_json(job.rules),
        ENV_PROBES: json.dumps(job.probes),
        ENV_CONTAINMENT: job.containment,
        ENV_GRACE: str(job.failure_grace),
        **variables(job.reproducibility),
        **saving(job),
        "PET_NNODES": str(job.num_nodes),
        "PET_NPROC_PER_NODE": str(job.ranks_per_node),
        "PET_RDZV_BACKEND": "static",
        "PET_MASTER_ADDR": leader,
        "PET_MASTER_PORT": str(RENDEZVOUS_PORT),
        "MASTER_ADDR": leader,
        "MASTER_PORT": str(RENDEZVOUS_PORT),
    }
    return [
        *({"name": name, "value": value} for name, value in ours.items()),
        {"name": "PET_NODE_RANK", "valueFrom": completion_index()},
        *python_path(users),
        *(dict(variable) for variable in users if variable["name"] != PYTHONPATH),
    ]


def saving(job: TrainingJob) -> dict[str, str]:
    """Say where checkpoints are, and how the training is asked for one."""
    if job.checkpoint is None:
        return {}
    told = {ENV_CHECKPOINTS: job.checkpoint.directory, ENV_SAVE_FILE: f"{RUN_DIRECTORY}/save"}
    return told | ({ENV_SAVE_SIGNAL: job.checkpoint.signal} if job.checkpoint.signal else {})


def completion_index() -> dict[str, Any]:
    """Return where a pod reads which one of its job's pods it is."""
    return {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}


def python_path(users: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put the agent before the user's own PYTHONPATH, wherever the value of that comes from."""
    theirs = [variable for variable in users if variable["name"] == PYTHONPATH]
    if not theirs:
        return [{"name": PYTHONPATH, "value": AGENT_DIRECTORY}]
    return [
        {**theirs[-1], "name": USERS_PYTHONPATH},
        {"name": PYTHONPATH, "value": f"{AGENT_DIRECTORY}:$({USERS_PYTHONPATH})"},
    ]
