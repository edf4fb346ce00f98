"""
The text that torch's excepthook gathers, to put the rank before each of its lines, and prints in the end.

torch.distributed puts its hook around the one that it finds, so this package's runs inside of it. A process
that is ended meanwhile, as torchrun does once a rank has failed, would lose all of that text.
"""

import io
import sys
from types import FrameType

HOOK = "_distributed_excepthook"  # of torch.distributed's init_process_group, alike in torch 2.4 and 2.15


def release(caller: FrameType | None) -> None:
    """Print what was gathered so far as torch would, and let it gather no more; `caller` is its frame."""
    if caller is None or caller.f_code.co_name != HOOK:
        return
    text, stderr, prefix = sys.stderr, *map(caller.f_locals.get, ("old_stderr", "excepthook_prefix"))
    if stderr is None or not isinstance(text, io.StringIO):
        return
    lines = text.getvalue().split("\n")
    text.seek(0)
    text.truncate()
    sys.stderr = stderr
    stderr.write("\n".join(f"{prefix}: {line}" if line else "" for line in lines))
    stderr.flush()
