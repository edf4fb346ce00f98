"""Four ranks in two process groups: what comparing them finds, and what it lets be."""

import json
from pathlib import Path

SCRIPT = Path(__file__).parent / "scripts" / "replicas.py"
ONLY = ("GradientNotSynchronized", "ReplicasDiverged", "DataRepeated", "GradientScaleWrong")
ALL = (0, 1, 2, 3)


def test_replicas_are_compared_over_all_ranks(stepwarden):
    report = stepwarden.folder / "report"
    done = stepwarden(
        *("run", "--nnodes", "2", "--nproc", "2", "--on-anomaly", "observe", "--report", report, "--", SCRIPT)
    )
    assert done.returncode == 0, done.stderr
    names = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines() if "training" in line}
    assert len(names) == 22
    found = {}
    for line in (report / "findings.jsonl").read_text().splitlines():
        said = json.loads(line)
        if said["kind"] in ONLY:
            name = names[str(said["evidence"]["optimizer"] % 1000)]
            found.setdefault(name, []).append((said["kind"], said["severity"], tuple(said["ranks"])))
    first = {name: each[0] for name, each in found.items()}
    wanted = {
        "never_synchronised": ("GradientNotSynchronized", "critical", ALL),
        "bypass": ("GradientNotSynchronized", "critical", ALL),
        "unfrozen": ("GradientNotSynchronized", "critical", ALL),
        "changed_after": ("GradientNotSynchronized", "critical", ALL),
        "rank_0_alone": ("ReplicasDiverged", "critical", (0,)),
        "rates": ("ReplicasDiverged", "critical", (1,)),
        "summed": ("GradientScaleWrong", "warning", ALL),
        "averaged_twice": ("GradientScaleWrong", "warning", ALL),
        "same_seed": ("DataRepeated", "warning", ALL),
        "same_loader": ("DataRepeated", "warning", ALL),
        "loss_not_wrapped": ("GradientNotSynchronized", "warning", ALL),
        "by_hand_then_not": ("GradientNotSynchronized", "warning", ALL),
    }
    assert {name: each[:2] for name, each in first.items()} == {
        name: each[:2] for name, each in wanted.items()
    }
    for name, (_, _, ranks) in first.items():  # on a busy machine a rank's word may come too late
        assert set(ranks) <= set(wanted[name][2]), name
        assert len(ranks) >= min(2, len(wanted[name][2])), name
