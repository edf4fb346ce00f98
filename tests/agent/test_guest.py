"""The training is the same with the agent as without, whatever happens to the agent."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepwarden import policy, wire

OBSERVE = (policy.Rule(severity="info", action="Observe"),)


def finished(process):
    out, err = process.communicate()
    return process.returncode, out, err


@pytest.fixture(scope="module")
def runs(sidecars, folders, torchrun):
    """The same training plainly, observed, and observed by a sidecar that goes away."""
    sidecar, leaving = sidecars(), sidecars()
    folder = {name: folders() for name in ("plain", "observed", "left")}

    def start(name, **more):
        return torchrun("ddp.py", folder[name], 12, "5", EXIT_CODE="7", **more)

    with ThreadPoolExecutor() as pool:
        plain = pool.submit(finished, start("plain"))
        observed = pool.submit(finished, start("observed", directory=sidecar.folder, rules=OBSERVE))
        left = pool.submit(finished, start("left", directory=leaving.folder, rules=OBSERVE))
        leaving.wait(lambda heard: len(heard.of(wire.RankState)) > 1)
        leaving.close()
        results = {"plain": plain.result(), "observed": observed.result(), "left": left.result()}
    texts = {name: [(place / f"{rank}.txt").read_text() for rank in (0, 1)] for name, place in folder.items()}
    return {"results": results, "digests": texts, "sidecar": sidecar}


@pytest.mark.parametrize("name", ["observed", "left"])
def test_an_observed_run_equals_the_plain_one_to_the_bit(runs, name):
    assert runs["results"][name][:2] == runs["results"]["plain"][:2]
    assert runs["digests"][name] == runs["digests"]["plain"]


def test_an_observed_run_says_nothing_on_stderr_but_that_its_program_has_failed(runs):
    err = runs["results"]["observed"][2]
    said = [line for line in err.splitlines() if "stepwarden: " in line]
    assert 1 <= len(said) <= 2
    assert all("the program ended itself by sys.exit(7) (exit code 7)" in line for line in said)


def test_what_is_only_observed_is_said_when_it_begins_and_not_at_every_step(runs):
    found = {(said.kind, said.step) for said in runs["sidecar"].of(wire.Finding) if said.rank == 1}
    assert found - {("RankFailed", 12)} == {
        ("NonFiniteGradient", 5),
        ("NonFiniteParameter", 6),
        ("NonFiniteLoss", 6),
    }


@pytest.fixture(scope="module")
def crash(sidecars, folders, torchrun):
    sidecar = sidecars()
    process = torchrun("ddp.py", folders(), 2, "9", directory=sidecar.folder, CRASH="no such luck")
    code, _, err = finished(process)
    return {"sidecar": sidecar, "code": code, "err": err}


def test_a_crash_is_a_finding_with_its_traceback_and_keeps_its_exit_code(crash, poll):
    found = poll(lambda: crash["sidecar"].findings("RankFailed", 2)).get(1)
    assert crash["code"] == 1
    assert found.message == "ValueError: no such luck (exit code 1)"
    assert found.file.endswith("ddp.py")
    assert found.evidence["exit_code"] == 1
    assert "raise ValueError(os.environ" in found.evidence["traceback"]


def test_the_users_own_traceback_is_still_printed_without_a_frame_of_ours(crash):
    assert "ValueError: no such luck" in crash["err"]
    assert "stepwarden/agent" not in crash["err"]


def test_a_rank_that_crashed_says_so_and_does_not_claim_to_have_ended(crash):
    assert {said.state for said in crash["sidecar"].of(wire.RankState) if said.rank == 1} == {
        "running",
        "failed",
    }


@pytest.fixture(scope="module")
def helpers(sidecars, folders, torchrun):
    """A run whose loader's workers train themselves, and badly, behind another sitecustomize."""
    sidecar, folder = sidecars(), folders()
    (folder / "sitecustomize.py").write_text("import builtins\nbuiltins.chained = __file__\n")
    process = torchrun("workers.py", ranks=1, directory=sidecar.folder, second_path=str(folder))
    return {"sidecar": sidecar, "result": finished(process), "folder": folder}


def test_workers_of_a_loader_are_no_ranks(helpers):
    code, out, err = helpers["result"]
    assert code == 0, err
    assert re.findall(r"worker (\w+) did (\d) steps", out) == [("fork", "2"), ("spawn", "2")]
    assert not helpers["sidecar"].of(wire.Finding)
    assert len({said.pid for said in helpers["sidecar"].of(wire.RankState)}) == 1


def test_the_next_sitecustomize_is_loaded(helpers):
    assert f"chained {helpers['folder'] / 'sitecustomize.py'}" in helpers["result"][1]
    assert len(helpers["sidecar"].of(wire.StepTaken)) == 1


def test_without_a_sidecar_the_training_goes_on_and_findings_are_printed(folders, torchrun):
    code, _, err = finished(torchrun("alone.py", ranks=1, directory=folders()))
    lines = [line for line in err.splitlines() if line.startswith("stepwarden")]
    assert code == 0
    assert "no sidecar answers" in lines[0]
    assert "NonFiniteGradient: " in lines[2]
    assert "the gradient of bias holds 1 NaN in 1 values" in lines[2]
