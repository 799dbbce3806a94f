"""Whose value it is, and which of two is the last: from an adapter's own door to the order on the service.

A case is decided alike whatever door it came through, so that the doors take turns; what a door itself reads is asked of each.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.harness.result_doors import DOORS
from tests.harness.result_histories import (
    ALT,
    CREATININE,
    GLUCOSE,
    PATIENTS,
    REPEATED,
    SECOND_TUBE,
    SETTLED,
    TOLD,
    TUBE,
    WAITS,
    Case,
    Look,
    Place,
    Poll,
    Release,
    Say,
    play,
)
from tests.integration.workflow.conftest import parametrize_first


def on_tube(value: str, test: str | None = GLUCOSE, *, tube: str = TUBE, **more: Any) -> Say:
    """A message that names a tube and a test."""
    return Say(value, said={"barcode": tube, "item": test, **more.pop("said", {})}, **more)


def cases(table: Mapping[str, Case]) -> Any:
    """The cases, through one door after the other; the first one is quick."""
    return pytest.mark.parametrize(("adapter", "case"), [
        pytest.param(adapter, case, id=f"{adapter}: {name}", marks=() if name == next(iter(table)) else pytest.mark.slow)
        for (name, case), adapter in zip(table.items(), itertools.cycle(DOORS), strict=False)
    ])  # fmt: skip


SHARED = (Place("A", (GLUCOSE,)), Place("B", (CREATININE,)))
"""An add-on: two orders of one patient, both open, from one tube."""
BOTH = (Place("A"), Place("B"))
"""The same test ordered twice, from one tube."""
B_ENDED = on_tube("61", CREATININE, report="C-1", said={"code": "CREA"})
SHARED_TUBES = {
    "the code of the value is of one": Case((*SHARED, on_tube("5.4", None)), {"A": "5.4"}),
    "the test is of one": Case((*SHARED, on_tube("5.4")), {"A": "5.4"}),
    "the later order has ended": Case((*SHARED, B_ENDED, on_tube("5.4")), {"A": "5.4", "B": "61"}),
    "one is open, and nothing names a test": Case(
        (*SHARED, B_ENDED, on_tube("5.4", None, said={"code": "14749-6"})), {"A": "5.4", "B": "61"}),
    "both have ordered the test": Case((*BOTH, on_tube("5.4", comes_to=WAITS, names=("A", "B"))), {}),
    "neither has ordered the test": Case(
        (*SHARED, on_tube("20", ALT, said={"code": "ALT"}, comes_to=WAITS, names=("A", "B"))), {}),
    "the only one has not ordered what the code is of": Case(
        (Place("A"), on_tube("61", None, said={"code": "CREA"}, comes_to=WAITS, names=("A",))), {}),
    "it was collected before the later order": Case(
        (Place("A"), Place("B", hours=48), on_tube("5.4")), {"A": "5.4"}),
    "the patient is of one": Case(
        (Place("A"), Place("B", patient="bert"), on_tube("5.4", patient=PATIENTS["anna"])), {"A": "5.4"}),
    "its number is unknown, and the order that had the tube has ended": Case(
        (Place("A"), on_tube("14.9"), Place("B", hours=48),
         on_tube("5.4", report="C-1", said={"accession": "B-7"}, collected_of="B")), {"A": "14.9", "B": "5.4"}),
    "the laboratory gave both one number": Case(
        (Place("A", accession="F1"), Place("B", (CREATININE,), SECOND_TUBE, accession="F1"),
         Say("5.4", said={"accession": "F1", "item": GLUCOSE})), {"A": "5.4"}),
}  # fmt: skip


@cases(SHARED_TUBES)
async def test_value_on_shared_tube_goes_where_ordered(adapter: str, case: Case, tmp_path: Path) -> None:
    await play(case, adapter, tmp_path)


FIRST = on_tube("14.9", said={"version": 1})
"""A report that ends its order; its further versions are of that order."""


def used_again(**more: Any) -> Place:
    """Two days later, an order with a tube of its own or the one that was used before."""
    return Place("B", **{"patient": "bert", "hours": 48, "accession": "F2", **more})


def second(**more: Any) -> Say:
    """The second version of the report."""
    said = {"version": 2, "item": GLUCOSE, "status": "amended", **more.pop("said", {})}
    return Say("4.9", said=said, **more)


_WHOLE = {"A": "4.9"}
_KEPT = {"A": "14.9"}


def both(later: Place, said: Say, reads: dict[str, str]) -> Case:
    """The first version, the later order, and the second version."""
    return Case((A, FIRST, later, said), reads)


A = Place("A")
IDENTITY = {
    "its tube is another patient's by now": both(used_again(), second(said={"barcode": TUBE}), _WHOLE),
    "its tube is in a later order of the patient": both(used_again(patient="anna"), second(said={"barcode": TUBE}), _WHOLE),
    "its tube is in an order of another test": both(
        used_again(tests=(CREATININE,)), second(said={"barcode": TUBE, "item": None}), _WHOLE),
    "it names another order": both(used_again(), second(order="B", comes_to=WAITS), _KEPT),
    "it names a line of another order": both(used_again(), second(line_of="B", comes_to=WAITS), _KEPT),
    "it names the number of another order": both(used_again(), second(said={"accession": "F2"}, comes_to=WAITS), _KEPT),
    "it names the tube of another order": both(
        used_again(tube=SECOND_TUBE), second(said={"barcode": SECOND_TUBE}, comes_to=WAITS), _KEPT),
    "it names the patient of another order": both(
        used_again(), second(said={"barcode": TUBE}, patient=PATIENTS["bert"], comes_to=WAITS), _KEPT),
}  # fmt: skip


@cases(IDENTITY)
async def test_report_stays_with_its_order(adapter: str, case: Case, tmp_path: Path) -> None:
    await play(case, adapter, tmp_path)


def then(value: str, at: str, *, version: int | None = None, corrected: bool = False, status: str = "final", **more: Any) -> Say:
    """A version of the report of order A."""
    status = "amended" if corrected else status
    return Say(value, at=at, order="A", said={"item": GLUCOSE, "version": version, "status": status}, **more)


def _twice(hour: int, minute: int) -> dict[str, Any]:
    """A local time of the night in which summer time ends."""
    return {"issued": datetime(2026, 10, 25, hour, minute), "item": GLUCOSE}  # noqa: DTZ001 - it has no offset


CORRECTED: dict[str, Any] = {"corrected": True}
SAID = then("14.9", "13:15")
SEEMING_OLDER = {
    "earlier, corrected": Case((A, SAID, then("4.9", "13:08", **CORRECTED)), _WHOLE),
    "earlier, not corrected": Case((A, SAID, then("4.9", "13:08", comes_to=WAITS)), _KEPT),
    "of the same moment, corrected": Case((A, SAID, then("4.9", "13:15", **CORRECTED)), _WHOLE),
    "of the same moment, not corrected": Case((A, SAID, then("4.9", "13:15")), _WHOLE),
    "earlier and earlier": Case((A, SAID, then("9.9", "13:08", **CORRECTED), then("4.9", "13:01", **CORRECTED)), _WHOLE),
    "corrected back to what it was, earlier": Case(
        (A, then("4.9", "13:15"), then("14.9", "13:08", **CORRECTED), then("4.9", "13:01", **CORRECTED)), _WHOLE),
    "earlier, of a higher version": Case((A, then("14.9", "13:15", version=1), then("4.9", "13:08", version=2)), _WHOLE),
    "later, of a lower version, corrected": Case(
        (A, then("14.9", "13:15", version=2), then("4.9", "13:20", version=1, comes_to=WAITS, **CORRECTED)), _KEPT),
    "earlier than another correction": Case(
        (A, then("9.9", "13:15"), then("14.9", "13:20", **CORRECTED), then("4.9", "13:18", comes_to=WAITS, **CORRECTED)), _KEPT),
    "earlier, and the first that is final": Case(
        (A, then("14.9", "13:15", status="preliminary"), then("4.9", "13:08", comes_to=WAITS), Release()), _WHOLE),
    "earlier, and says the same": Case((A, then("4.9", "13:15"), then("4.9", "13:08", comes_to=SETTLED)), _WHOLE),
    "in the hour that comes twice, corrected": Case(
        (A, Say("14.9", order="A", said=_twice(2, 45)), Say("4.9", order="A", said={**_twice(2, 10), "status": "amended"})),
        _WHOLE, datetime(2026, 10, 25, 2, tzinfo=UTC)),
}  # fmt: skip


@cases(SEEMING_OLDER)
async def test_later_message_of_earlier_time_is_not_dropped(adapter: str, case: Case, tmp_path: Path) -> None:
    await play(case, adapter, tmp_path)


def _sent(*messages: tuple[str, str, str | None], since: int = 0, **more: Any) -> tuple[Say, ...]:
    """Messages (value, time, the sender's name of it) after `since` others; all but the very first are marked as corrections."""
    statuses = ("final", *["amended"] * (since + len(messages)))
    return tuple(
        Say(value, at=at, order="A", said={"item": GLUCOSE, "id": name, "written": number, "status": statuses[number]}, **more)
        for number, (value, at, name) in enumerate(messages, since)
    )


_TWO_AND_TWO = (("4.9", "13:15"), ("5.9", "13:20"), ("4.9", "13:25"), ("5.9", "13:30"))
_AT_ONCE = tuple((value, "13:15") for value, _ in _TWO_AND_TWO)
_LAST = _sent(("4.9", "13:15", "1"), ("5.9", "13:20", "1"))
_READS = {"A": "5.9"}
REPEATS = {
    "one time for all": Case((A, *_sent(*((*each, None) for each in _AT_ONCE))), _READS),
    "the first comes twice": Case((A, *_sent(("5.9", "13:15", "1")), *_sent(("5.9", "13:15", "1"), comes_to=REPEATED)), _READS),
    # over HL7 v2, whose messages have no other name than this
    "one name and one time for all": Case((A, *_sent(*((*each, "1") for each in _AT_ONCE))), _READS),
    "the last comes twice": Case((A, *_LAST, *_sent(("5.9", "13:20", "1"), since=1, comes_to=REPEATED)), _READS),
    "the first comes once more after the second": Case(
        (A, *_sent(("4.9", "13:15", "1"), ("5.9", "13:20", "2")), *_sent(("4.9", "13:15", "1"), comes_to=None)), _READS
    ),
}


@cases(REPEATS)
async def test_last_message_is_what_clinic_reads(adapter: str, case: Case, tmp_path: Path) -> None:
    await play(case, adapter, tmp_path)


NAMED = ("barcode", "order", "line", "number")
EACH_NAME = Case(
    (
        *(Place(name, tube=str(int(TUBE) + number), accession=f"F{number}") for number, name in enumerate((*NAMED, "A"))),
        on_tube("5.0", report="R0", collected_of="barcode"),
        Say("5.1", report="R1", order="order", collected_of="order"),
        Say("5.2", report="R2", line_of="line", collected_of="line"),
        Say("5.3", report="R3", said={"accession": "F3"}, collected_of="number"),
        *_sent(*((*each, "1") for each in _TWO_AND_TWO)),
    ),
    {**{name: f"5.{number}" for number, name in enumerate(NAMED)}, **_READS},
)


@parametrize_first("adapter", DOORS)
async def test_door_reads_each_name_of_an_order_and_messages_of_one_name(adapter: str, tmp_path: Path) -> None:
    await play(EACH_NAME, adapter, tmp_path)


TO_COME = Place("A", accession="F1", is_polled=False)
EARLY = {
    "tube": on_tube("5.4", None, comes_to=WAITS),
    "order": Say("5.4", order="A", comes_to=WAITS),
    "line": Say("5.4", line_of="A", comes_to=WAITS),
    "number": Say("5.4", said={"accession": "F1"}, comes_to=WAITS),
}
BEFORE_THEIR_ORDER = {
    **{f"by its {name}": Case((TO_COME, early, Poll(), Look(TOLD)), {"A": "5.4"}) for name, early in EARLY.items()},
    "in two versions": Case(
        (TO_COME, on_tube("4.9", comes_to=WAITS), on_tube("5.4", at="13:20", comes_to=WAITS), Poll(), Look(TOLD)), {"A": "5.4"}
    ),
    "of another test": Case((TO_COME, on_tube("20", ALT, comes_to=WAITS), Poll(), Look(WAITS, ("A",))), {}),
    "of another patient": Case((TO_COME, on_tube("5.4", patient=PATIENTS["bert"], comes_to=WAITS), Poll(), Look(WAITS)), {}),
}


@cases(BEFORE_THEIR_ORDER)
async def test_result_before_its_order_follows_it(adapter: str, case: Case, tmp_path: Path) -> None:
    await play(case, adapter, tmp_path)
