"""What the agent is told by its environment: who it is, where its sidecar is, what the policy asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepwarden import policy, wire
from stepwarden.probes import settings

ALL_PROBES = settings.Settings(settings.DEFAULTS)
SKIPPING_OR_PAUSING = policy.PAUSING | {"Skip"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The settings of one rank. `directory` is None where there is no sidecar."""

    rank: int
    ranks: int = 1
    directory: str | None = None
    containment: wire.Containment = "strict"
    rules: Sequence[policy.Rule] = policy.DEFAULT_RULES
    probes: settings.Settings = ALL_PROBES
    complaints: tuple[str, ...] = ()

    def waits(self, *, on_host: bool) -> bool:
        """
        Whether a step is judged before its update. On the host that waits for nothing.

        On an accelerator it is one small read a step, made where some rule would pause or skip for
        what it says. Under `deferred` nobody waits, and a step is judged at the next one's boundary.
        """
        return self.containment == "strict" and (
            on_host
            or any(
                policy.match(self.rules, example(kind)).action in SKIPPING_OR_PAUSING
                for kind in self.probes.probes
            )
        )


def example(kind: str) -> wire.Finding:
    """Make the finding that a policy is asked about beforehand."""
    return wire.Finding(kind=kind, severity="critical", step=0, message="")


def read(variables: Mapping[str, str]) -> Environment:
    """Read the variables. Raises `ValueError` where the rank is not a number."""
    complaints: tuple[str, ...] = ()
    rules: Sequence[policy.Rule] = policy.DEFAULT_RULES
    if text := variables.get(wire.ENV_POLICY):
        try:
            rules = policy.from_json(text)
        except (ValueError, TypeError, KeyError) as error:
            complaints = (f"{wire.ENV_POLICY} can't be read, the default policy is used: {error}",)
    containment: wire.Containment = "strict"
    match variables.get(wire.ENV_CONTAINMENT) or "strict":
        case "strict" | "deferred" as wanted:
            containment = wanted
        case other:
            complaints += (f"{wire.ENV_CONTAINMENT} is {other!r:.80}: give strict or deferred",)
    probes = settings.read(variables.get(wire.ENV_PROBES))
    ranks = variables.get("WORLD_SIZE") or variables.get(wire.ENV_RANKS) or "1"
    return Environment(
        rank=int(variables.get("RANK") or variables[wire.ENV_RANK]),
        ranks=int(ranks),
        directory=variables.get(wire.ENV_DIRECTORY) or None,
        rules=rules,
        probes=probes,
        containment=containment,
        complaints=complaints + probes.complaints,
    )
