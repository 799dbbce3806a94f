"""The reader's work grows with the message, not with its square: one peer's long message must not hold up the others'."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lab_agent.lis.hl7v2.field_map import default_field_map
from lab_agent.lis.hl7v2.parser import parse_message
from lab_agent.lis.hl7v2.results.obx_values import ObxValueReader
from lab_agent.lis.hl7v2.results.result_reader import ResultReader

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
@pytest.mark.parametrize("make", [headings, pages, containers, relatives, left_over])
def test_work_grows_with_the_message(make: Callable[[int], list[str]], kind: str) -> None:
    reader = ResultReader(ObxValueReader(default_field_map(), ZoneInfo("UTC")), lambda _: None)

    def work(size: int) -> int:
        text = "\r".join((MSH.format(kind), "PID|1||4711", *make(size)))
        return count_steps(lambda: reader.read(parse_message(text)))

    work(2)  # what is made once, such as the paths of the map
    assert work(60) < 7 * work(15)  # four times as much would be in proportion, sixteen times its square
