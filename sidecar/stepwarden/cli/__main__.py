"""The `stepwarden` command. Starts on the standard library alone; `run` needs the extra of that name."""

import argparse
import sys
from collections.abc import Sequence

from stepwarden import __version__
from stepwarden.cli import arguments, plugin, requirements
from stepwarden.cli.failure import UsageError, refuse

INTERRUPTED = 130  # exit code, as of a shell


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="stepwarden", description="Observable distributed PyTorch training."
    )
    parser.add_argument("--version", action="version", version=f"stepwarden {__version__}")
    commands = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a script or a manifest on this machine", allow_abbrev=False)
    arguments.add_to(run)
    plugin.add_to(commands)
    parsed = parser.parse_args(given)
    if parsed.subcommand != "run":
        return plugin.act(parsed)
    try:
        options = arguments.options(parsed)
        requirements.check()
        from stepwarden.cli.run import run as run_here  # noqa: PLC0415 - needs the extra, just checked

        return run_here(options)
    except UsageError as error:
        return refuse(error)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
