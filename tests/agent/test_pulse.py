"""The pulses of this process under a real agent, and what of torch is left as it was."""

import math
import threading
import traceback

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from hearing import PATIENCE
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stepwarden.agent import failures
from stepwarden.agent.pulse import beat
from stepwarden.agent.pulse.stillness import Stillness
from stepwarden.probes.settings import read
from stepwarden.pulse import Pulse

OFF = '{"RankHung": {"enabled": false}, "RankStraggling": {"enabled": false}}'


class Heard:
    """Lets this thread stand until a pulse is heard; a hook on it, rather than the time, ends the wait."""

    def __init__(self, sidecar):
        self.sidecar = sidecar

    def waits_for(self, condition):
        """Return an event that is set once such a pulse was heard."""
        event = threading.Event()

        def listen():
            self.sidecar.wait(lambda heard: self.found(heard, condition))
            event.set()

        threading.Thread(target=listen, daemon=True).start()
        return event

    @staticmethod
    def found(sidecar, condition):
        return next((pulse for pulse in reversed(sidecar.of(Pulse)) if condition(pulse)), None)

    def one(self, condition):
        return self.found(self.sidecar, condition)

    def marked(self, mark):
        return self.waits_for(lambda pulse: mark in pulse.marks)


@pytest.fixture
def heard(sidecar):
    return Heard(sidecar)


class Model(nn.Module):
    """Does something else once, in its forward pass."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.once = lambda: None

    def forward(self, x):
        self.once()
        return self.linear(x)


class Training:
    """A model and its optimizer."""

    def __init__(self):
        self.model = Model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self):
        self.model(torch.ones(4, 2)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def training(attach):
    """Give a training whose first step a test makes itself: what is on the stack then is the training's."""
    attach()
    return Training()


def stands(pulse):
    return pulse.still >= 0.5


def test_a_forward_pass_that_stands_still(training, heard):
    over = heard.waits_for(stands)
    training.step()

    def wait():
        assert over.wait(PATIENCE)  # here

    training.model.once = wait
    training.step()
    pulse = heard.one(stands)
    assert (pulse.step, pulse.phase, pulse.steps, pulse.collective) == (1, "forward", 1, "")
    assert "assert over.wait(PATIENCE)  # here" in pulse.stack
    assert pulse.file == __file__
    assert pulse.stack.splitlines()[-2].lstrip().startswith("File")
    assert "stepwarden/agent/hooks" not in pulse.stack
    assert len(pulse.stack.encode()) <= 4096
    assert pulse.node


@pytest.mark.parametrize("busy", [math.inf, 0.0])
def test_a_thread_that_computes_does_not_stand_still(training, heard, monkeypatch, busy):
    monkeypatch.setattr(beat, "BUSY", busy)
    over = heard.waits_for(lambda pulse: pulse.phase == "forward")

    def compute():
        while not over.is_set():
            sum(range(1000))

    training.model.once = compute
    training.step()
    pulse = heard.one(lambda pulse: pulse.phase == "forward")
    assert (pulse.still < 0.5, pulse.file) == (True, __file__)
    assert (pulse.stack == "", "in compute\n" in pulse.stack) == (busy > 0, busy == 0)


def test_steps_are_told_while_they_go_on(training, heard):
    over = heard.waits_for(lambda pulse: pulse.steps >= 10)
    while not over.is_set():
        training.step()
    pulse = heard.one(lambda pulse: pulse.steps >= 10)
    assert 0 < pulse.median <= pulse.longest
    assert pulse.spent["forward"] > 0
    assert pulse.spent["backward"] > 0
    assert pulse.spent["optimizer"] > 0
    assert pulse.spent["waiting"] == 0
    assert pulse.marks == ()


def test_a_model_in_evaluation_mode_is_evaluated(training, heard):
    training.step()
    over = heard.marked("evaluating")
    training.model.eval()
    with torch.no_grad():
        training.model(torch.ones(1, 2))
        assert over.wait(PATIENCE)


def test_a_model_that_is_trained_in_evaluation_mode_is_not(training, heard):
    training.step()
    training.model.eval()
    training.step()
    assert heard.waits_for(stands).wait(PATIENCE)
    assert "evaluating" not in heard.one(stands).marks


class Slow:
    """A file that is full until the rank was heard to save."""

    def __init__(self, over):
        self.over = over

    def write(self, data):
        assert self.over.wait(PATIENCE)
        return len(data)

    def flush(self):
        pass


def test_a_checkpoint_is_being_written(training, heard):
    training.step()
    torch.save(training.model.state_dict(), Slow(heard.marked("checkpointing")))


def test_something_is_being_compiled(training, heard):
    training.step()
    over = heard.marked("compiling")

    def backend(graph, inputs):
        del inputs
        assert over.wait(PATIENCE)
        return graph

    training.model.once = torch.compile(lambda: torch.ones(1) + 1, backend=backend)
    training.step()


class Records(Dataset):
    """Records that are there once the rank was heard to load them."""

    def __init__(self, over):
        self.over = over

    def __len__(self):
        return 1

    def __getitem__(self, index):
        assert self.over.wait(PATIENCE)
        return index


@pytest.mark.usefixtures("training")
def test_data_are_being_loaded(heard):
    assert list(DataLoader(Records(heard.marked("loading")))) == [torch.tensor([0])]


@pytest.fixture
def group(tmp_path):
    """Be a group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_collectives_are_counted_and_compiled_as_without_the_agent(attach):
    attached = attach()
    progress = next(watch for watch in attached.agent.crew.watches if "RankHung" in watch.kinds)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, async_op=True).wait()
    dist.broadcast(tensor, 0)
    dist.all_gather_object([None], 1)
    dist.barrier()
    assert progress.collectives.count == 6  # objects are gathered in two
    assert progress.collectives.begun() >= 6
    assert progress.collectives.inside is None
    assert progress.collectives.seconds > 0

    def reduced(x):
        dist.all_reduce(x)
        return x * 2

    whole = torch.compile(reduced, backend="eager", fullgraph=True)  # which no Python wrapper would allow
    assert torch.equal(whole(tensor), tensor * 2)


@pytest.mark.usefixtures("group")
def test_a_collective_that_fails_raises_as_without_the_agent(attach):
    attach()
    with pytest.raises((ValueError, RuntimeError), match=r"(?i)tensor") as raised:
        dist.all_gather([torch.ones(2)], torch.ones(3, dtype=torch.float64))
    failures.strip(raised.value)
    files = [call.filename for call in traceback.extract_tb(raised.value.__traceback__)]
    assert files[-1].endswith("distributed_c10d.py")
    dist.barrier()


def test_detached_torch_is_as_it_was(attach):
    before = [dict(vars(cls)) for cls in (dist.ProcessGroup, dist.Work)]
    wait = functional.wait_tensor
    attached = attach()
    assert functional.wait_tensor is not wait
    assert vars(dist.Work)["wait"] is not before[1]["wait"]
    attached.detach()
    assert functional.wait_tensor is wait
    assert [dict(vars(cls)) for cls in (dist.ProcessGroup, dist.Work)] == before


def test_switched_off_nothing_is_hooked_and_nothing_said(attach, heard, sidecar):
    wait = vars(dist.Work)["wait"]
    attach(probes=read(OFF))
    assert vars(dist.Work)["wait"] is wait
    training = Training()
    for _ in range(6):
        training.step()
    sidecar.wait(lambda now: len([one for one in now.heard if type(one).__name__ == "RankState"]) >= 3)
    assert heard.one(lambda _: True) is None
    assert read(OFF).complaints == ()


def test_the_processor_that_a_thread_uses_ends_its_stillness():
    gate, go = threading.Event(), threading.Event()

    def work():
        gate.wait(PATIENCE)
        while not go.is_set():
            sum(range(1000))

    thread = threading.Thread(target=work)
    thread.start()
    stillness, now = Stillness(thread.ident), 0.0
    assert stillness.look(now, 0) == 0
    while stillness.look(now, 0) < 1:  # as soon as it waits
        now += 0.5
    assert stillness.look(now + 1, 1) == 0  # something happened
    stillness.look(now + 1.1, 1)
    before = stillness.look(now + 2.1, 1)
    assert before > 0
    gate.set()
    later = now + 2.2
    while stillness.look(later, 1) >= before:  # as soon as it works
        later += 1e-6
    go.set()
    thread.join()
    assert stillness.look(later, 1) >= 0
