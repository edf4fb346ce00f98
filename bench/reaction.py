"""
From the moment that a NaN is in a rank to `Held` in the TrainingJob's status, on a real cluster.

Needs a cluster with Stepwarden on it: by default the one that `make test-cluster` leaves running,
else KUBECONFIG. Two pods train; every 40 steps a gradient of rank 1 becomes NaN, the job is held,
and a watch on the TrainingJob sees it. The step's own time is the clock's zero: all on one machine.

    python bench reaction [--times 20]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))

NAME = "reaction"
ONCE, OFTEN = "step == bad_step and rank == bad_rank", "step % 40 == 39 and rank == bad_rank"
BACKWARD = "    out.pow(2).mean().backward()"
SAYS = f"    if {OFTEN}:\n        print(f'bad {{time.time()}}', flush=True)\n"


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main(argv: list[str]) -> None:
    """Run the benchmark."""
    from support.kube import Kube, harness, until  # noqa: PLC0415 - found by the path above
    from support.trainers import LOOP, script_job  # noqa: PLC0415

    parser = argparse.ArgumentParser("bench reaction", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args(argv)
    kube = Kube(harness("up"), f"{harness('build')}:{Path(sys.executable).parent}", "default")
    source = LOOP.replace(ONCE, OFTEN).replace(BACKWARD, SAYS + BACKWARD)
    job, script = script_job(NAME, source, nodes=2)
    kube.tries("delete", "tj", NAME)
    kube.apply(job, script)
    try:
        waits = [one(kube, until, number) for number in range(options.times)]
    finally:
        kube("delete", "tj", NAME)
    print(f"NaN to Held, {len(waits)} times: median {statistics.median(waits):.2f} s, "
          f"95th percentile {percentile(waits, 0.95):.2f} s, longest {max(waits):.2f} s")  # fmt: skip


def one(kube, until, number: int) -> float:  # noqa: ANN001 - the tests' own helpers have no types
    """Wait for one hold, take its time, and let the job go on."""
    argv = ["kubectl", f"--namespace={kube.namespace}", "get", "tj", NAME, "-o", "json", "--watch"]
    with subprocess.Popen(argv, env=kube.env, stdout=subprocess.PIPE, text=True) as watch:  # noqa: S603 - kubectl
        decoder, text = json.JSONDecoder(), ""
        while True:
            text += watch.stdout.readline() if watch.stdout else ""
            try:
                found, end = decoder.raw_decode(text.lstrip())
            except ValueError:
                continue
            text = text.lstrip()[end:]
            if found.get("status", {}).get("phase") == "Held":
                seen = time.time()
                break
        watch.terminate()
    log = kube("logs", kube.pod_of(NAME, 1), "-c", "trainer")
    began = [float(line.split()[1]) for line in log.splitlines() if line.startswith("bad ")]
    kube.plugin("resume", NAME)
    until("it goes on", lambda: kube.row(NAME)["STATE"] == "Running")
    if len(began) != number + 1:
        message = f"hold {number + 1} came after {len(began)} bad steps"
        raise RuntimeError(message)
    return seen - began[-1]
