"""HL7 v2 messages of results over MLLP, from the laboratory system's port to what the service gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from lab_agent.workflow.result_inbox import StoreInbox
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.result_reader import ReceivedReport
from tests.harness.hl7_wire import dialled, framed, running
from tests.harness.results import ResultsBench

HEADER = "MSH|^~\\&|LIS|LAB|AGENT||20260303100000+0000||ORU^R01^ORU_R01|{}|P|2.5.1"


@dataclass
class Hl7Results:
    """Sends results to the adapter of a bench, and lets everything that follows happen."""

    bench: ResultsBench
    port: int
    numbers: Any

    async def send(self, *segments: str, patient: str = "PID|1||X") -> str:
        """Send a message of these segments, after the PID; the code of the answer and its reason, such as `AE OBR 1: …`."""
        text = "\r".join((HEADER.format(f"M{next(self.numbers)}"), patient, *segments)) + "\r"
        async with dialled(self.port) as wire:
            await wire.send(framed(text))
            answer = (await wire.frame()).decode().split("\r")
        await self.bench.run_until_idle()
        reasons = [segment.split("|")[8] for segment in answer if segment.startswith("ERR|")]
        return " ".join((answer[1].split("|")[1], *reasons))

    async def values(self, code: str) -> list[Json]:
        """Every Observation of a LOINC code that the clinic reads, in the order of its reports."""
        reports = await self.bench.clinic_reports()
        return [one for report in reports for one in report.observations if observation_code(one) == code]


def observation_code(observation: Json) -> str:
    return str(observation["code"]["coding"][0]["code"])


def reports_with(reports: list[ReceivedReport], wanted: Callable[[Json], bool]) -> list[ReceivedReport]:
    return [report for report in reports if any(wanted(one) for one in report.observations)]


@asynccontextmanager
async def results_over_mllp(bench: ResultsBench, folder: Path, mapping: str = "") -> AsyncIterator[Hl7Results]:
    """An adapter that listens for results, with the bench's store behind it; `mapping` is what differs from the default map."""
    keys: dict[str, Any] = {name: {"role": "server", "port": 0} for name in ("orders", "results")}
    if mapping:
        keys["mapping"] = folder / "map.toml"
        keys["mapping"].write_text(mapping)
    async with running(folder, StoreInbox(bench.store, bench.clock, "lis"), **keys) as adapter:
        yield Hl7Results(bench, adapter.ports[1], count(1))
