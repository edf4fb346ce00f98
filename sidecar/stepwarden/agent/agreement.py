"""
Whether a step is sound on every rank, where a rank can't see that by itself.

With sharded parameters (FSDP) a NaN is in one rank's shard alone, and no collective tells the others:
their step would go on with parameters that the poisoned step made. So they wait for the hub's word.
"""

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer

from stepwarden import policy
from stepwarden.agent.environment import Environment, example
from stepwarden.agent.gate import Gate
from stepwarden.agent.looks.parameters import trained
from stepwarden.agent.say import say
from stepwarden.probes import nonfinite_gradient

PATIENCE = 10.0  # seconds that the hub may take; after that nobody waits for it until it answers again


class Agreement:
    """One rank's part in it."""

    def __init__(self, gate: Gate, environment: Environment) -> None:
        """Begin by trusting that the hub answers."""
        self.gate, self.environment = gate, environment
        self.alone = False

    def takes_part(self, optimizer: Optimizer) -> bool:
        """Whether a rank waits at each boundary until all ranks have found the step sound."""
        several = self.environment.ranks > 1 and self.environment.waits(on_host=False)
        return several and sharded(optimizer)

    def asked(self, optimizer: Optimizer, step: int) -> Sequence[policy.Action]:
        """Return what the policy asks for, if another rank's shard of this step is bad."""
        if not self.takes_part(optimizer) or self.sound(step):
            return ()
        return (policy.match(self.environment.rules, example(nonfinite_gradient.KIND)).action,)

    def sound(self, step: int) -> bool:
        """Wait for all ranks; False if one of them found the step bad. A missing answer is said once."""
        if self.alone and self.gate.orders.agreed < step - 1:
            return True
        answer = self.gate.agree(step, PATIENCE)
        if answer is None and not self.alone:
            say(
                f"at step {step} the other ranks were not heard within {PATIENCE:.0f} s: "
                "the training goes on, and a NaN in another rank's shard may be held one step late"
            )
        self.alone = answer is None
        return answer is not False


def sharded(optimizer: Optimizer) -> bool:
    """Whether an optimizer's parameters are shards of what several ranks hold together (FSDP, FSDP2)."""
    return any(map(shard, trained(optimizer)))


def shard(parameter: Any) -> bool:
    """Whether a parameter is one rank's part: a DTensor with a Shard placement, or FSDP's flat parameter."""
    placements = getattr(parameter, "placements", ())
    return type(parameter).__name__ == "FlatParameter" or any(each.is_shard() for each in placements)
