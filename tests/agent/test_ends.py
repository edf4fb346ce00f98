"""Each way in which a process ends: what the rank says of it, and that it ends as it would by itself."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hearing import Sidecar
from lifelines import Lifelines

from stepwarden import wire

SCRIPT = Path(__file__).parent / "scripts" / "ends.py"
CODES = {
    **dict.fromkeys(["raised", "chained", "lost_peer", "hook", "worker", "left_in_finally"], 1),
    **dict.fromkeys(["thread", "caught", "os_exit_0", "children"], 0),
    "left": 3,
    "left_as_at_a_terminal": 5,
    "os_exit": 7,
    "segfault": -11,
    "abort": -6,
    "killed": -9,
    "gathered": -9,  # while it waits to hear why
    "interrupted": 1,
}


def line(mark):
    [found] = [n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if text.endswith(f"# {mark}")]
    return found


@pytest.fixture(scope="module")
def ends(folders):
    """Play all ways; return what was seen of each, by its name."""
    folder = folders()
    sidecar, lives = Sidecar(folder), Lifelines(folder)
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    codes = json.loads((folder / "codes.json").read_text())
    lives.wait(lambda lives: len(lives.closed) == len(codes))
    sidecar.catch_up()
    yield {
        way: seen(folder, sidecar, lives, rank, way, code) for rank, (way, code) in enumerate(codes.items())
    }
    lives.close()
    sidecar.close()


def seen(folder, sidecar, lives, rank, way, code):  # noqa: PLR0913, PLR0917 - what there is
    mine = [said for said in sidecar.heard if getattr(said, "rank", None) == rank]
    error, crash = folder / f"{way}.json", folder / f"rank-{rank}.crash"
    return SimpleNamespace(
        code=code,
        findings=[said for said in mine if isinstance(said, wire.Finding) and said.kind == "RankFailed"],
        states=[(said.state, said.reason) for said in mine if isinstance(said, wire.RankState)],
        lives=[said for said in lives.closed if said.rank == rank],
        err=(folder / f"{way}.err").read_text(),
        error=json.loads(error.read_text())["message"] if error.exists() else None,
        crash=crash.read_text(),
    )


def test_every_process_ends_with_its_own_code(ends):
    assert {way: end.code for way, end in ends.items()} == CODES


def test_every_rank_had_one_lifeline_until_its_end(ends):
    assert {way: [said.state for said in end.lives] for way, end in ends.items()} == {
        way: ["running"] for way in CODES
    }


@pytest.mark.parametrize(
    ("way", "mark", "message"),
    [
        ("raised", "raised", "ValueError: boom of 2 and 1 (exit code 1)"),
        ("chained", "chained", "RuntimeError: outer (exit code 1)"),
        ("hook", "in the hook", "ArithmeticError: in the hook (exit code 1)"),
        (
            "worker",
            "in the worker",
            (
                "KeyError: Caught KeyError in DataLoader worker process 0. "
                "KeyError: 'no such sample' (exit code 1)"
            ),
        ),
        ("left_in_finally", "left", "the program ended itself by sys.exit('no data') (exit code 1)"),
        ("left", "left by a call", "the program ended itself by sys.exit(3) (exit code 3)"),
        (
            "left_as_at_a_terminal",
            "left by the builtin",
            "the program ended itself by exit(5) (exit code 5)",
        ),
        ("os_exit", "left at once", "the program ended itself by os._exit(7) (exit code 7)"),
    ],
)
def test_what_a_rank_says_of_its_own_fault(ends, way, mark, message):
    [found] = ends[way].findings
    assert (found.severity, found.step, found.message) == ("critical", 1, message)
    assert found.evidence["local"] is True
    assert found.evidence["exit_code"] == ends[way].code
    assert found.file == str(SCRIPT)
    assert found.line == line(mark)
    assert ends[way].states[-1][0] == "failed"


def test_a_thread_that_fails_is_a_warning_and_the_rank_lives_on(ends):
    end = ends["thread"]
    [found] = end.findings
    assert (found.severity, found.line, found.evidence["thread"]) == ("warning", line("raised"), "prefetch")
    assert "exit_code" not in found.evidence
    assert found.message == "thread 'prefetch' ended, the rank lives on: ValueError: boom of 2 and 1"
    assert end.states[-1] == ("ended", "")
    assert "Exception in thread prefetch" in end.err


@pytest.mark.parametrize("way", ["caught", "os_exit_0", "children", "interrupted"])
def test_what_is_no_fault_is_no_finding(ends, way):
    assert ends[way].findings == []
    assert ends[way].states[-1] == ("ended", "Interrupted" if way == "interrupted" else "")
    assert (ends[way].crash, ends[way].error) == ("", None)


@pytest.mark.parametrize(
    ("way", "words"), [("segfault", "Segmentation fault"), ("abort", "Aborted"), ("killed", "")]
)
def test_a_rank_that_a_signal_ends_leaves_its_stack_and_no_word(ends, way, words):
    assert ends[way].findings == []
    assert {state for state, _ in ends[way].states} == {"running"}
    assert ends[way].err == ""
    assert words in ends[way].crash
    assert (f'File "{SCRIPT}"' in ends[way].crash) == bool(words)


def test_the_traceback_is_whole_with_its_causes(ends):
    text = ends["chained"].findings[0].evidence["traceback"]
    for words in ("ValueError: boom of 2 and 1", "The above exception was the direct cause", "in raised"):
        assert words in text
        assert words in ends["chained"].err
    assert "stepwarden/agent" not in ends["chained"].err


def test_the_tensors_of_its_frames_are_told_without_their_values(ends):
    [found] = ends["raised"].findings
    tensors = found.evidence["tensors"]
    assert tensors == {
        f"{SCRIPT}:{line('raised')} in raised": {"batch[0]": "float32[2, 3]", "secret": "float64[4]"}
    }
    assert "tensors in its frames:" in ends["raised"].err
    assert "8765" not in wire.to_line(found) + ends["raised"].err


def test_a_rank_that_lost_its_peer_says_that_it_did_not_begin_there(ends):
    [found] = ends["lost_peer"].findings
    assert found.message == "TypeError: while reducing (exit code 1)"
    assert found.evidence["local"] is False
    assert ends["lost_peer"].states[-1] == ("failed", "TypeError")


def test_a_traceback_that_torch_gathers_is_out_before_the_rank_waits_to_hear_why(ends):
    said = ends["gathered"].err
    assert said.count("[rank0]: TypeError: while reducing") == 1
    assert "[rank0]: stepwarden" not in said
    assert {state for state, _ in ends["gathered"].states} == {"running"}  # it was killed as it waited


def test_torchruns_summary_names_the_rank_that_began(ends):
    first, later = (int(ends[way].error["extraInfo"]["timestamp"]) for way in ("raised", "lost_peer"))
    assert later > first + 2
    error = ends["os_exit"].error
    assert error["message"] == "the program ended itself by os._exit(7) (exit code 7)"
    assert "os._exit(7)" in error["extraInfo"]["py_callstack"]


def test_who_ends_by_a_call_leaves_the_stack_in_its_own_log(ends):
    for way, call in (("left", "sys.exit(3)"), ("os_exit", "os._exit(7)")):
        assert f"failed at step 1: the program ended itself by {call}" in ends[way].err
        assert f'File "{SCRIPT}", line ' in ends[way].err
