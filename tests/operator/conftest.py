import asyncio
import json
import socket
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import kmock as k
import kopf
import pytest

import stepwarden_operator.handlers  # noqa: F401 - registers them

READ = {"verbs": {"get", "list", "watch"}}


def kind(name, *, namespaced=True, **more):
    verbs = {"verbs": {"get", "list", "watch", "create", "patch", "delete"}} if namespaced else READ
    return {"kind": name, "namespaced": namespaced, **verbs, **more}


CLUSTER = {  # kopf waits, silently and for ever, for the first two
    "v1/namespaces": kind("Namespace", namespaced=False),
    "apiextensions.k8s.io/v1/customresourcedefinitions": kind("CustomResourceDefinition", namespaced=False),
    "stepwarden.dev/v1alpha1/trainingjobs": kind("TrainingJob", subresources={"status"}),
    "batch/v1/jobs": kind("Job"),
    "v1/pods": kind("Pod"),
    "v1/services": kind("Service"),
    "v1/secrets": kind("Secret"),
    "v1/events": kind("Event"),
}


@pytest.fixture
def cluster():
    return CLUSTER


class Cluster(k.KubernetesEmulator):
    """What kmock leaves to the test: server-side apply that creates, uids, times and versions."""

    async def _handle(self, request):
        if request.resource is not None and isinstance(request.data, dict):
            self.number = getattr(self, "number", 1) + 1
            meta = request.data.setdefault("metadata", {})
            meta["resourceVersion"] = str(self.number)
            key = (request.resource, request.namespace, request.name)
            applies = request.headers.get("Content-Type") == "application/apply-patch+yaml"
            creates = applies and key not in self._objects
            if creates or request.action == k.action.CREATE:
                meta |= {"uid": f"uid-{self.number}", "creationTimestamp": now()}
            if creates:
                self._objects[key] = request.data
        return await super()._handle(request)


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pytest_collection_modifyitems(items):
    for item in items:
        if "kmock" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kmock(cls=Cluster))


@pytest.fixture
def running_operator(kmock, tmp_path, monkeypatch):
    """The real operator, against a Kubernetes API that kmock keeps in memory."""
    kmock.resources.update(CLUSTER)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, str(kmock.url))))
    monkeypatch.setenv("STEPWARDEN_IMAGE", "stepwarden:test")
    monkeypatch.setenv("STEPWARDEN_KEY", "key")
    monkeypatch.setenv("STEPWARDEN_OPERATOR_PORT", str(free_port()))

    @asynccontextmanager
    async def run():
        stop, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                clusterwide=True, standalone=True, stop_flag=stop, ready_flag=ready, memo=kopf.Memo()
            )
        )
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(task, timeout=10)

    return run


def kubeconfig(folder, server):
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
