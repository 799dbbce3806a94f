"""A laboratory system's end of an MLLP connection: it sends messages that are written by hand, and reads the answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lab_agent.domain.lab_messages import LabReport, ReportedObservation
from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.testing import MemoryInbox
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


@asynccontextmanager
async def connected_peer(folder: Path, *, mapping: str = "", **settings: object) -> AsyncIterator[Hl7Peer]:
    """Run an adapter that listens for results, with a field map of its own, and connect to it."""
    table = {
        "orders": {"role": "server", "port": 0},
        "folder": folder / "own",
        "duplicates": "msh10",
        "mapping": _write_map(folder, mapping),
        **settings,
    }
    adapter, inbox = Hl7v2Adapter(Hl7v2Settings.model_validate(table), "hl7v2"), MemoryInbox()
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


def _write_map(folder: Path, mapping: str) -> Path:
    path = folder / "map.toml"
    path.write_text(mapping)
    return path
