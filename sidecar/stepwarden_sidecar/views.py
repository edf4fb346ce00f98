"""How one pod's view of who is the hub is written and read: pure."""

import json
import math
from dataclasses import asdict

from stepwarden_sidecar.election import View

MOST = 2**53  # the greatest term: what any JSON reader keeps exact


def to_json(view: View) -> str:
    """Write a view."""
    return json.dumps(asdict(view), allow_nan=False)


def read_view(raw: str | bytes) -> View:
    """Read a view. Raises `ValueError`."""
    body = json.loads(raw)
    if not isinstance(body, dict):
        message = "a JSON object is wanted"
        raise ValueError(message)  # noqa: TRY004 - as for all that can't be read
    hub, age = body.get("hub"), body.get("age")
    if not isinstance(age, int | float):
        message = "not a view: age is not a number of seconds"
        raise ValueError(message)  # noqa: TRY004 - as above
    return View(
        pod=whole(body.get("pod")),
        hub=None if hub is None else whole(hub),
        term=whole(body.get("term")),
        age=float(age) if 0 <= age < MOST else math.inf,
    )


def whole(value: object) -> int:
    """Return a whole number that is none too many. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
        message = f"not a view: {value!r:.80} is not a whole number from 0"
        raise ValueError(message)
    return value
