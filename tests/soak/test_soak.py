"""
Silence: healthy trainings of five kinds, with all probes on, of which nothing above info is said.

300 steps each, with two of the four variants; STEPWARDEN_SOAK_STEPS=2000 runs all four at full length.
"""

import os
import sys
from pathlib import Path

import pytest
import torch

from stepwarden.probes import ALL

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from healthy import TRAININGS
from soak import soak

STEPS = int(os.environ.get("STEPWARDEN_SOAK_STEPS", "300"))
SHORT = ((False, False), (True, True))  # mixed precision, warm-up
LONG = (*SHORT, (False, True), (True, False))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step:UserWarning")  # a scaler's first skip
@pytest.mark.parametrize(("amp", "warm_up"), LONG if STEPS >= 2000 else SHORT)
@pytest.mark.parametrize("name", TRAININGS)
def test_nothing_is_said_of_a_healthy_training(name, amp, warm_up):
    heard = soak(name, STEPS, amp=amp, warm_up=warm_up)
    assert heard.steps + heard.dropped >= 0.9 * STEPS * (2 if name == "gan" else 1)  # a scaler skips some
    assert [found for found in heard.findings if found.severity != "info"] == []
    assert not {kind for kind, why in heard.unknown.items() if why == "WatchFailed"} & set(ALL)
