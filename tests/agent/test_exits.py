"""Which `sys.exit` ends a program, and which was caught on its way. No torch is needed for it."""

import subprocess
import sys
import textwrap

import pytest

HEAD = """
import atexit, os, sys, threading
from stepwarden.agent.failing.exits import Exits, code
step = [0]
exits = Exits(lambda status, frame: print("left", status, frame.f_code.co_name, flush=True), lambda: step[0])
exits.install()
def end():
    found = exits.uncaught()
    print("ended", found and (code(found.status), found.calls[-1][1]))
atexit.register(end)
class Closing:
    def __enter__(self): return self
    def __exit__(self, *_): [None for _ in range(3)]
def main(): sys.exit(3)
"""
LINE = HEAD.count("\n")
BODIES = {
    "main()": (3, (3, LINE)),
    "try: main()\nfinally: print('closed')": (3, (3, LINE)),
    "with Closing():\n    main()": (3, (3, LINE)),
    "try: main()\nexcept SystemExit: raise": (3, (3, LINE)),
    "try: main()\nexcept SystemExit: pass": (0, None),
    "def f():\n    try: main()\n    except SystemExit: pass\nf()": (0, None),
    "try: main()\nexcept SystemExit: step[0] = 1\nraise SystemExit(4)": (4, None),
    "sys.exit()": (0, None),
    "sys.exit(0)": (0, None),
    "sys.exit(256)": (0, None),
    "sys.exit(-1)": (255, (255, LINE + 1)),
    "sys.exit('no data')": (1, (1, LINE + 1)),
    "exit(5)": (5, (5, LINE + 1)),
    "exit(code=5)": (5, (5, LINE + 1)),
    "quit('no data')": (1, (1, LINE + 1)),
    "exit()": (0, None),
    "try: exit(5)\nexcept SystemExit: pass": (0, None),
    "t = threading.Thread(target=main); t.start(); t.join()": (0, None),
}


def run(body):
    text = HEAD + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("body", BODIES)
def test_only_an_exit_that_ends_the_program_is_one(body):
    code, found = BODIES[body]
    done = run(body)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1] == f"ended {found}"


def test_an_exit_at_once_is_told_first_and_those_of_child_processes_are_not():
    done = run("pid = os.fork()\nif not pid: os._exit(9)\nos.waitpid(pid, 0)\nos._exit(-1)")
    assert (done.returncode, done.stdout) == (255, "left 255 <module>\n")


def test_what_is_no_status_is_refused_as_ever():
    assert "TypeError" in run("os._exit('x')").stderr
    assert "TypeError" in run("sys.exit(1, 2)").stderr
    assert "TypeError" in run("sys.exit(code=1)").stderr
