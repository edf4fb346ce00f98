"""The headless Service that gives each pod its name, NAME-INDEX.NAME."""

from typing import Any

from stepwarden.wire import DEFAULT_PORT
from stepwarden_operator.manifests.meta import metadata
from stepwarden_operator.names import JOB_LABEL, METRICS_PORT, RENDEZVOUS_PORT
from stepwarden_operator.training_job import TrainingJob


def service(job: TrainingJob) -> dict[str, Any]:
    """Build the Service. Names resolve before the pods are ready: ranks meet while they start."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(job, job.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_LABEL: job.name},
            "ports": [
                {"name": METRICS_PORT, "port": DEFAULT_PORT},
                {"name": "rendezvous", "port": RENDEZVOUS_PORT},
            ],
        },
    }
