"""The Secret with the token that the job's sidecars and the operator know each other by."""

import hmac
from typing import Any

from stepwarden_operator.manifests.meta import metadata
from stepwarden_operator.names import TOKEN_KEY, secret_name
from stepwarden_operator.training_job import TrainingJob


def token(job: TrainingJob, key: bytes) -> str:
    """Return a job's token: made of the operator's key and the job's uid, so that it's never read back."""
    return hmac.new(key, job.uid.encode(), "sha256").hexdigest()


def secret(job: TrainingJob, key: bytes) -> dict[str, Any]:
    """Build the Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(job, secret_name(job.name)),
        "type": "Opaque",
        "stringData": {TOKEN_KEY: token(job, key)},
    }
