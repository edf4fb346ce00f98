"""The `stepwarden` command. Starts on the standard library alone; `run` needs the extra of that name."""

import argparse
import sys
from collections.abc import Sequence

from stepwarden import __version__
from stepwarden.cli import arguments, check_arguments, checkpoint, plugin, replay, requirements
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
    look = commands.add_parser("check", help="look at each layer's gradients in the first steps")
    check_arguments.add_to(look)
    replay.add_to(commands.add_parser("replay", help="run a saved bad step again"))
    checkpoint.add_to(commands.add_parser("checkpoint", help="find the checkpoint to go on from"))
    plugin.add_to(commands)
    parsed = parser.parse_args(given)
    try:
        if parsed.subcommand == "run":
            return run_script(parsed)
        if parsed.subcommand == "check":
            return check_script(parsed)
        other = {"replay": replay.act, "checkpoint": checkpoint.act}
        return other.get(parsed.subcommand, plugin.act)(parsed)
    except UsageError as error:
        return refuse(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def run_script(parsed: argparse.Namespace) -> int:
    """Run a script or a manifest. Raises `UsageError`."""
    options = arguments.options(parsed)
    requirements.check()
    from stepwarden.cli.run import run  # noqa: PLC0415 - needs the extra, just checked

    return run(options)


def check_script(parsed: argparse.Namespace) -> int:
    """Check a script's layers. Raises `UsageError`."""
    requirements.check()
    from stepwarden.cli import check  # noqa: PLC0415 - needs the extra, just checked

    return check.act(parsed)


if __name__ == "__main__":
    sys.exit(main())
