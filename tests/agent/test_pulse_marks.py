"""What a stack excuses: real code objects of made-up files, as frames would have them."""

import _thread
import inspect
import queue
import selectors
import sys
import sysconfig
import threading
from pathlib import Path

import pytest
import torch
from torch._dynamo import convert_frame, eval_frame
from torch.distributed import _functional_collectives, distributed_c10d
from torch.distributed.checkpoint import state_dict_saver
from torch.utils import checkpoint, data

from stepwarden.agent import gate
from stepwarden.agent.hooks import collectives
from stepwarden.agent.pulse import stack, waiting
from stepwarden.agent.pulse.marks import marks

SITE = sysconfig.get_path("purelib")
MAIN = "/srv/train.py"


def code(file, function="<module>"):
    """Make the code object of a function in a file."""
    made = compile(f"def {function.strip('<>')}(): pass", file, "exec")
    return made if function == "<module>" else made.co_consts[0]


def of(module, function):
    return code(inspect.getsourcefile(module), function)


def excused(*codes, phase="data", training=(), evaluating=False):
    return marks([code(MAIN), *codes], phase, frozenset(training), evaluating=evaluating)


FETCH = str(Path(data.__file__).parent / "_utils" / "fetch.py")
LOADER = of(data.dataloader, "__next__")
WAIT = of(threading, "wait")


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], ("sleeping",)),
        ([code(MAIN, "evaluate"), of(torch, "x")], ("evaluating",)),
        ([code("/srv/validation.py", "run"), of(torch, "x")], ("evaluating",)),
        ([code(f"{SITE}/lightning/loops/evaluation_loop.py", "run"), of(torch, "x")], ("evaluating",)),
        ([code(MAIN, "save_checkpoint"), of(torch, "x")], ("checkpointing",)),
        ([of(torch.serialization, "save")], ("checkpointing",)),
        ([of(state_dict_saver, "save"), WAIT], ("checkpointing", "locked")),
        ([of(convert_frame, "__call__")], ("compiling",)),
        ([of(eval_frame, "compile_wrapper")], ()),  # as a compiled function runs
        (
            [LOADER, code(FETCH, "fetch"), code("/srv/set.py", "__getitem__")],
            ("loading", "sleeping"),
        ),
        ([LOADER, of(queue, "get"), WAIT], ("loading",)),
        ([code(MAIN, "read"), WAIT], ("locked",)),
        ([code(f"{SITE}/requests/api.py", "get"), of(selectors, "select")], ("locked",)),
        ([code(gate.__file__, "pass_"), WAIT], ()),  # held by us
        ([code(MAIN, "restart"), code(MAIN, "invalid"), code(MAIN, "unsaved"), of(torch, "x")], ()),
    ],
)
def test_what_a_stack_excuses(codes, expected):
    assert excused(*codes) == expected


def test_a_sleep_is_one_in_the_data_alone():
    assert excused(phase="forward") == ()


def test_activations_that_are_checkpointed_are_no_checkpoint():
    codes = (code(MAIN, "checkpointed_forward"), of(checkpoint, "checkpoint"), of(torch, "x"))
    assert excused(*codes, phase="forward") == ()


def test_what_the_training_itself_runs_in_says_nothing():
    main = code("/srv/test_run.py", "test_training")
    assert excused(main, of(torch, "x")) == ("evaluating",)
    assert excused(main, of(torch, "x"), training=[main]) == ()


def test_a_model_in_evaluation_mode():
    assert excused(of(torch, "x"), evaluating=True) == ("evaluating",)


def test_which_collective_a_stack_waits_in():
    inner, outer = of(distributed_c10d, "all_gather"), of(distributed_c10d, "all_gather_object")
    logged = of(torch.distributed.c10d_logger, "wrapper")
    user, ours = code(MAIN), of(collectives, "watched")
    assert waiting.called([user, logged, outer, logged, inner, ours]) == "all_gather_object"
    assert waiting.called([user, logged, outer, user]) == ""
    assert waiting.called([user]) == ""
    store = of(distributed_c10d, "_store_based_barrier")
    assert waiting.called([user, logged, store]) == "store_based_barrier"
    functional = [of(_functional_collectives, name) for name in ("__torch_dispatch__", "wait_tensor")]
    assert waiting.called([user, *functional, ours, of(torch._ops, "__call__")]) == "wait_tensor"  # noqa: SLF001 - its file


def test_a_backward_pass_that_stands_in_python_waits_for_nobody():
    engine = of(torch.autograd.graph, "_engine_run_backward")
    assert waiting.in_reducer([code(MAIN), engine])
    assert not waiting.in_reducer([code(MAIN), engine, code(MAIN, "backward")])
    assert not waiting.in_reducer([code(MAIN)])


def test_a_thread_of_autograds_engine_is_none_of_pythons():
    begun, over = threading.Event(), threading.Event()

    def backward():
        begun.set()
        over.wait(60)

    own = threading.get_ident()
    ordinary = threading.Thread(target=over.wait, args=(60,))
    ordinary.start()
    assert stack.of_engine(sys._current_frames(), own) == []  # noqa: SLF001 - as the agent does
    _thread.start_new_thread(backward, ())  # as C++ makes one: without Python's `threading`
    assert begun.wait(60)
    found = stack.of_engine(sys._current_frames(), own)  # noqa: SLF001 - as the agent does
    assert found[0].f_code is backward.__code__
    over.set()
    ordinary.join()
