"""The LIS simulator over HL7 v2 (MLLP): receives OML^O21 on a port of its own, and sends ORU^R01 until the agent accepts them.

It shares no code with the agent's HL7 v2 adapter, so that a mistake in one does not hide in the other; python-hl7 parses.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from typing import Any

import hl7  # type: ignore[import-untyped]
from typing_extensions import override

from lab_sandbox.demo.lis.mllp import MllpServer, connect
from lab_sandbox.demo.lis.simulator import (
    CANCELLATION_SUFFIX,
    LisTransport,
    SimulatorFolders,
    outgoing_messages,
    remove_sent_message,
    write_cancellation,
)
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.partner.errors import Json, encode

_RESULT_STATUSES = {"registered": "I", "preliminary": "P", "partial": "A", "final": "F", "amended": "C"}
_CODING_SYSTEMS = {"http://loinc.org": "LN", "http://snomed.info/sct": "SCT", "http://unitsofmeasure.org": "UCUM"}
_ESCAPES = {"\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\", "\r": "\\X0D\\", "\n": "\\X0A\\"}


def escape(text: str) -> str:
    """A text with HL7's separators escaped."""
    return "".join(_ESCAPES.get(char, char) for char in text)


def parse_order(message: hl7.Message) -> Json:
    """An OML^O21 as the order JSON that the simulator works with."""
    lines: list[Json] = []
    specimens: dict[str, Json] = {}
    for segment in message:
        match str(segment[0]):
            case "ORC":
                lines.append(
                    {"key": component(segment, 2), "ordered_at": _parse_hl7_time(component(segment, 9)), "specimens": []}
                )
                requisition = component(segment, 4)
            case "OBR":
                number = {"value": component(segment, 18)}
                lines[-1] |= {
                    "item": component(segment, 4, 4),
                    "text": message.unescape(component(segment, 4, 2)),
                    "identifiers": [number],
                }
            case "SPM":
                name = component(segment, 2)
                specimens[name] = {"id": name, "collected_at": _parse_hl7_time(component(segment, 17))}
                lines[-1]["specimens"].append(name)
    return {
        "key": str(message.segment("MSH")[10]),
        "requisition": {"value": requisition},
        "ordered_at": lines[0]["ordered_at"],
        "lines": lines,
        "specimens": list(specimens.values()),
    }


def build_result(message: Json, control_id: str, now: datetime) -> str:
    """A report or a rejection as ORU^R01."""
    head = f"MSH|^~\\&|SIMULATOR|LAB|LAB-AGENT||{format_timestamp(now)}||ORU^R01^ORU_R01|{control_id}|P|2.5.1||||||UNICODE UTF-8"
    body = _rejection_segments(message) if message["kind"] == "rejection" else _report_segments(message)
    return "\r".join((head, "PID|1||SIMULATOR", *body)) + "\r"


def build_acknowledgement(message: hl7.Message, now: datetime) -> str:
    """AA, with the simulator's own number for each line."""
    header = message.segment("MSH")
    lines = [str(one[2]) for one in message.segments("ORC")]
    head = f"MSH|^~\\&|SIMULATOR|LAB|LAB-AGENT||{format_timestamp(now)}||ORL^O22|{header[10]}|P|2.5.1"
    numbers = (f"ORC|OK|{line}|S{line[1:]}" for line in lines)
    return "\r".join((head, f"MSA|AA|{header[10]}", *numbers)) + "\r"


def acknowledgement_code(answer: bytes | None, control_id: str) -> str:
    """MSA-1 of the answer to the message with this MSH-10; what is wrong with the answer if it is none."""
    if answer is None:
        return "no answer"
    msa = hl7.parse(answer.decode()).segment("MSA")
    return str(msa[1]) if str(msa[2]) == control_id else "an answer to another message"


def _rejection_segments(message: Json) -> Iterator[str]:
    for number, entry in enumerate(message["not_performed"], 1):
        yield f"OBR|{number}|{entry['line']}||TEST"
        yield f"SPM|1|||{'|' * 17}RH^{escape(entry['reason'])}^HL70490"


def _report_segments(message: Json) -> Iterator[str]:
    placer = "~".join(message.get("lines", ())) or message["order"]
    times = _to_hl7_time(message["effective"]), _to_hl7_time(message["issued"])
    name = escape(message["report_id"])
    yield f"OBR|1|{placer}|{name}|TEST^{name}|||{times[0]}|{'|' * 14}{times[1]}|||{_RESULT_STATUSES[message['status']]}"
    number = count(1)
    for one in message.get("observations", ()):
        yield _observation_segment(next(number), one)
    for document in message.get("documents", ()):
        title = escape(document.get("title", ""))
        yield f"OBX|{next(number)}|ED|PDF^{title}^L||^application^PDF^Base64^{document['content']}||||||F"


def _observation_segment(number: int, observation: Json) -> str:
    kind, value, unit = _value_fields(observation)
    bounds = "~".join(map(_reference_range, observation.get("reference_ranges", ())))
    flags = "~".join(observation.get("flags", ()))
    code, status = _coded_field(observation["code"]), _RESULT_STATUSES[observation["status"]]
    return f"OBX|{number}|{kind}|{code}||{value}|{unit}|{escape(bounds)}|{flags}|||{status}"


def _value_fields(observation: Json) -> tuple[str, str, str]:
    """OBX-2, OBX-5 and OBX-6."""
    match next((name, value) for name, value in observation.items() if name.startswith("value_")):
        case "value_quantity", quantity:
            return ("SN" if "comparator" in quantity else "NM"), _numeric_value(quantity), _unit_field(quantity)
        case "value_codeable_concept", concept:
            return "CWE", _coded_field(concept["coding"][0]), ""
        case "value_range", span:
            return "SN", f"^{span['low']['value']}^-^{span['high']['value']}", _unit_field(span["low"])
        case "value_ratio", ratio:
            return "SN", f"^{ratio['numerator']['value']}^:^{ratio['denominator']['value']}", ""
        case form, text:
            return (*_scalar_value(form, str(text)), "")


def _scalar_value(form: str, text: str) -> tuple[str, str]:
    if form == "value_time":
        return "TM", text.replace(":", "")
    return ("DTM", _to_hl7_time(text)) if form == "value_date_time" else ("ST", escape(text))


def _numeric_value(quantity: Json) -> str:
    return f"{quantity['comparator']}^{quantity['value']}" if "comparator" in quantity else str(quantity["value"])


def _unit_field(quantity: Json) -> str:
    return _coded_field({"code": quantity["code"], "system": quantity["system"]}) if "code" in quantity else ""


def _coded_field(coding: Json) -> str:
    return "^".join((escape(coding["code"]), escape(coding.get("display", "")), _CODING_SYSTEMS[coding["system"]]))


def _reference_range(bounds: Json) -> str:
    return f"{bounds['low']['value']}-{bounds['high']['value']}" if "low" in bounds else f"<{bounds['high']['value']}"


def format_timestamp(moment: datetime) -> str:
    """A time as HL7 TS, with its offset."""
    return f"{moment:%Y%m%d%H%M%S%z}"


def _to_hl7_time(text: str) -> str:
    """An ISO 8601 time as HL7 TS, with fractions of a second."""
    moment = datetime.fromisoformat(text)
    fraction = f".{moment.microsecond // 100:04d}" if moment.microsecond else ""
    return f"{moment:%Y%m%d%H%M%S}{fraction}{moment:%z}"


def _parse_hl7_time(text: str) -> str | None:
    if not text:
        return None
    zone = f"{text[-5:-2]}:{text[-2:]}"
    plain = text[:-5].partition(".")[0]
    return f"{plain[:4]}-{plain[4:6]}-{plain[6:8]}T{plain[8:10]}:{plain[10:12]}:{plain[12:14]}{zone}"


def component(segment: Any, field: int, component: int = 1) -> str:
    """A component's text; empty if it is missing."""
    if len(segment) <= field:
        return ""
    value = segment[field]
    first = value[0] if len(value) else ""
    if isinstance(first, str):
        return first if component == 1 else ""
    part = first[component - 1] if len(first) >= component else ""
    return str(part)


class Hl7Transport(LisTransport):
    """Listens on `port` for orders, and connects to `agent_port` for results."""

    def __init__(self, folders: SimulatorFolders, port: int, agent_port: int) -> None:
        self._folders = folders
        self._agent_port = agent_port
        self._log_lines: list[str] = []
        self._lock = threading.Lock()
        self._server = MllpServer(port, self.receive)

    @override
    def run_once(self) -> Iterator[str]:
        """Logs what was received, and sends results in order; one that is not accepted holds back the rest."""
        while self._log_lines:
            yield self._log_lines.pop(0)
        waiting = list(outgoing_messages(self._folders.results))
        if not waiting:
            return
        try:
            with connect(self._agent_port) as agent:
                for file, message in waiting:
                    text = build_result(message, file.stem, datetime.now().astimezone())
                    if (code := acknowledgement_code(agent.send(text.encode()), file.stem)) != "AA":
                        yield f"{file.name}: not accepted ({code})"
                        return
                    remove_sent_message(file)
                    yield f"sent {file.name}"
        except OSError as exc:
            yield f"results not sent: {type(exc).__name__}"

    @override
    def close(self) -> None:
        self._server.stop()

    def receive(self, data: bytes) -> bytes:
        """Stores an order or a cancellation and gives the acknowledgement; repeats are recognised by MSH-10."""
        message = hl7.parse(data.decode())
        with self._lock:
            self._store_message(message)
        return build_acknowledgement(message, datetime.now().astimezone()).encode()

    def _store_message(self, message: hl7.Message) -> None:
        orcs = message.segments("ORC")
        if str(orcs[0][1]) == "CA":
            self._store_cancellation([str(orc[2]) for orc in orcs])
            return
        order = parse_order(message)
        name = f"{order['key']}.json"
        if not any((folder / name).exists() for folder in (self._folders.orders, self._folders.received_orders)):
            write_atomically(self._folders.orders, name, encode(order))
            self._log_lines.append("received an order")

    def _store_cancellation(self, lines: list[str]) -> None:
        """A cancellation names only lines; they lead to the order."""
        for folder in (self._folders.orders, self._folders.received_orders):
            for file in folder.glob("R*.json"):
                if not file.name.endswith(CANCELLATION_SUFFIX) and lines[0].encode() in file.read_bytes():
                    entries = [{"line": line, "reason": "cancelled"} for line in lines]
                    write_cancellation(self._folders.orders, {"kind": "cancel", "order": file.stem, "lines": entries})
                    self._log_lines.append("received a cancellation")
                    return
