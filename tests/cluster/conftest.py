"""A cluster with Stepwarden on it, once for all workers; a namespace for each test."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from support.kube import CommandError, Kube, harness, until
from support.trainers import ROOT

SYSTEM = "stepwarden-system"
IMAGE = "stepwarden.test/stepwarden"
SOURCES = ("Dockerfile", "requirements-image.lock", "pyproject.toml", "operator", "sidecar")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(900))  # longer than the deadlines within, which say more


@contextlib.contextmanager
def locked(path, how=fcntl.LOCK_EX):
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory, testrun_uid):
    """A folder that the workers of this run have in common."""
    folder = tmp_path_factory.getbasetemp().parent / f"stepwarden-{testrun_uid}"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def cluster(shared):
    """The cluster, with the chart installed by helm as the README says."""
    try:
        harness("preflight")
    except CommandError as error:
        pytest.skip(f"no cluster here: {error}")
    with locked(shared / "install.lock"):
        theirs = os.environ.get("STEPWARDEN_TEST_KUBECONFIG")  # with the kubectl and helm that they have
        path = f"{os.environ['PATH'] if theirs else harness('build')}:{Path(sys.executable).parent}"
        kube = Kube(harness("up"), path, SYSTEM)
        if not (shared / "installed").exists():
            install(kube)
            (shared / "installed").touch()
    return kube


def install(kube):
    """Build the image, and install the chart; on a cluster that has it, bring it up to date."""
    tag, chart = image_tag(), ROOT / "charts" / "stepwarden"
    harness("image", "--once", f"{IMAGE}:{tag}", str(ROOT / "Dockerfile"))
    values = ("--set", f"image.repository={IMAGE},image.tag={tag}")
    where = ("-n", SYSTEM, "--create-namespace", "--wait", "--timeout", "90s")
    if "stepwarden" in kube.helm("list", "-n", SYSTEM, "-q").split():
        kube(
            "apply", "--server-side", "--force-conflicts", "-f", str(chart / "crds")
        )  # helm leaves CRDs alone
        kube.helm("upgrade", "stepwarden", str(chart), *where, *values)
    else:
        kube.helm("install", "stepwarden", str(chart), *where, *values)


def image_tag():
    """Name the image by all that goes into it."""
    digest = hashlib.sha256()
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


@pytest.fixture(autouse=True)
def undisturbed(shared, request):
    """
    Keeps tests that take the operator away apart from those that need it.

    Whoever wants to be alone holds the turnstile while waiting, so that the others don't starve it.
    """
    alone = request.node.get_closest_marker("alone") is not None
    with contextlib.ExitStack() as stack:
        with locked(shared / "turnstile.lock"):
            how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
            stack.enter_context(locked(shared / "operator.lock", how))
        yield


@pytest.fixture
def kube(cluster, request):
    """kubectl in a namespace of the test's own."""
    word = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_"))[:40].strip("-")
    namespace = f"{word}-{os.urandom(3).hex()}"
    cluster("create", "namespace", namespace)
    mine = cluster.at(namespace)
    until("the default ServiceAccount", lambda: mine.get("serviceaccount", "default"), 30)
    yield mine
    mine("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def folder():
    """A folder of the node that outlives pods, where this machine is the node."""
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        pytest.skip("a folder that outlives the pods needs this machine to be the node")
    made = Path(tempfile.mkdtemp(prefix="stepwarden-checkpoints-"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made, ignore_errors=True)
