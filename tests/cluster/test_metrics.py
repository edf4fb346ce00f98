"""A real Prometheus finds the pods by Kubernetes discovery, and holds every metric that the docs name."""

import contextlib
import json
import os
import re
import socket
import subprocess
import urllib.request

import pytest
from support.kube import harness, until
from support.trainers import ROOT, finish, loop_job

CONFIG = """\
global: {{scrape_interval: 1s}}
scrape_configs:
- job_name: pods
  kubernetes_sd_configs:
  - role: pod
    api_server: {server}
    authorization: {{credentials_file: {folder}/token}}
    tls_config: {{ca_file: {folder}/ca.crt}}
  relabel_configs:
  - {{source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scrape], action: keep, regex: "true"}}
  - source_labels: [__meta_kubernetes_pod_ip, __meta_kubernetes_pod_annotation_prometheus_io_port]
    separator: ":"
    target_label: __address__
  - {{source_labels: [__meta_kubernetes_pod_name], target_label: pod}}
"""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # none of the environment's proxies


@pytest.fixture
def prometheus(kube, tmp_path):
    """A Prometheus on this machine, allowed to list pods and nothing else; a function that asks it."""
    if os.environ.get("STEPWARDEN_TEST_KUBECONFIG"):
        pytest.skip("Prometheus runs on this machine, from which only our own cluster's pods can be reached")
    account, role = "prometheus", f"prometheus-{kube.namespace}"
    kube("create", "serviceaccount", account)
    kube("create", "clusterrole", role, "--verb=get,list,watch", "--resource=pods")
    subject = f"--serviceaccount={kube.namespace}:{account}"
    kube("create", "clusterrolebinding", role, f"--clusterrole={role}", subject)
    (tmp_path / "token").write_text(kube("create", "token", account, "--duration=1h"))
    roots = kube.get("configmap", "kube-root-ca.crt")["data"]["ca.crt"]
    (tmp_path / "ca.crt").write_text(roots)
    server = json.loads(kube("config", "view", "-o", "json"))["clusters"][0]["cluster"]["server"]
    (tmp_path / "prometheus.yml").write_text(CONFIG.format(server=server, folder=tmp_path))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    argv = [
        harness("prometheus"),
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address={address}",
    ]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            yield lambda path: ask(f"http://{address}/api/v1/{path}")
        finally:
            process.kill()
            kube("delete", "clusterrole,clusterrolebinding", role)


def ask(url):
    with contextlib.suppress(OSError), DIRECT.open(url, timeout=3) as answer:
        return json.load(answer)["data"]
    return []


def documented():
    """List the metrics that docs/metrics.md names, a histogram by its count."""
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(stepwarden_\w+)` \| (\w+) \|", text, re.MULTILINE)
    return {f"{name}_count" if kind == "histogram" else name for name, kind in rows}


def test_prometheus_holds_every_metric_of_the_docs(kube, prometheus):
    kube.apply(*loop_job("loop", nodes=2, env={"BAD_STEP": 5}, onFinding=[{"action": "Skip"}]))
    kube.until_step("loop", 8)
    wanted = documented()
    assert len(wanted) > 10

    def missing():
        return wanted - set(prometheus("label/__name__/values"))

    until("every metric", lambda: not missing(), 120, lambda: f"missing: {sorted(missing())}")
    found = prometheus("query?query=stepwarden_step")["result"]
    steps = [one["metric"] for one in found if one["metric"]["namespace"] == kube.namespace]
    mine = {(step["pod"], step["rank"]) for step in steps}
    pods = sorted(kube.pods("loop"))
    assert mine == {(pods[0], "0"), (pods[1], "1")}
    finish(kube, "loop")
    kube.until_state("loop", "Complete")
