"""A bad step is run again on the one of two real ranks that it began on."""

from pathlib import Path

from stepwarden import policy, wire

SCRIPT = Path(__file__).parent / "scripts" / "replayed.py"
(LINE,) = [
    number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1) if text.endswith("# culprit")
]
SKIP = (policy.Rule(action="Skip"),)


def test_the_rank_that_it_began_on_names_the_operator_and_training_goes_on_the_same(
    sidecars, folders, torchrun
):
    sidecar, folder, plain = sidecars(), folders(), folders()
    process = torchrun("replayed.py", folder, directory=sidecar.folder, rules=SKIP)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    alone = torchrun("replayed.py", plain, "alone")
    _, errors = alone.communicate(timeout=240)
    assert alone.returncode == 0, errors
    for rank in (0, 1):
        assert (folder / f"{rank}.txt").read_text() == (plain / f"{rank}.txt").read_text()
    found = sidecar.findings("NonFiniteGradient", 2)
    assert (found[1].op, found[1].module, found[1].line) == ("sqrt", "distance", LINE)
    assert found[1].evidence["replay"]["status"] == "ok"
    assert found[0].evidence["replay"]["status"] == "unknown"
    assert "finite before the reduction" in found[0].evidence["replay"]["reason"]
    assert {said.step for said in sidecar.of(wire.Finding)} == {2}
