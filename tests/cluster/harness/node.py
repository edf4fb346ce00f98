"""The node: containerd, which keeps everything below the state directory, and the kubelet."""

import json
from pathlib import Path

from processes import Component
from settings import BRIDGE, CNI_PLUGINS, NETWORK, NODE_IP, NODE_NAME, PAUSE_IMAGE, POD_CIDR, Paths
from shell import run

CONTAINERD = """\
version = 2
root = "{run}/containerd"
state = "{run}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true  # a lower score than this process's own takes CAP_SYS_RESOURCE
  netns_mounts_under_state_dir = true
  sandbox_image = "{pause}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{run}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{run}/runc"
"""


def containerd(at: Paths) -> Component:
    """Start it with the distribution's CNI plugins on our bridge."""
    (at.run / "cni").mkdir(exist_ok=True)
    network = {
        "cniVersion": "0.4.0",
        "name": NETWORK,
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": f"{at.run}/ipam",
                    "ranges": [[{"subnet": POD_CIDR}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }
    (at.run / "cni" / "10-bridge.conflist").write_text(json.dumps(network))
    config = at.run / "containerd.toml"
    config.write_text(CONTAINERD.format(run=at.run, socket=at.socket, pause=PAUSE_IMAGE, cni=CNI_PLUGINS))
    return Component("containerd", ["containerd", "--config", str(config)])


def kubelet(at: Paths, max_pods: int) -> Component:
    """Start it for cgroup v1 as well, with swap, and without evictions that a full disk would bring."""
    config = at.run / "kubelet.json"
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_IP,
        "port": 10250,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "maxPods": max_pods,
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{at.socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{at.run}/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [NODE_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "podLogsDir": f"{at.run}/pod-logs",
        "volumePluginDir": f"{at.run}/volume-plugins",
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
    }
    config.write_text(json.dumps(settings, indent=1))
    argv = [
        f"{at.bin}/kubelet",
        f"--config={config}",
        f"--kubeconfig={at.run}/node.kubeconfig",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_IP}",
        f"--root-dir={at.run}/kubelet",
        f"--cert-dir={at.run}/kubelet-pki",
    ]
    return Component("kubelet", argv, ((NODE_IP, 10250),))


def ctr(at: Paths, *args: str | Path, check: bool = True) -> str:
    """Ask containerd, in the kubelet's namespace."""
    return run(["ctr", "-a", at.socket, "-n", "k8s.io", *args], check=check)


def containerd_answers(at: Paths) -> bool:
    """Whether containerd serves."""
    return at.socket.exists() and "Server:" in ctr(at, "version", check=False)
