"""Two ranks under torchrun: held before a bad update, and what becomes of it."""

import pytest

from stepwarden import wire

SKIPPED, PERSON, APPLIED, POISONED = 3, 4, 6, 7


def digests(folder):
    """Return digests by rank, moment and step."""
    return {
        (rank, when, int(step)): value
        for rank in (0, 1)
        for when, step, value in map(str.split, (folder / f"{rank}.txt").read_text().splitlines())
    }


def both(step):
    return lambda sidecar: len(sidecar.held(step)) == 2


def looked_at(poll, folder, step):
    """Let a second thread of each rank write the digest of its parameters, while it is held."""
    asks = [folder / f"ask-{rank}-{step}" for rank in (0, 1)]
    for ask in asks:
        ask.touch()
    poll(lambda: not any(ask.exists() for ask in asks))


@pytest.fixture(scope="module")
def run(sidecars, folders, torchrun, poll):
    """One run with all of it: skip, a person's hold, apply, and the poisoned step behind it."""
    sidecar, folder = sidecars(), folders()
    process = torchrun("ddp.py", folder, 9, f"{SKIPPED},{APPLIED}", directory=sidecar.folder)
    sidecar.wait(both(SKIPPED))
    looked_at(poll, folder, SKIPPED)
    sidecar.order(acknowledged=SKIPPED, hold_at=PERSON)
    sidecar.wait(both(PERSON))
    looked_at(poll, folder, PERSON)
    sidecar.order(acknowledged=SKIPPED)
    sidecar.wait(both(APPLIED))
    sidecar.order(acknowledged=APPLIED, update="apply")
    sidecar.wait(both(POISONED))
    sidecar.order(acknowledged=100, update="apply")
    out, err = process.communicate()
    return {
        "sidecar": sidecar,
        "digests": digests(folder),
        "code": process.returncode,
        "out": out,
        "err": err,
    }


def test_the_rank_that_it_began_on_is_known_before_the_reduction_spreads_it(run):
    found = run["sidecar"].findings("NonFiniteGradient", SKIPPED)
    assert {rank: finding.evidence["local"] for rank, finding in found.items()} == {0: False, 1: True}
    assert all(finding.ranks == (rank,) for rank, finding in found.items())
    assert "born on rank 1" in found[1].message


def test_the_parameter_closest_to_the_birth_is_named_by_both(run):
    found = run["sidecar"].findings("NonFiniteGradient", SKIPPED)
    assert found[0].module == "stem"  # that of the parameter
    assert (found[1].module, found[1].op) == ("", "Birth")  # the root's own forward applies it
    assert {finding.parameter for finding in found.values()} <= {"stem.weight", "stem.bias"}
    assert found[1].evidence["tensors"] == 2
    assert found[1].file.endswith("ddp.py")
    assert found[1].line


def test_while_held_all_parameters_are_those_before_the_update(run):
    for rank in (0, 1):
        before = run["digests"][rank, "before", SKIPPED]
        assert run["digests"][rank, "during", SKIPPED] == before
        assert before == run["digests"][1 - rank, "before", SKIPPED]


def test_a_skipped_update_changes_no_bit(run):
    for rank in (0, 1):
        assert run["digests"][rank, "after", SKIPPED] == run["digests"][rank, "before", SKIPPED]


def test_a_persons_hold_stops_both_at_the_same_step_and_the_update_is_applied_then(run):
    held = run["sidecar"].held(PERSON)
    assert {said.reason for said in held.values()} == {"HoldRequested"}
    for rank in (0, 1):
        assert run["digests"][rank, "during", PERSON] == run["digests"][rank, "before", PERSON]
        assert run["digests"][rank, "after", PERSON] != run["digests"][rank, "before", PERSON]


def test_an_applied_update_poisons_and_that_is_the_first_finding_of_the_next_step(run):
    assert run["digests"][0, "after", APPLIED] != run["digests"][0, "before", APPLIED]
    said = [
        message.kind
        for message in run["sidecar"].of(wire.Finding)
        if message.rank == 0 and message.step == POISONED
    ]
    assert said[0] == "NonFiniteParameter"
    assert run["sidecar"].findings("NonFiniteParameter", POISONED)[0].first_step == APPLIED


def test_steps_are_numbered_from_zero_and_end_well(run, poll):
    steps = {rank: [] for rank in (0, 1)}
    for taken in run["sidecar"].of(wire.StepTaken):
        steps[taken.rank].append(taken.step)
    assert steps == {0: list(range(9)), 1: list(range(9))}
    assert run["code"] == 0
    poll(lambda: {said.rank for said in run["sidecar"].of(wire.RankState) if said.state == "ended"} == {0, 1})


def test_stderr_has_a_line_a_rank_for_the_hold_and_one_for_going_on(run):
    lines = [line for line in run["err"].splitlines() if f"step {SKIPPED}" in line]
    assert len([line for line in lines if f"holds at step {SKIPPED} before the update" in line]) == 2
    assert len([line for line in lines if f"goes on from step {SKIPPED} without its update" in line]) == 2
