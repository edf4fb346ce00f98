"""The arguments of `stepwarden check`. Needs the standard library alone."""

import argparse

DESCRIPTION = """\
Run the first steps of a training script on this machine and look at each layer: whether it is frozen,
and the norm of its gradients at step 1 and at step 10 (0 is the first). With --gradcheck, compare the
analytical gradients of a module (dotted name) or a custom autograd.Function (class name) with finite
differences, in double precision, on a few samples of what the first step gave it."""

EPILOG = """\
exit codes    0 nothing is wrong; 1 a layer, a gradcheck or a finding of severity warning says what is;
              2 if nothing could be checked; else that of the script, where it failed before"""

FOLDER = "stepwarden-check"  # the report's, in the working directory
LONGEST = 10  # the step after which the script is ended, without --steps


def add_to(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "stepwarden check [options] [--] train.py [arguments]"
    parser.add_argument("-m", "--module", action="store_true", help="run a module instead of a script")
    parser.add_argument("--nproc", metavar="N", help="ranks (default: 1)")
    parser.add_argument("--steps", metavar="N", help=f"end after this step (default: {LONGEST})")
    parser.add_argument(
        "--gradcheck", metavar="NAME", action="append", default=[], help="a module or Function to check"
    )
    parser.add_argument(
        "--report", metavar="DIR", help=f"the report's folder (default: {FOLDER}, replaced each time)"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
