"""`stepwarden run`: prepares, starts, watches, reports. This is the one place that knows all the parts."""

import shutil
import tempfile
import time
from pathlib import Path

from stepwarden import report
from stepwarden.cli import attempts, plan, processes, reportfolder, terminal
from stepwarden.cli.arguments import Options
from stepwarden.cli.failure import UsageError
from stepwarden.cli.manifest import Manifest
from stepwarden.cli.plan import Plan
from stepwarden.cli.say import say
from stepwarden.cli.signals import Signals


def run(options: Options) -> int:
    """Run, and return the exit code. Raises `UsageError` where nothing was started."""
    job = plan.check(options)
    if job and job.suspend:
        say(f"spec.suspend of {job.name} is true: nothing is started")
        return 0
    folder, note = reportfolder.choose(options.report)
    if note:
        say(note)
    scratch = Path(tempfile.mkdtemp(prefix="stepwarden-"))
    try:
        return execute(prepare(options, job, folder, scratch), folder, scratch)
    except UsageError:
        if options.report is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def prepare(options: Options, job: Manifest | None, folder: Path, scratch: Path) -> Plan:
    """Plan the run. Raises `UsageError`."""
    asking = terminal.interactive()
    if job is None:
        return plan.of_script(options, interactive=asking)
    try:
        return plan.of_manifest(options, job, folder, scratch, interactive=asking)
    except UsageError as error:
        message = f"{options.manifest}: {error}"
        raise UsageError(message) from error


def execute(prepared: Plan, folder: Path, scratch: Path) -> int:
    """Run what was planned, and write the report. Raises `UsageError`."""
    if prepared.notes:
        say(*prepared.notes)
    processes.adopt_orphans()
    began = time.time()
    with Signals() as signals:
        outcome = attempts.run(prepared, folder, scratch, signals)
        facts = report.Facts(
            title=prepared.title,
            ranks=prepared.ranks,
            started=began,
            seconds=time.time() - began,
            exit_code=outcome.code,
            ended_by=outcome.ended_by,
            restarts=outcome.restarts,
        )
        conclude(folder, facts)
    return outcome.code


def conclude(folder: Path, facts: report.Facts) -> None:
    """Write the report, and say where it is."""
    try:
        found = report.write(folder, facts)
    except OSError as error:
        say(f"exit code {facts.exit_code}; can't write the report to {folder}: {error.strerror}")
        return
    findings = "no finding" if found == 0 else "1 finding" if found == 1 else f"{found} findings"
    said = f"exit code {facts.exit_code} after {facts.seconds:.1f} s, {findings}"
    say(f"{said}; report: {folder / 'report.html'}")
