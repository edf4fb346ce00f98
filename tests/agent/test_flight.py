"""What is made of torch's flight recorder's dump."""

import pytest
import torch._C._distributed_c10d as c10d

from stepwarden.agent.pulse import flight


def entry(number, *, retired=False, p2p=False, name="nccl:all_reduce", **more):
    sequence = {"collective_seq_id": 0 if p2p else number, "p2p_seq_id": number if p2p else 0, "is_p2p": p2p}
    shapes = {"input_dtypes": ["Float", "Half"], "input_sizes": [[4, 3], []], "process_group": ["0", "dp"]}
    return sequence | shapes | {"profiling_name": name, "retired": retired, "time_created_ns": number} | more


ALL_REDUCE = {"name": "all_reduce", "group": "dp (group 0)", "sequence": 7, "tensors": "float[4, 3], half[]"}


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ([], {}),
        ([entry(6, retired=True)], {}),
        ([{"state": "completed"}], {}),  # of a form that says nothing of its end
        ([entry(8), entry(7), entry(6, retired=True)], ALL_REDUCE),
        ([entry(7, p2p=True, name="nccl:recv 0<-1")], ALL_REDUCE | {"name": "recv 0<-1"}),
        (
            [entry(7, process_group=["3"], input_sizes=[], input_dtypes=[])],
            ALL_REDUCE | {"group": "group 3", "tensors": ""},
        ),
        ([entry(7, process_group=["0", "default_pg"])], ALL_REDUCE | {"group": "default_pg"}),
        ([entry(7, process_group=["2", "undefined"])], ALL_REDUCE | {"group": "group 2"}),
    ],
)
def test_the_earliest_that_has_not_ended_is_what_is_waited_for(recorded, said):
    assert flight.earliest(recorded) == said


def test_it_is_asked_once_for_each_long_wait(monkeypatch):
    asked = []

    def dump(**how):
        asked.append(how)
        return b'{"entries": []}'

    for name in flight.DUMPS:
        monkeypatch.setattr(c10d, name, dump, raising=False)
    made = flight.Flight()
    for which, seconds in ((1, 0.4), (1, 1.0), (1, 1.5), (2, 0.5), (2, 1.2)):
        assert made.waited_for(which, seconds) == {}
    assert len(asked) == 2 * len(flight.DUMPS)


def test_a_torch_without_a_recorder_has_recorded_nothing(monkeypatch):
    for name in flight.DUMPS:
        monkeypatch.delattr(c10d, name, raising=False)
    assert flight.entries() == []
