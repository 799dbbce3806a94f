"""The reader's work grows with the message, not with its square: one peer's long message must not hold up the others'."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.message_trace import trace_raw_message
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.result_reader import ResultReader
from lab_agent.lis.hl7v2.settings import Hl7v2Settings

pytestmark = pytest.mark.slow

MSH = "MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{}|1|P|2.5.1"
RESULT = "OBX|1|NM|{}^^L||5|mmol/L|||||F"


def obr(filler: str, code: str = "GLU") -> str:
    return f"OBR|1||{filler}|{code}|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"


Lines = list[str]
A_RESULT = RESULT.format("A")
TEXT = "OBX|1|TX|A||one||||||F"
LONG = "a text of several lines " * 3


def each_obr(size: int) -> Lines:
    return [line for n in range(size) for line in (obr(f"F{n}"), A_RESULT)]


def isolates(size: int) -> Lines:
    organisms = (f"OBX|1|CE|600-7^^LN|{n}|O{n}^Organism {n}^L||||||F" for n in range(size))
    drugs = (line for n in range(size) for line in (obr("F1", "SENS"), f"OBX|1|NM|D^^L|{n}|1|mg/L||S|||F"))
    linked = (line for n in range(size) for line in (f"{obr('F1', 'AST')}|600-7^{n}", "OBX|1|NM|E^^L||1|mg/L||S|||F"))
    return [obr("F1", "CULTURE"), *organisms, *drugs, *linked]


KINDS: dict[str, Callable[[int], Lines]] = {
    "headings": lambda size: [
        *(obr(f"F{n}", "PANEL") for n in range(size)),
        *(line for n in range(size) for line in (f"{obr(f'G{n}')}||||^F{n}", A_RESULT)),
    ],
    "pages": lambda size: [line for n in range(size) for line in (obr("F1"), RESULT.format(f"C{n}"))],
    "containers": lambda size: ["SPM|1|T1", *["SAC|||C"] * size, *each_obr(size)],
    "relatives": lambda size: [*["NK1|1|X"] * size, *each_obr(size)],
    "left over": lambda size: [line for n in range(size) for line in ("SPM|1|T1", obr(f"F{n}"), A_RESULT, "SPM|2|T2")],
    "texts": lambda size: [obr("F1"), *(f"OBX|1|ST|C{n}^^L||short||||||F" for n in range(4 * size))],
    "long texts": lambda size: [obr("F1"), *(f"OBX|1|ST|C{n}^^L||{LONG}||||||F" for n in range(4 * size))],
    "empty lines": lambda size: [obr("F1"), TEXT, *["OBX|1|TX|A||||||||F"] * (4 * size), TEXT],
    "copies": lambda size: [obr("F1"), *(line for n in range(size) for line in (A_RESULT, f"NTE|1||note {n}"))],
    "notes of all": lambda size: [*["NTE|1||note"] * size, *each_obr(size)],
    "numbers of all": lambda size: [f"PID|1||{'~'.join(map(str, range(size)))}", *each_obr(size)],
    "isolates": isolates,
}


def count_steps(work: Callable[[], object]) -> int:
    """How many lines were run, each turn of a loop among them."""
    steps = 0

    def count(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def in_trial(text: str) -> None:
    given = {"orders": {"role": "client", "port": 1}, "folder": Path("none"), "duplicates": "none"}
    trace_raw_message(text.encode(), "lis", Hl7v2Settings.model_validate(given), MessageArchive(Path("none"), 1))


READER = ResultReader(ObxValueReader(default_field_map(), ZoneInfo("UTC")), lambda _: None)


@pytest.mark.parametrize(("kind", "is_trial"), [("ORU^R01", False), ("OUL^R22", False), ("ORU^R01", True)])
@pytest.mark.parametrize("name", KINDS)
def test_work_grows_with_the_message(name: str, kind: str, is_trial: bool) -> None:
    def work(size: int) -> int:
        text = "\r".join((MSH.format(kind), "PID|1||4711", *KINDS[name](size)))
        return count_steps(lambda: in_trial(text) if is_trial else READER.read(parse_message(text)))

    work(2)  # what is made once, such as the paths of the map
    assert work(60) < 7 * work(15)  # four times as much would be in proportion, sixteen times its square


@pytest.mark.parametrize("text", ["\n" * 100_000, "\\" * 300_000, "\\.br" * 300_000])
def test_runs_of_marks_are_read_at_once(text: str) -> None:
    """The steps of an expression, and the characters that a string copies, cannot be counted: their square is minutes here."""
    before = time.process_time()
    message = parse_message("\r".join((MSH.format("ORU^R01"), obr("F1"), RESULT.format("A").replace("|5|", f"|5{text}x|"))))
    assert message.segments[-1].text(5).startswith("5")
    assert time.process_time() - before < 10
