"""A second laboratory system, of the microbiology department: cultures with several isolates, over HL7 v2 (MLLP).

It speaks as such systems do: the culture is an OBR whose OBX name the organisms, told apart by OBX-4; each antibiogram is an OBR
with the filler number and the code of all the others, and only OBR-26 says to which organism it belongs. Drugs are measured
(MIC), or only judged (OBX-8). A culture is reported twice: while it grows, and when it is read.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from pathlib import Path

import hl7  # type: ignore[import-untyped]

from lab_sandbox.demo.lis.mllp import MllpServer, connect
from lab_sandbox.demo.lis.simulator import RECEIVED_FOLDER, SENT_FOLDER, SimulatorFolders
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.lis.transport_hl7 import (
    acknowledgement_code,
    build_acknowledgement,
    component,
    format_timestamp,
    parse_order,
)
from lab_sandbox.partner.errors import Json, decode, encode

ORGANISM_CODE = "6463-4"
_ORGANISM = f"{ORGANISM_CODE}^Bacteria identified in Specimen by Culture^LN"
_ANTIBIOGRAM = "29576-6^Bacterial susceptibility panel^LN"
STAGES = ("P", "F")


@dataclass(frozen=True, slots=True)
class Susceptibility:
    """One drug: its LOINC code, the judgement S, I or R, and the MIC in mg/L; empty where it was only judged."""

    code: str
    name: str
    judgement: str
    mic: str = ""


@dataclass(frozen=True, slots=True)
class Isolate:
    """An organism (SNOMED CT) and its susceptibilities. The same drugs differ between isolates, so that a mixture is seen."""

    code: str
    name: str
    susceptibilities: tuple[Susceptibility, ...]


ISOLATES = (
    Isolate(
        "112283007",
        "Escherichia coli",
        (
            Susceptibility("18864-9", "Ampicillin", "R", ">=32"),
            Susceptibility("18906-8", "Ciprofloxacin", "S", "0.25"),
            Susceptibility("18955-5", "Nitrofurantoin", "S"),
        ),
    ),
    Isolate(
        "78065002",
        "Enterococcus faecalis",
        (
            Susceptibility("18864-9", "Ampicillin", "S", "<=2"),
            Susceptibility("18906-8", "Ciprofloxacin", "R", "4"),
            Susceptibility("19000-9", "Vancomycin", "S"),
        ),
    ),
)


def build_culture(order: Json, line: Json, stage: str, control_id: str, now: datetime) -> str:
    """The report of a culture as ORU^R01; preliminary (`P`), the organisms are not identified yet and nothing was tested."""
    filler, moment = f"S{line['key'][1:]}", format_timestamp(now)  # the number that its acknowledgement gave
    head = f"MSH|^~\\&|MICROBIOLOGY|LAB|LAB-AGENT||{moment}||ORU^R01^ORU_R01|{control_id}|P|2.5.1||||||UNICODE UTF-8"
    numbers = count(1)
    segments = [head, f"PID|1||{order['key']}", *_culture_group(line, filler, stage, moment, numbers)]
    if stage == "F":
        for sub_id, isolate in enumerate(ISOLATES, 1):
            segments += _antibiogram_group(line, filler, sub_id, isolate, moment, numbers)
    return "\r".join(segments) + "\r"


def _culture_group(line: Json, filler: str, stage: str, moment: str, numbers: Iterator[int]) -> Iterator[str]:
    yield f"ORC|RE|{line['key']}|{filler}"
    yield _observation_request(next(numbers), line, filler, "CULT^Culture^L", moment, stage)
    if stage == "P":
        yield f"OBX|1|ST|{_ORGANISM}|1|Growth of several organisms||||||P"
        return
    for sub_id, isolate in enumerate(ISOLATES, 1):
        yield f"OBX|{sub_id}|CWE|{_ORGANISM}|{sub_id}|{isolate.code}^{isolate.name}^SCT||||||F"


def _antibiogram_group(
    line: Json, filler: str, sub_id: int, isolate: Isolate, moment: str, numbers: Iterator[int]
) -> Iterator[str]:
    parent = f"{_ORGANISM.replace('^', '&')}^{sub_id}^{isolate.name}|||{line['key']}^{filler}"
    yield f"{_observation_request(next(numbers), line, filler, _ANTIBIOGRAM, moment, 'F')}|{parent}"
    for number, drug in enumerate(isolate.susceptibilities, 1):
        comparator = drug.mic.rstrip("0123456789.")
        kind, value = ("SN", f"{comparator}^{drug.mic.removeprefix(comparator)}") if drug.mic else ("ST", "")
        unit = "mg/L^^UCUM" if drug.mic else ""
        yield f"OBX|{number}|{kind}|{drug.code}^{drug.name}^LN||{value}|{unit}||{drug.judgement}|||F"


def _observation_request(number: int, line: Json, filler: str, code: str, moment: str, status: str) -> str:
    collected = format_timestamp(datetime.fromisoformat(line["ordered_at"]))
    return f"OBR|{number}|{line['key']}|{filler}|{code}|||{collected}|{'|' * 14}{moment}|||{status}"


class MicrobiologySystem:
    """Takes orders on `port`, and reports cultures to `agent_port`; each is read `growth` seconds after its first report."""

    def __init__(self, folders: SimulatorFolders, port: int, agent_port: int, growth: float) -> None:
        self._folders = folders
        self._agent_port = agent_port
        self._growth = growth
        folders.create()
        self._server = MllpServer(port, self._receive)

    def run_once(self) -> Iterator[str]:
        """Sends what is due; one that is not accepted is sent again in the next round."""
        for file in sorted(self._folders.received_orders.glob("*.json")):
            order = decode(file.read_bytes())
            for line in order["lines"]:
                if stage := self._due_stage(line):
                    yield self._send(order, line, stage)

    def close(self) -> None:
        """Stops listening."""
        self._server.stop()

    def _receive(self, data: bytes) -> bytes:
        message = hl7.parse(data.decode())
        if component(message.segments("ORC")[0], 1) == "NW":
            order = parse_order(message)
            write_atomically(self._folders.received_orders, f"{order['key']}.json", encode(order))
        return build_acknowledgement(message, datetime.now().astimezone()).encode()

    def _due_stage(self, line: Json) -> str | None:
        first, second = (self._sent_file(line, stage) for stage in STAGES)
        if not first.exists():
            return STAGES[0]
        grown = time.time() - first.stat().st_mtime >= self._growth
        return STAGES[1] if grown and not second.exists() else None

    def _send(self, order: Json, line: Json, stage: str) -> str:
        file, now = self._sent_file(line, stage), datetime.now().astimezone()
        text = build_culture(order, line, stage, file.stem, now)
        try:
            with connect(self._agent_port) as agent:
                code = acknowledgement_code(agent.send(text.encode()), file.stem)
        except OSError as exc:
            return f"{file.name}: not sent ({type(exc).__name__})"
        if code != "AA":
            return f"{file.name}: not accepted ({code})"
        write_atomically(self._folders.sent_messages, file.name, text.encode())
        return f"sent {file.name}"

    def _sent_file(self, line: Json, stage: str) -> Path:
        return self._folders.sent_messages / f"{line['key']}-{stage}.hl7"


def run_microbiology_system(
    own: Path, port: int, agent_port: int, *, growth: float, interval: float, print_line: Callable[[str], None]
) -> None:
    """Runs until SIGTERM or SIGINT, one round every `interval` seconds. Its state is in the folder `own`."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    system = MicrobiologySystem(SimulatorFolders(own / "orders", own / "results", own), port, agent_port, growth)
    print_line(f"orders on port {port}, results to port {agent_port}, state in {own / RECEIVED_FOLDER} and {own / SENT_FOLDER}")
    while not stopped.is_set():
        for line in system.run_once():
            print_line(line)
        stopped.wait(interval)
    system.close()
