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

MSH = "MSH|^~\\&|LIS|LAB|AGENT||20240518100000+0300||{}|1|P|2.5.1"
RESULT = "OBX|1|NM|{}^^L||5|mmol/L|||||F"


def obr(filler: str, code: str = "GLU") -> str:
    return f"OBR|1||{filler}|{code}|||20240517083000+0300|||||||||||||||20240518090000+0300|||F"


def headings(size: int) -> list[str]:
    results = (line for n in range(size) for line in (f"{obr(f'G{n}')}||||^F{n}", RESULT.format("A")))
    return [*(obr(f"F{n}", "PANEL") for n in range(size)), *results]


def pages(size: int) -> list[str]:
    return [line for n in range(size) for line in (obr("F1"), RESULT.format(f"C{n}"))]


def containers(size: int) -> list[str]:
    return ["SPM|1|T1", *["SAC|||C"] * size, *(line for n in range(size) for line in (obr(f"F{n}"), RESULT.format("A")))]


def relatives(size: int) -> list[str]:
    return [*["NK1|1|X"] * size, *(line for n in range(size) for line in (obr(f"F{n}"), RESULT.format("A")))]


def left_over(size: int) -> list[str]:
    return [line for n in range(size) for line in ("SPM|1|T1", obr(f"F{n}"), RESULT.format("A"), "SPM|2|T2")]


def texts(size: int) -> list[str]:
    return [obr("F1"), *(f"OBX|1|ST|C{n}^^L||short||||||F" for n in range(4 * size))]


def long_texts(size: int) -> list[str]:
    return [obr("F1"), *(f"OBX|1|ST|C{n}^^L||{'a text of several lines ' * 3}||||||F" for n in range(4 * size))]


def empty_lines(size: int) -> list[str]:
    return [obr("F1"), "OBX|1|TX|A||one||||||F", *["OBX|1|TX|A||||||||F"] * (4 * size), "OBX|1|TX|A||two||||||F"]


def copies(size: int) -> list[str]:
    return [obr("F1"), *(line for n in range(size) for line in (RESULT.format("A"), f"NTE|1||note {n}"))]


def notes_of_all(size: int) -> list[str]:
    return [*["NTE|1||note"] * size, *(line for n in range(size) for line in (obr(f"F{n}"), RESULT.format("A")))]


def numbers_of_all(size: int) -> list[str]:
    return [
        f"PID|1||{'~'.join(map(str, range(size)))}",
        *(line for n in range(size) for line in (obr(f"F{n}"), RESULT.format("A"))),
    ]


def isolates(size: int) -> list[str]:
    organisms = (f"OBX|1|CE|600-7^^LN|{n}|O{n}^Organism {n}^L||||||F" for n in range(size))
    drugs = (line for n in range(size) for line in (obr("F1", "SENS"), f"OBX|1|NM|D^^L|{n}|1|mg/L||S|||F"))
    return [obr("F1", "CULTURE"), *organisms, *drugs]


KINDS = (headings, pages, containers, relatives, left_over, texts, long_texts, empty_lines, copies, notes_of_all, numbers_of_all)


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


@pytest.mark.parametrize("kind", ["ORU^R01", "OUL^R22"])
@pytest.mark.parametrize("make", [*KINDS, isolates])
def test_work_grows_with_the_message(make: Callable[[int], list[str]], kind: str) -> None:
    reader = ResultReader(ObxValueReader(default_field_map(), ZoneInfo("UTC")), lambda _: None)

    def work(size: int) -> int:
        text = "\r".join((MSH.format(kind), "PID|1||4711", *make(size)))
        return count_steps(lambda: reader.read(parse_message(text)))

    work(2)  # what is made once, such as the paths of the map
    assert work(60) < 7 * work(15)  # four times as much would be in proportion, sixteen times its square


@pytest.mark.parametrize("make", [*KINDS, isolates])
def test_trial_grows_with_the_message(make: Callable[[int], list[str]]) -> None:
    given = {"orders": {"role": "client", "port": 1}, "folder": Path("none"), "duplicates": "none"}
    settings, archive = Hl7v2Settings.model_validate(given), MessageArchive(Path("none"), 1)

    def work(size: int) -> int:
        raw = "\r".join((MSH.format("ORU^R01"), "PID|1||4711", *make(size))).encode()
        return count_steps(lambda: trace_raw_message(raw, "lis", settings, archive))

    work(2)
    assert work(60) < 7 * work(15)


@pytest.mark.parametrize("text", ["\n" * 100_000, "\\" * 300_000, "\\.br" * 300_000])
def test_runs_of_marks_are_read_at_once(text: str) -> None:
    """The steps of an expression, and the characters that a string copies, cannot be counted: their square is minutes here."""
    before = time.process_time()
    message = parse_message("\r".join((MSH.format("ORU^R01"), obr("F1"), RESULT.format("A").replace("|5|", f"|5{text}x|"))))
    assert message.segments[-1].text(5).startswith("5")
    assert time.process_time() - before < 10
