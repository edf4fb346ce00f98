import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "local.md"


def test_the_options_in_the_docs_are_current():
    """Argparse wraps differently from Python to Python; the words are the same."""
    command = [sys.executable, "-m", "stepwarden.cli", "run", "--help"]
    said = subprocess.check_output(command, env=os.environ | {"COLUMNS": "110"}, text=True)
    block = PAGE.read_text(encoding="utf-8").partition("<!-- help")[2].split("```")[1]
    assert sorted(words(block)) == sorted(words(said))


def words(text):
    """Before Python 3.13 argparse says `-f X, --file X`, since then `-f, --file X`."""
    return text.replace("-f JOB.YAML, --file JOB.YAML", "-f, --file JOB.YAML").split()
