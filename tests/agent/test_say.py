"""The agent's lines on stderr, as they reach a log that several ranks share."""

import os
import subprocess
import sys

SAYS = r"from stepwarden.agent.say import say; say('rank 1: rank 0 failed\n  at train.py:3')"


def test_what_is_said_is_one_write_also_where_python_keeps_no_buffer():
    packets, stderr = os.pipe2(os.O_DIRECT)  # one read gives what one write gave
    with os.fdopen(packets, "rb", buffering=0) as heard, os.fdopen(stderr, "wb") as said:
        subprocess.run([sys.executable, "-u", "-c", SAYS], stderr=said, check=True)
        assert heard.read(4096) == b"stepwarden: rank 1: rank 0 failed\n  at train.py:3\n"
