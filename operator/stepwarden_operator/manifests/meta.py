"""What all children have in common: their names, labels and owner."""

from typing import Any

from stepwarden_operator.names import API_VERSION, JOB_LABEL, KIND, MANAGER
from stepwarden_operator.training_job import TrainingJob


def metadata(job: TrainingJob, name: str) -> dict[str, Any]:
    """Name a child; the garbage collector deletes it after its owner, with no operator running."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": labels(job),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": job.name,
                "uid": job.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            },
        ],
    }


def labels(job: TrainingJob) -> dict[str, str]:
    """Return the labels by which a job's objects are found."""
    return {JOB_LABEL: job.name, "app.kubernetes.io/managed-by": MANAGER}
