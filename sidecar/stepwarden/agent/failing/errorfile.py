"""
The file in which a rank leaves its error for torchrun, written as `torch.distributed.elastic`'s @record does.

torchrun's summary calls the rank the root cause whose file has the smallest time, in whole seconds, and
takes for a rank without a file the time at which it saw that the process is gone. So a rank that only
failed because another one had gets a later time than that one.
"""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from stepwarden.wire import Finding

VARIABLE = "TORCHELASTIC_ERROR_FILE"
LATER = 5  # seconds: more than torchrun takes to see that a process is gone, and to be told why


def write(finding: Finding) -> None:
    """Write what a rank failed by, unless its own @record has done so already. Raises nothing."""
    path = os.environ.get(VARIABLE)
    if path:
        with suppress(OSError, ValueError), Path(path).open("x", encoding="utf-8") as file:
            json.dump(body(finding, time.time()), file)


def body(finding: Finding, now: float) -> dict[str, object]:
    """Return the file's content."""
    late = finding.evidence.get("local") is False
    return {
        "message": {
            "message": finding.message,
            "extraInfo": {
                "py_callstack": finding.evidence.get("traceback", ""),
                "timestamp": str(int(now) + (LATER if late else 0)),
            },
        }
    }
