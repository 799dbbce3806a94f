"""A laboratory system's end of an MLLP connection: it sends messages that are written by hand, and reads the answers.

`read_message` reads one without a connection, as `try` does: `tests/dialects/test_inputs.py` shows that both read alike.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lab_agent.domain.lab_messages import LabReport, ReportedObservation
from lab_agent.lis.guard import GuardedAdapter, GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.testing import MemoryInbox
from lab_agent.ports.lis import ParsedPart
from tests.fakes.hl7_lis import CR, FS, VT
from tests.harness.clock import DEADLINE


@dataclass
class Hl7Peer:
    """One connection to the adapter. `inbox` is what the adapter stored, `folder` its own folder."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    inbox: MemoryInbox
    adapter: Hl7v2Adapter
    folder: Path

    async def send(self, *segments: str) -> str:
        """Send one message, and give the code and the reasons of its answer: `AA`, or `AE: why`."""
        self.writer.write(VT + ("\r".join(segments) + "\r").encode() + FS + CR)
        async with asyncio.timeout(DEADLINE):
            whole = await self.reader.readuntil(FS + CR)
        lines = whole[1:-2].decode().rstrip("\r").split("\r")
        code = next(line for line in lines if line.startswith("MSA")).split("|")[1]
        reason = next((line.split("|")[8] for line in lines if line.startswith("ERR")), "")
        return f"{code}: {reason}" if reason else code

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

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        await self.writer.wait_closed()


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
    adapter = GuardedAdapter(Hl7v2Adapter(_make_settings(folder, mapping, settings), "hl7v2"), "hl7v2", timeout=DEADLINE)
    read = await adapter.parse_message(("\r".join(segments) + "\r").encode(), "message")
    return Reading(read.parts)


@asynccontextmanager
async def connected_peer(folder: Path, *, mapping: str = "", **settings: object) -> AsyncIterator[Hl7Peer]:
    """Run an adapter that listens for results, with a field map of its own, and connect to it."""
    adapter, inbox = Hl7v2Adapter(_make_settings(folder, mapping, settings), "hl7v2"), MemoryInbox()
    await adapter.start(GuardedInbox(inbox, "hl7v2"))
    try:
        peer = await connect_peer(adapter, inbox, folder)
        try:
            yield peer
        finally:
            await peer.close()
    finally:
        await adapter.stop()


async def connect_peer(adapter: Hl7v2Adapter, inbox: MemoryInbox, folder: Path) -> Hl7Peer:
    """A further connection to an adapter."""
    reader, writer = await asyncio.open_connection("127.0.0.1", adapter.ports[1])
    return Hl7Peer(reader, writer, inbox, adapter, folder / "own")


def _make_settings(folder: Path, mapping: str, more: Mapping[str, object]) -> Hl7v2Settings:
    path = folder / "map.toml"
    path.write_text(mapping)
    link = {"role": "server", "port": 0}
    return Hl7v2Settings.model_validate(
        {"orders": link, "folder": folder / "own", "duplicates": "msh10", "mapping": path, **more}
    )


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
