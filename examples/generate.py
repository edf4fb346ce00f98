"""
Writes the manifests of the examples: what a ConfigMap holds stands beside it as a file of its own.

    python examples/generate.py            # write them
    python examples/generate.py --check    # exit 1 if one is not current
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("train.py", "text.txt")
TRAINING_JOB = """\
# Made by examples/generate.py from train.py and text.txt: edit those.
#   kubectl apply -f examples/nan/job.yaml      on a cluster
#   stepwarden run -f examples/nan/job.yaml     on this machine
apiVersion: stepwarden.dev/v1alpha1
kind: TrainingJob
metadata:
  name: nan-example
spec:
  numNodes: 2
  numProcPerNode: 1
  onFinding:
  - kinds: [NonFiniteLoss, NonFiniteGradient, NonFiniteActivation, NonFiniteParameter]
    action: Hold              # every rank waits before the optimizer applies the update
    timeout: 1m               # for a person; then the update is skipped and the training goes on
    then: Skip
  - kinds: [RankFailed]
    action: Fail
  template:
    spec:
      containers:
      - name: trainer
        image: pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime
        command: [torchrun, /workspace/train.py]
        resources:
          requests: {cpu: 250m, memory: 512Mi}
        volumeMounts:
        - {name: code, mountPath: /workspace}
      volumes:
      - name: code
        configMap: {name: nan-example}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: nan-example
data:
"""


def literal(name: str, text: str) -> str:
    """Put a text as one entry of a mapping, as a YAML block that keeps every character."""
    lines = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
    return f"  {name}: |\n{lines}"


def manifest() -> str:
    """Return job.yaml."""
    folder = HERE / "nan"
    return TRAINING_JOB + "".join(
        literal(name, (folder / name).read_text(encoding="utf-8")) for name in FILES
    )


def main() -> int:
    """Write job.yaml, or tell whether it is current."""
    path = HERE / "nan" / "job.yaml"
    if "--check" in sys.argv[1:]:
        current = path.exists() and path.read_text(encoding="utf-8") == manifest()
        print(f"{path}: {'current' if current else 'not current: run python examples/generate.py'}")
        return 0 if current else 1
    path.write_text(manifest(), encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
