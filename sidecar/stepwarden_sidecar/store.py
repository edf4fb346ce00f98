"""
What a sidecar must still know after it was killed, in files beside its socket.

A journal has one finding a line, appended and flushed; its last line may be torn by a kill. Orders
are one small file that is replaced as a whole. A disk that can't be written costs the
durability and a line in the log, never the sidecar.
"""

import json
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwarden.wire import Finding, Instruction, Note, Orders, StepTaken, from_dict, to_dict

log = logging.getLogger(__name__)


class Journal:
    """A file of JSON lines that only grows; where `keep` is given, twice as many are cut back to it."""

    def __init__(self, path: Path, keep: int | None = None) -> None:
        self.path, self.keep = path, keep
        self.lines = 0
        self.broken = False

    def load(self) -> list[Finding]:
        """Read the findings, and end a torn last line so that the next one stands by itself."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return []
        if raw and not raw.endswith(b"\n"):
            self.write("\n")
        found = [finding for line in raw.splitlines() if (finding := read(line)) is not None]
        self.lines = len(found)
        return found

    def append(self, items: Iterable[Finding | StepTaken | Note]) -> None:
        """Add lines; they are with the kernel when this returns."""
        lines = [json.dumps(to_dict(item), allow_nan=False, separators=(",", ":")) for item in items]
        self.lines += len(lines)
        self.write("".join(f"{line}\n" for line in lines))
        if self.keep and self.lines > 2 * self.keep:
            self.cut()

    def write(self, text: str) -> None:
        """Append text; a failure is logged when it begins and when it ends."""
        if not text:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            if not self.broken:
                log.warning("can't write %s: %s", self.path, error)
            self.broken = True
            return
        if self.broken:
            log.warning("writing %s again; what came between is missing there", self.path)
        self.broken = False

    def cut(self) -> None:
        """Keep the last lines only."""
        with suppress(OSError):
            last = self.path.read_text(encoding="utf-8").splitlines()[-(self.keep or 0) :]
            replace(self.path, "".join(f"{line}\n" for line in last))
            self.lines = len(last)


def read(line: bytes) -> Finding | None:
    """Read one line of a journal; None where it is torn."""
    with suppress(ValueError):
        body = json.loads(line)
        if isinstance(body, dict):
            return from_dict(Finding, body)
    return None


class OrdersFile:
    """The last orders, and the instruction that they were made of."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[Orders, Instruction]:
        """Read them; those of a new job where there are none."""
        try:
            body: dict[str, Any] = json.loads(self.path.read_bytes())
            return from_dict(Orders, body["orders"]), from_dict(Instruction, body["instruction"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("can't read %s: %s; going on without the last orders", self.path, error)
        return Orders(), Instruction()

    def save(self, orders: Orders, instruction: Instruction) -> None:
        """Write them."""
        body = {"orders": to_dict(orders), "instruction": to_dict(instruction)}
        try:
            replace(self.path, json.dumps(body) + "\n")
        except OSError as error:
            log.warning("can't write %s: %s", self.path, error)


def replace(path: Path, text: str) -> None:
    """Write a file as a whole: a reader, or a kill, finds the old one or the new one."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
