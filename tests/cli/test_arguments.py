import argparse
from pathlib import Path

import pytest

from stepwarden.cli import arguments
from stepwarden.cli.failure import UsageError
from stepwarden.reproducibility import Reproducibility


def read(*given):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    arguments.add_to(parser)
    return arguments.options(parser.parse_args(given))


@pytest.mark.parametrize(
    "given",
    [
        ("--nproc", "2", "--", "train.py", "--nproc", "3"),
        ("--nproc", "2", "train.py", "--nproc", "3"),
    ],
)
def test_what_stands_after_the_script_is_the_scripts(given):
    options = read(*given)
    assert options.nproc == 2
    assert options.command == ("train.py", "--nproc", "3")


def test_a_double_dash_of_the_script_stays():
    assert read("--", "train.py", "--", "x").command == ("train.py", "--", "x")
    assert read("train.py", "--", "x").command == ("train.py", "--", "x")


def test_a_module():
    options = read("-m", "package.train", "--lr", "1")
    assert options.module
    assert options.command == ("package.train", "--lr", "1")


def test_a_manifest():
    assert read("-f", "job.yaml").manifest == Path("job.yaml")


def test_what_makes_a_run_repeatable():
    asked = read("--seed", "7", "--threads", "2", "--deterministic", "train.py").reproducibility
    assert asked == Reproducibility(seed=7, threads=2, deterministic=True)
    assert not read("train.py").reproducibility.asked


def test_probes():
    given = ("--probe", "A.every=10", "--probe", "A.enabled=false", "--probe", "B.name=x", "train.py")
    assert read(*given).probes == {"A": {"every": 10, "enabled": False}, "B": {"name": "x"}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "give a script"),
        (("-f", "job.yaml", "train.py"), "with -f the manifest says what runs"),
        (("-f", "job.yaml", "--nproc", "2"), "with -f the manifest says what runs"),
        (("--nproc", "0", "train.py"), "--nproc 0: give a whole number above 0"),
        (("--nnodes", "two", "train.py"), "--nnodes two: give a whole number above 0"),
        (("--seed", "-1", "train.py"), "--seed is '-1': give a whole number from 0 to 4294967295"),
        (("--seed", "4294967296", "train.py"), "--seed is 4294967296"),
        (("--threads", "0", "train.py"), "--threads is 0: give a whole number from 1"),
        (("--hold-timeout", "soon", "train.py"), "'soon' is not a duration"),
        (("--probe", "A=1", "train.py"), "write NAME.PARAM=VALUE"),
    ],
)
def test_what_can_not_be_meant_is_said(given, said):
    with pytest.raises(UsageError, match=said):
        read(*given)
