"""How each component of the control plane is started."""

from processes import Component
from settings import (
    API_PORT,
    DNS_READY_PORT,
    ETCD_PORTS,
    NODE_IP,
    NODE_NAME,
    POD_CIDR,
    PROXY_HEALTH_PORT,
    SERVICE_CIDR,
    Paths,
)

COREFILE = """\
cluster.local in-addr.arpa {{
  bind {ip}
  errors
  ready {ip}:{port}
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 1
  }}
}}
. {{
  bind {ip}
  errors
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


LOOPBACK = "127.0.0.1"


def etcd(at: Paths, kind: str) -> Component:
    """Start without fsync: nobody needs this cluster after a power cut."""
    client, peer = (f"http://{LOOPBACK}:{port}" for port in ETCD_PORTS[kind])
    argv = [
        f"{at.bin}/etcd",
        f"--data-dir={at.run}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]
    return Component("etcd", argv, tuple((LOOPBACK, port) for port in ETCD_PORTS[kind]))


def apiserver(at: Paths, host: str) -> Component:
    """Listen on the node's address, which pods reach through the `kubernetes` Service, or on loopback."""
    pki, key = at.run / "pki", f"{at.run}/pki/service-account.key"
    kind = "api" if host == LOOPBACK else "node"
    argv = [
        f"{at.bin}/kube-apiserver",
        f"--etcd-servers=http://{LOOPBACK}:{ETCD_PORTS[kind][0]}",
        f"--bind-address={host}",
        f"--secure-port={API_PORT}",
        "--endpoint-reconciler-type=none" if kind == "api" else f"--advertise-address={host}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--cert-dir={at.run}/apiserver",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={pki}/admin.crt",
        f"--kubelet-client-key={pki}/admin.key",
    ]
    return Component("kube-apiserver", argv, ((host, API_PORT),))


def controller_manager(at: Paths) -> Component:
    """Give each controller its own ServiceAccount, as real clusters do."""
    pki = at.run / "pki"
    argv = [
        f"{at.bin}/kube-controller-manager",
        f"--kubeconfig={at.run}/controller-manager.kubeconfig",
        f"--service-account-private-key-file={pki}/service-account.key",
        f"--root-ca-file={pki}/ca.crt",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
    ]
    return Component("kube-controller-manager", argv)


def scheduler(at: Paths) -> Component:
    """Start it alone, so without an election."""
    argv = [
        f"{at.bin}/kube-scheduler",
        f"--kubeconfig={at.run}/scheduler.kubeconfig",
        "--leader-elect=false",
        "--secure-port=0",
    ]
    return Component("kube-scheduler", argv)


def kube_proxy(at: Paths) -> Component:
    """Leave the kernel's conntrack table as it is: changing it takes more than root here."""
    argv = [
        f"{at.bin}/kube-proxy",
        f"--kubeconfig={at.run}/proxy.kubeconfig",
        f"--hostname-override={NODE_NAME}",
        f"--cluster-cidr={POD_CIDR}",
        "--proxy-mode=iptables",
        "--conntrack-max-per-core=0",
        f"--healthz-bind-address=127.0.0.1:{PROXY_HEALTH_PORT}",
        "--metrics-bind-address=127.0.0.1:10249",
    ]
    return Component("kube-proxy", argv, (("127.0.0.1", PROXY_HEALTH_PORT), ("127.0.0.1", 10249)))


def coredns(at: Paths) -> Component:
    """Serve cluster names only: any other name does not exist, and says so at once."""
    corefile = at.run / "Corefile"
    corefile.write_text(COREFILE.format(ip=NODE_IP, port=DNS_READY_PORT, kubeconfig=at.kubeconfig))
    argv = [f"{at.bin}/coredns", "-conf", str(corefile)]
    return Component("coredns", argv, ((NODE_IP, 53), (NODE_IP, DNS_READY_PORT)))
