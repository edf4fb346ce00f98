"""Where a run's report goes: a folder that holds nothing else, or an earlier report that it replaces."""

from pathlib import Path

from stepwarden.cli.failure import UsageError

NAME = "stepwarden-report"
RECORDS = ("findings.jsonl", "steps.jsonl")  # they are there, if empty, when nothing was found
FILES = (*RECORDS, "layers.jsonl", "gradcheck.jsonl", "report.html", "run.json", "sidecar.log")
OURS = frozenset({*FILES, "volumes"})
MOST = 10_000


def choose(wanted: Path | None) -> tuple[Path, str | None]:
    """Make the folder; return it and, where it was there already, a sentence. Raises `UsageError`."""
    folder, said = (fresh(Path.cwd()), None) if wanted is None else given(wanted.absolute())
    for name in RECORDS:
        (folder / name).touch()
    return folder, said


def fresh(parent: Path) -> Path:
    """Make a folder that was not there before."""
    for number in range(1, MOST):
        folder = parent / (NAME if number == 1 else f"{NAME}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            message = (
                f"can't make the report's folder {folder}: {error.strerror}: choose another with --report DIR"
            )
            raise UsageError(message) from error
        return folder
    message = f"{parent} holds {MOST} reports: remove some, or choose another folder with --report DIR"
    raise UsageError(message)


def given(folder: Path) -> tuple[Path, str | None]:
    """Take the folder that a person named."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name for path in folder.iterdir()}
        if strange := sorted(there - OURS):
            message = (
                f"--report {folder} holds {strange[0]}, which is no part of a report: give an empty folder"
            )
            raise UsageError(message)
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        (folder / RECORDS[0]).touch()
    except OSError as error:
        message = f"can't write the report to {folder}: {error.strerror}"
        raise UsageError(message) from error
    return folder, f"the earlier report in {folder} is replaced" if there else None
