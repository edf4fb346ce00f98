"""What things are called in the cluster. One place, so that a builder and a reader can't differ."""

GROUP = "stepwarden.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
PLURAL = "trainingjobs"
KIND = "TrainingJob"

JOB_LABEL = f"{GROUP}/job"  # on every child: the TrainingJob's name
ACKNOWLEDGE = f"{GROUP}/acknowledge"  # annotation: "<step>", "<step>,skip" or "<step>,apply"
RESTARTS_ANNOTATION = f"{GROUP}/restarts"  # on the Job: how often the TrainingJob was started anew before it
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"

TRAINER = "trainer"
AGENT_CONTAINER = "stepwarden-agent"
SIDECAR_CONTAINER = "stepwarden-sidecar"
AGENT_DIRECTORY = "/opt/stepwarden"
RUN_DIRECTORY = "/run/stepwarden"
AGENT_VOLUME = "stepwarden-agent"
RUN_VOLUME = "stepwarden-run"
METRICS_PORT = "metrics"
RENDEZVOUS_PORT = 29500
TOKEN_VOLUME = "stepwarden-token"  # noqa: S105 - a volume's name, not a token
TOKEN_DIRECTORY = "/etc/stepwarden"  # noqa: S105 - where it is mounted, in the sidecar alone
TOKEN_KEY = "token"  # noqa: S105 - the key's name in the Secret, not a token

MANAGER = "stepwarden-operator"


def secret_name(job: str) -> str:
    """Name of the Secret that holds a job's token."""
    return f"{job}-stepwarden"
