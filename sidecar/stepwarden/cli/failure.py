"""What ends the command with one line instead of a traceback."""

from stepwarden.cli.say import say

USAGE = 2  # exit code: nothing was started
STOPPED = 3  # exit code: the run was ended because of a finding


class UsageError(Exception):
    """A run that can't be meant, or can't be started: in a sentence that says what to do instead."""


def refuse(error: UsageError) -> int:
    """Say why nothing was started, and return the exit code for that."""
    say(f"error: {error}")
    return USAGE
