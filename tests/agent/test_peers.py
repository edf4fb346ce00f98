"""What a rank is told of others is printed behind its own traceback, which torch's excepthook gathers."""

import threading

from stepwarden.agent.failing import peers


def told(monkeypatch, seconds):
    """Ranks' words, and a thread that is about to print one."""
    monkeypatch.setattr(peers, "TRACEBACK", seconds)
    made = peers.Peers(0, lambda: 1, lambda: True, lambda _fatal: None)
    return made, threading.Thread(target=made.say, args=("rank 0: rank 1 failed",))


def test_a_traceback_goes_first(monkeypatch, capsys):
    made, thread = told(monkeypatch, 60.0)
    with made.lock:
        thread.start()
        thread.join(0.1)
        assert not capsys.readouterr().err
    thread.join(60)
    assert capsys.readouterr().err == "stepwarden: rank 0: rank 1 failed\n"


def test_a_hook_that_does_not_end_keeps_nothing_back(monkeypatch, capsys):
    made, thread = told(monkeypatch, 0.05)
    with made.lock:
        thread.start()
        thread.join(60)
        assert capsys.readouterr().err == "stepwarden: rank 0: rank 1 failed\n"
    made.close()
    made.say("too late")
    assert not capsys.readouterr().err
