"""A CA, a certificate for each user of the API, and their kubeconfigs."""

import base64
import json
import shutil
import tempfile
from pathlib import Path

from settings import API_PORT, API_SERVICE_IP, NODE_NAME, Paths
from shell import run

SUBJECTS = {
    "apiserver": "/CN=kube-apiserver",
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
    "node": f"/O=system:nodes/CN=system:node:{NODE_NAME}",
}
SERVICE = "kubernetes.default.svc.cluster.local"
DNS_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", SERVICE)
OPENSSL = """\
[req]
distinguished_name=dn
[dn]
[ca]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign,digitalSignature
subjectKeyIdentifier=hash
[leaf]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
[server]
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
subjectAltName={names}
"""
DAYS = "3650"


def make_pki(at: Paths, host: str) -> None:
    """Make them all once; the folder appears whole or not at all."""
    pki = at.run / "pki"
    if pki.exists():
        return
    draft = Path(tempfile.mkdtemp(dir=at.run))
    addresses = sorted({"127.0.0.1", API_SERVICE_IP, host})
    names = [*(f"IP:{ip}" for ip in addresses), *(f"DNS:{name}" for name in DNS_NAMES)]
    (draft / "openssl.cnf").write_text(OPENSSL.format(names=",".join(names)))
    ca = ["-x509", "-extensions", "ca", "-days", DAYS, "-out", str(draft / "ca.crt")]
    request(draft, "ca", "/CN=test-cluster-ca", ca)
    for user, subject in SUBJECTS.items():
        certify(draft, user, subject)
        if user != "apiserver":
            write_kubeconfig(at, user, host, draft)
    run(["openssl", "genrsa", "-out", draft / "service-account.key", "2048"])
    shutil.move(draft, pki)


def request(pki: Path, name: str, subject: str, extra: list[str]) -> None:
    """Make a key and a request for it, or with `extra` what else openssl is asked for."""
    key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        f"{pki}/{name}.key",
    ]
    run(["openssl", "req", "-config", f"{pki}/openssl.cnf", *key, "-subj", subject, *extra])


def certify(pki: Path, name: str, subject: str) -> None:
    """Make a user's key, and its certificate signed by the CA."""
    request(pki, name, subject, ["-out", f"{pki}/{name}.csr"])
    ca = ["-CA", f"{pki}/ca.crt", "-CAkey", f"{pki}/ca.key", "-CAcreateserial", "-days", DAYS]
    kind = "server" if name == "apiserver" else "leaf"
    extensions = ["-extfile", f"{pki}/openssl.cnf", "-extensions", kind]
    run(
        ["openssl", "x509", "-req", "-in", f"{pki}/{name}.csr", *ca, *extensions, "-out", f"{pki}/{name}.crt"]
    )


def write_kubeconfig(at: Paths, user: str, host: str, pki: Path) -> None:
    """Write it as JSON, which is YAML, with the certificates inlined so that it can be copied about."""
    name = "test-cluster"
    server = {"server": f"https://{host}:{API_PORT}", "certificate-authority-data": inline(pki / "ca.crt")}
    proof = {
        "client-certificate-data": inline(pki / f"{user}.crt"),
        "client-key-data": inline(pki / f"{user}.key"),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": user, "user": proof}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    path = at.run / f"{user}.kubeconfig"
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)


def inline(path: Path) -> str:
    """Put a file as kubeconfigs hold it."""
    return base64.b64encode(path.read_bytes()).decode()
