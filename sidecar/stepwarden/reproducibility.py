"""
What a run asks for so that it can be repeated: a seed, a number of threads, deterministic algorithms.

Pure. Command line and operator put it into the ranks' environment, the agent brings it about there.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ENV_REPRODUCIBILITY = (
    "STEPWARDEN_REPRODUCIBILITY"  # JSON: {"seed": int, "threads": int, "deterministic": bool}
)
HASH_SEED = "PYTHONHASHSEED"
MOST_SEED = 2**32 - 1  # numpy's and Python's limit
MOST_THREADS = 4096
LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
FIELDS = ("seed", "threads", "deterministic")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducibility:
    """What is asked for; None (or False) leaves a thing as the program has it. All ranks get the same."""

    seed: int | None = None
    threads: int | None = None
    deterministic: bool = False

    @property
    def asked(self) -> bool:
        """Whether anything is asked for."""
        return self != NOTHING

    def over(self, other: "Reproducibility") -> "Reproducibility":
        """Return this, and what only `other` asks for."""
        return Reproducibility(
            seed=other.seed if self.seed is None else self.seed,
            threads=other.threads if self.threads is None else self.threads,
            deterministic=self.deterministic or other.deterministic,
        )


NOTHING = Reproducibility()


def read(raw: Mapping[str, Any], where: str) -> Reproducibility:
    """Read `spec.reproducibility`. Raises `ValueError`, with a sentence that begins with `where`."""
    if unknown := sorted(set(map(str, raw)) - set(FIELDS)):
        message = f"unknown field {unknown[0]!r} in {where}: it has {', '.join(FIELDS)}"
        raise ValueError(message)
    deterministic = raw.get("deterministic")
    if not isinstance(deterministic, bool | None):
        message = f"{where}.deterministic must be true or false, not {deterministic!r:.60}"
        raise ValueError(message)  # noqa: TRY004 - as all that can't be meant
    return Reproducibility(
        seed=whole(raw.get("seed"), f"{where}.seed", 0, MOST_SEED),
        threads=whole(raw.get("threads"), f"{where}.threads", 1, MOST_THREADS),
        deterministic=bool(deterministic),
    )


def whole(value: object, where: str, least: int, most: int) -> int | None:
    """Return a number within its limits, or None. Raises `ValueError`."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        message = f"{where} is {value!r:.60}: give a whole number from {least} to {most}"
        raise ValueError(message)
    return value


def variables(asked: Reproducibility) -> dict[str, str]:
    """Return what must be in a rank's environment before its interpreter starts."""
    found: dict[str, str] = {}
    if asked.asked:
        found[ENV_REPRODUCIBILITY] = json.dumps(asdict(asked))
    if asked.seed is not None:
        found[HASH_SEED] = str(asked.seed)  # the order in sets of strings
    if asked.threads is not None:
        found |= dict.fromkeys(LIBRARIES, str(asked.threads))
    if asked.deterministic:
        found["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what torch asks for with deterministic algorithms
    return found


def of_environment(environment: Mapping[str, str]) -> Reproducibility:
    """Read what `variables` wrote. Raises `ValueError` where it can't be read."""
    text = environment.get(ENV_REPRODUCIBILITY)
    raw = json.loads(text) if text else {}
    if not isinstance(raw, dict):
        message = f"{ENV_REPRODUCIBILITY} is no JSON object: {text!r:.80}"
        raise ValueError(message)  # noqa: TRY004 - as all that can't be read
    return read(raw, ENV_REPRODUCIBILITY)
