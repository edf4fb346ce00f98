"""Wiring: what kopf calls. A handler files what it hears; the keeper does the rest."""

import os
from typing import Any

import kopf
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from stepwarden_operator.api import Api
from stepwarden_operator.hub import Hub
from stepwarden_operator.keeper import Keeper
from stepwarden_operator.metrics import REGISTRY, Jobs
from stepwarden_operator.names import GROUP, JOB_LABEL, PLURAL, VERSION
from stepwarden_operator.server import serve
from stepwarden_operator.settings import read_settings


@kopf.on.login()
def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in as the pod's service account, or outside of a cluster by the kubeconfig."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    """Read what is there, before the first event comes."""
    settings.posting.enabled = False  # our Events tell of jobs, not of handlers
    settings.watching.label_selectors["batch", "v1", "jobs"] = JOB_LABEL
    settings.watching.label_selectors["", "v1", "pods"] = JOB_LABEL
    ours = read_settings()
    keeper = memo.keeper = Keeper(Api(await connect()), Hub(), ours)
    jobs = memo.jobs = Jobs(keeper.view.phases)
    REGISTRY.register(jobs)
    memo.server = await serve(REGISTRY, ours.port)
    await keeper.load()


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    """Let go of what `start` took."""
    if keeper := memo.get("keeper"):
        await keeper.close()
        await keeper.hub.close()
        await keeper.api.close()
        REGISTRY.unregister(memo.jobs)
    if server := memo.get("server"):
        await server.cleanup()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def training_job(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002 - kopf's
    """File a TrainingJob, and have it kept."""
    memo.keeper.watch(memo.keeper.view.training_job(type, plain(body)))


@kopf.on.event("batch", "v1", "jobs")
async def job(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002 - kopf's
    """File a Job of ours."""
    memo.keeper.view.job(type, plain(body))


@kopf.on.event("", "v1", "pods")
async def pod(type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002 - kopf's
    """File a pod of ours."""
    memo.keeper.view.pod(type, plain(body))


def plain(body: kopf.Body) -> dict[str, Any]:
    """Take the object out of kopf's view of it."""
    return dict(body)


async def connect() -> ApiClient:
    """Make the client of the API, as `login` does."""
    configuration = Configuration()
    # Looking for proxies and a .netrc at every request costs a third of the operator's time.
    configuration.client_session_kwargs = {"trust_env": False}
    try:
        config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=os.environ.get("KUBECONFIG"), client_configuration=configuration
        )
    return ApiClient(configuration)
