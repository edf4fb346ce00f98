"""
`python -m stepwarden.checkpoint DIR`: one JSON object a line for each checkpoint that was looked at.

For the ranks of a pod, which ask for it before their program's first line, in a process of its own.
"""

import json
import sys
from pathlib import Path

from stepwarden.checkpoint.newest import judged


def main() -> int:
    """Judge, newest first, up to the first that is good. A folder that isn't there yet holds none."""
    try:
        for each in judged(Path(sys.argv[1])):
            line = {"path": str(each.candidate.path), "word": each.word, "reason": each.reason}
            sys.stdout.write(json.dumps(line) + "\n")
    except FileNotFoundError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
