"""The node's bridge, and all that pods and kube-proxy leave in the machine's network."""

import re
from pathlib import Path

from settings import BRIDGE, NODE_IP, POD_CIDR
from shell import run

INTERFACE = Path(f"/sys/class/net/{BRIDGE}")


def make_bridge() -> None:
    """Make the pods' bridge. The node's address lives on it: kubelet refuses a loopback address."""
    if not INTERFACE.exists():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
        run(["ip", "address", "add", f"{NODE_IP}/{POD_CIDR.partition('/')[2]}", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])


def remove_network() -> None:
    """Remove the pods' veth pairs, the bridge, and the chains of kube-proxy, the kubelet and portmap."""
    if INTERFACE.exists():
        for port in list((INTERFACE / "brif").iterdir()):
            run(["ip", "link", "del", port.name], check=False)
        run(["ip", "link", "del", BRIDGE])
    for tool in ("iptables", "ip6tables"):
        for table in ("mangle", "filter", "nat"):
            saved = run([f"{tool}-save", "-t", table], check=False)
            if lines := without_chains(table, saved):
                run([f"{tool}-restore", "--noflush"], text="\n".join(lines))


def without_chains(table: str, saved: str) -> list[str]:
    """Put what takes KUBE- and CNI- chains, and the jumps to them, out of a saved table."""
    chains = re.findall(r"^:((?:KUBE|CNI)-\S+)", saved, re.MULTILINE)
    if not chains:
        return []
    own = re.compile(r"-A (?!KUBE-|CNI-).* -j (KUBE|CNI)-")
    jumps = ["-D" + line.removeprefix("-A") for line in saved.splitlines() if own.match(line)]
    flushes, deletions = [f"-F {chain}" for chain in chains], [f"-X {chain}" for chain in chains]
    return [f"*{table}", *jumps, *flushes, *deletions, "COMMIT", ""]
