"""Which probes there are, in the order of a step's findings: a cause stands before its consequence."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from stepwarden.probes import (
    data_repeated,
    exploding_gradient,
    frozen_parameter_changed,
    gradient_accumulated_twice,
    gradient_scale_wrong,
    gradient_truncated,
    loss_spike,
    modality_imbalance,
    nonfinite_activation,
    nonfinite_gradient,
    nonfinite_loss,
    nonfinite_parameter,
    parameter_changed_outside_step,
    parameter_not_updated,
    parameter_untied,
    random_state_unset,
    recompute_mismatch,
    scaler_starved,
    stale_cast,
    update_wrong_size,
    vanishing_gradient,
)
from stepwarden.probes.observation import Observation
from stepwarden.wire import Verdict


class Probe(Protocol):
    """
    One file of this folder.

    `NEEDS` is the record without which it isn't asked (None: it is asked at every step),
    `DEFAULTS` its parameters, each a number above 0.
    """

    @property
    def KIND(self) -> str:  # noqa: N802 - a constant of each file
        """The kind of its findings."""

    @property
    def NEEDS(self) -> type | None:  # noqa: N802 - a constant of each file
        """The record that it judges."""

    @property
    def DEFAULTS(self) -> Mapping[str, float]:  # noqa: N802 - a constant of each file
        """Its parameters."""

    def probe(self, seen: Observation, settings: Mapping[str, float], /) -> Verdict:
        """Judge a step."""


PROBES: tuple[Probe, ...] = (
    nonfinite_parameter,
    nonfinite_activation,
    nonfinite_loss,
    nonfinite_gradient,
    exploding_gradient,
    loss_spike,
    recompute_mismatch,
    gradient_truncated,
    gradient_scale_wrong,
    scaler_starved,
    stale_cast,
    vanishing_gradient,
    modality_imbalance,
    gradient_accumulated_twice,
    parameter_changed_outside_step,
    parameter_not_updated,
    update_wrong_size,
    frozen_parameter_changed,
    parameter_untied,
    random_state_unset,
    data_repeated,
)

ALL: Mapping[str, Probe] = MappingProxyType({probe.KIND: probe for probe in PROBES})
