"""The batch/v1 Job that runs the pods."""

from typing import Any

from stepwarden_operator.manifests.meta import metadata
from stepwarden_operator.manifests.pod import pod_template
from stepwarden_operator.names import RESTARTS_ANNOTATION
from stepwarden_operator.settings import Settings
from stepwarden_operator.training_job import TrainingJob


def job(asked: TrainingJob, settings: Settings, *, suspend: bool, restarts: int = 0) -> dict[str, Any]:
    """
    Build the Job: one attempt, and only the trainer's container decides how it ends.

    A sidecar's exit code must not decide a job, so the failure policy names the container;
    a pod that was evicted or preempted is replaced, and not before it is gone.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(asked, asked.name) | {"annotations": {RESTARTS_ANNOTATION: str(restarts)}},
        "spec": {
            "completionMode": "Indexed",
            "completions": asked.num_nodes,
            "parallelism": asked.num_nodes,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": failure_rules(asked.trainer)},
            "suspend": suspend,
            "template": pod_template(asked, settings),
        },
    }


def failure_rules(trainer: str) -> list[dict[str, Any]]:
    """Tell a disruption, which isn't the job's fault, from a trainer that failed."""
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": trainer, "operator": "NotIn", "values": [0]},
        },
    ]
