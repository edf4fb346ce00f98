import json

import pytest

from stepwarden.wire import Finding, Instruction, Orders
from stepwarden_sidecar.store import Journal, OrdersFile


def found(step):
    return Finding(
        kind="K", severity="critical", step=step, message="m", ranks=(0,), evidence={"norm": "NaN"}
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "findings.jsonl"


def test_what_was_appended_is_loaded(path):
    Journal(path).append([found(1), found(2)])
    Journal(path).append([found(3)])
    assert Journal(path).load() == [found(1), found(2), found(3)]
    assert json.loads(path.read_text().splitlines()[0])["kind"] == "K"


def test_no_file_is_no_finding(path):
    assert Journal(path).load() == []
    Journal(path).append([])
    assert not path.exists()


def test_a_torn_last_line_costs_that_line_alone(path):
    journal = Journal(path)
    journal.append([found(1), found(2)])
    path.write_bytes(path.read_bytes()[:-20])
    assert journal.load() == [found(1)]
    journal.append([found(3)])
    assert journal.load() == [found(1), found(3)]


def test_every_place_at_which_it_can_be_torn(path):
    Journal(path).append([found(1), found(2)])
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        journal = Journal(path)
        before = journal.load()
        journal.append([found(3)])
        assert journal.load() == [*before, found(3)]


def test_a_journal_stays_bounded(path):
    journal = Journal(path, keep=10)
    for step in range(100):
        journal.append([found(step)])
        assert len(path.read_text().splitlines()) <= 20
    assert journal.load()[-10:] == [found(step) for step in range(90, 100)]


def test_a_disk_that_can_not_be_written_is_logged_once(tmp_path, caplog):
    path = tmp_path / "not-there" / "findings.jsonl"
    journal = Journal(path)
    journal.append([found(1)])
    journal.append([found(2)])
    assert len(caplog.records) == 1
    path.parent.mkdir()
    journal.append([found(3)])
    assert "again" in caplog.records[1].message
    assert journal.load() == [found(3)]


def test_orders_are_replaced_as_a_whole(tmp_path):
    file = OrdersFile(tmp_path / "orders.json")
    assert file.load() == (Orders(), Instruction())
    file.save(Orders(hold_at=3), Instruction(hold=True))
    file.save(Orders(hold_at=5, acknowledged=4, update="apply"), Instruction(hold=True, acknowledged=4))
    assert file.load() == (
        Orders(hold_at=5, acknowledged=4, update="apply"),
        Instruction(hold=True, acknowledged=4),
    )
    assert [each.name for each in tmp_path.iterdir()] == ["orders.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"orders": 3, "instruction": {}}', "\x00\xff"])
def test_orders_that_can_not_be_read_are_those_of_a_new_job(tmp_path, text):
    path = tmp_path / "orders.json"
    path.write_text(text)
    assert OrdersFile(path).load() == (Orders(), Instruction())
