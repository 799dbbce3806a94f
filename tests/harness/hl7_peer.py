"""A laboratory system's end of an MLLP connection: it sends messages that are written by hand, and reads the answers.

`read_message` reads one without a connection, as `try` does: `tests/dialects/test_inputs.py` shows that both read alike.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.hl7v2 import Hl7v2Adapter
from lab_agent.lis.lab_messages import LabReport, ReportedObservation
from lab_agent.lis.laboratory_system import ParsedPart
from lab_agent.lis.testing import MemoryInbox
from tests.harness.clock import DEADLINE
from tests.harness.hl7_wire import Wire, dialled, framed, make_adapter, running


@dataclass
class Hl7Peer:
    """One connection to the adapter. `inbox` is what the adapter stored, `folder` its own folder."""

    wire: Wire
    inbox: MemoryInbox
    adapter: Hl7v2Adapter
    folder: Path

    async def send(self, *segments: str) -> str:
        """Send one message, and give the code and the reasons of its answer: `AA`, or `AE: why`."""
        await self.wire.send(framed("".join(f"{segment}\r" for segment in segments)))
        lines = (await self.wire.frame()).decode().rstrip("\r").split("\r")
        code = next(line for line in lines if line.startswith("MSA")).split("|")[1]
        reason = next((line.split("|")[8] for line in lines if line.startswith("ERR")), "")
        return f"{code}: {reason}" if reason else code

    async def codes(self, data: bytes, count: int = 1) -> list[str]:
        """Send the bytes in a frame, and give the codes of so many answers."""
        await self.wire.send(framed(data))
        answers = [await self.wire.frame() for _ in range(count)]
        return [answer.split(b"\rMSA|")[1][:2].decode() for answer in answers]

    @property
    def reports(self) -> list[LabReport]:
        """The reports that were stored, in order."""
        return [one for one in self.inbox.contents if isinstance(one, LabReport)]

    def values(self) -> dict[str, list[str]]:
        """What was stored, by accession or barcode: the values of its reports."""
        found: dict[str, list[str]] = {}
        for report in self.reports:
            found.setdefault(report.accession or report.barcode or "+".join(report.lines) or "", []).extend(
                map(value_text, report.observations)
            )
        return found


def value_text(one: ReportedObservation) -> str:
    """The value of an observation as text."""
    return str(one.value_quantity.value) if one.value_quantity else str(one.value_string)


@dataclass(frozen=True)
class Reading:
    """What a message becomes."""

    parts: tuple[ParsedPart, ...]

    @property
    def reports(self) -> list[LabReport]:
        """Its reports, in order."""
        return [part.content for part in self.parts if isinstance(part.content, LabReport)]

    @property
    def said(self) -> str:
        """Its reports as `accession@line/barcode: value, value`, one behind the other; of a line its first two characters."""
        return "; ".join(map(_report_text, self.reports))

    @property
    def refused(self) -> str:
        """Why parts of it are refused; empty if it is acknowledged."""
        return "; ".join(f"{part.place}: {part.problem}" for part in self.parts if part.problem)

    @property
    def left_out(self) -> str:
        """Which parts of it were left out on purpose."""
        return "; ".join(note for part in self.parts if not part.problem for note in part.notes)


def _report_text(report: LabReport) -> str:
    lines = "+".join(line[:2] for line in report.lines)
    name = (report.accession or "") + (f"@{lines}" if lines else "") + (f"/{report.barcode}" if report.barcode else "")
    return f"{name}: {', '.join(map(value_text, report.observations))}"


async def read_message(folder: Path, *segments: str, mapping: str = "", **settings: object) -> Reading:
    """Read a message with a field map of its own; nothing is started, stored or answered."""
    adapter = make_adapter(folder, mapping=_map(folder, mapping), **settings)
    read = await GuardedAdapter(adapter, "hl7v2", timeout=DEADLINE).parse_message(
        ("\r".join(segments) + "\r").encode(), "message"
    )
    return Reading(read.parts)


@asynccontextmanager
async def connected_peer(folder: Path, *, mapping: str = "", **settings: object) -> AsyncIterator[Hl7Peer]:
    """Run an adapter that listens for results, with a field map of its own, and connect to it."""
    inbox = MemoryInbox()
    async with running(folder, inbox, mapping=_map(folder, mapping), **settings) as adapter, dialled(adapter.ports[1]) as wire:
        yield Hl7Peer(wire, inbox, adapter, folder / "own")


def _map(folder: Path, mapping: str) -> Path:
    path = folder / "map.toml"
    path.write_text(mapping)
    return path


class Case(NamedTuple):
    """A message and what becomes of it; `refused` and `left_out` are parts of what is said, and empty where nothing is."""

    segments: Sequence[str]
    said: str = ""
    refused: str = ""
    left_out: str = ""
    mapping: str = ""

    async def check(self, folder: Path) -> Reading:
        """Read it, and compare."""
        read = await read_message(folder, *self.segments, mapping=self.mapping)
        assert read.said == self.said, read.refused
        for expected, found in ((self.refused, read.refused), (self.left_out, read.left_out)):
            assert expected in found
            assert bool(expected) is bool(found), found
        return read
