"""The rule for versions of a report: one goes at a time, oldest first, and none takes with it what another has to say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.lab_messages import Document, LabReport, NotPerformed, ObservationStatus, ReportStatus
from lab_agent.lis.serialization import load_stored_message
from lab_agent.results.records import HoldReason
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.state_machines import ReportState
from lab_agent.shared.values import Coding
from lab_agent.status.formatting import load_result
from tests.harness.documents import PDF
from tests.harness.results import AWAY, NOW, ResultsBench, haemoglobin, make_report, open_bench, refused
from tests.integration.results.histories import (
    TABLES,
    Step,
    act,
    dismiss,
    faults,
    get,
    lines,
    mend,
    now,
    play,
    reads,
    release,
    same,
    states,
    values,
    works,
)
from tests.integration.workflow.conftest import parametrize_first

STRANGE = haemoglobin("6.4", id="new", code=Coding(code="NEW"))
ODD: dict[str, Any] = {"effective": NOW + timedelta(days=9)}
"""What an operator is asked about."""
ABSENT = (NotPerformed(line="L0", reason="clotted"),)
OPEN = {"status": ObservationStatus.PRELIMINARY}
EARLY, PART = {"status": ReportStatus.PRELIMINARY}, {"status": ReportStatus.PARTIAL}
DELIVERED, SUPERSEDED, RECEIVED = ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.RECEIVED
UNMAPPED, MATCHED, UNMATCHED = ReportState.UNMAPPED, ReportState.MATCHED, ReportState.UNMATCHED
QUESTION, CONFLICT = HoldReason.QUESTION, HoldReason.CONFLICTING_VERSION
WAITS, NEWER = HoldReason.WAITS_FOR_VERSION, HoldReason.SUPERSEDED_BY_NEWER


def rejection(**more: Any) -> LabReport:
    return replace(make_report(**{"not_performed": ABSENT, **more}), observations=())


def hb(value: str = "1", name: str = "hb", **more: Any) -> Any:
    return haemoglobin(value, id=name, **more)


ONE, TWO = {"version": 1}, {"version": 2}
FINAL = make_report(hb(), **ONE)
BACK = make_report(hb("2", **OPEN), hb("6", "other", **OPEN), **EARLY, **TWO)
SECOND: dict[str, tuple[LabReport, LabReport, Any, str]] = {
    "values of a line not performed": (
        rejection(lines=("L0",), **ONE), make_report(lines=("L0",), **TWO), HoldReason.UNEXPECTED, ""),
    "a rejection of values": (make_report(lines=("L0",), **ONE), rejection(lines=("L0",), **TWO), QUESTION, "leave out hb"),
    "a rejection of early values": (make_report(hb(**OPEN), **EARLY, **ONE), rejection(**TWO), QUESTION, ""),
    "a late rejection": (make_report(**EARLY, **TWO), rejection(**ONE), NEWER, ""),
    "a late repetition": (make_report(**TWO), make_report(**ONE), SUPERSEDED, ""),
    "a late value": (make_report(hb("2"), **TWO), make_report(hb(), **ONE), CONFLICT, ""),
    "fewer lines": (make_report(lines=("L0", "L1"), **ONE), make_report(lines=("L0",), **TWO), QUESTION, "lines: leave out L1"),
    "fewer early values": (make_report(hb(), hb("7", "gram", **OPEN), **EARLY, **ONE), make_report(hb(), **TWO), DELIVERED, ""),
    "early behind a question": (make_report(hb(), **ONE, **ODD), make_report(hb(**OPEN), **TWO), WAITS, ""),
    "repeats a question": (make_report(hb(), **ONE, **ODD), make_report(hb("2"), **TWO), DELIVERED, ""),
    "final values early": (make_report(hb(), hb("6", "other"), **ONE), BACK, QUESTION, "take hb, other from final back"),
    "final report early": (make_report(hb(), hb("6", "other"), **ONE), BACK, QUESTION, "status: goes from final back"),
    "final value early": (make_report(hb(), **PART, **ONE), make_report(hb("2", **OPEN), **PART, **TWO), QUESTION, "take hb"),
    **{f"final report {status.value}": (FINAL, make_report(status=status, **TWO), QUESTION, "")
       for status in (ReportStatus.PARTIAL, ReportStatus.PRELIMINARY, ReportStatus.REGISTERED)},
}  # fmt: skip


@parametrize_first("case", SECOND, quick=4)
async def test_second_version_comes_to(case: str) -> None:
    first, second, expected, named = SECOND[case]
    is_asked = first.effective != NOW
    settled = (now(1, SUPERSEDED),) if is_asked and expected is DELIVERED else ()
    await play((get(first, QUESTION if is_asked else DELIVERED), get(second, expected, named), *settled))


def v(version: int, *observations: Any, **more: Any) -> LabReport:
    """A version of the report."""
    return make_report(*observations, version=version, **more)


L0, L1, L2 = ({"lines": (line,)} for line in ("L0", "L1", "L2"))
AWAY_FOR_REPORTS = refused(None, status=503)


async def deliver_in_two_steps(bench: ResultsBench) -> None:
    await bench.accept(v(1, **L1))
    for _ in range(2):
        await bench.run_due_jobs()


HISTORIES: dict[str, tuple[Step, ...]] = {
    "a missing final value is asked about once": (
        get(v(1, hb("13.2"), hb("7", "other"))), get(v(2, hb("13.4")), QUESTION, "leave out other"), reads("13.2", "7"),
        release(2),
        reads("13.4"), get(v(3, hb("13.5")))),
    "a value final two versions ago is not dropped": (
        get(v(1, hb("5.0"), hb("6.0", "other"))), get(BACK, QUESTION), release(2),
        get(v(3, hb("50.0")), QUESTION, "leave out other")),
    "a report once final stays final": (
        get(v(1, hb())), get(v(2, hb("50", **OPEN), **EARLY), QUESTION), values("1"), get(v(3, hb("2"))), values("1", "2")),
    "what is not performed, said twice, completes nothing else": (
        get(rejection(version=1)), get(rejection(version=2)), lines("cancelled"), reads(), get(v(3, lines=("L1", "L2"), **PART))),
    "a released late rejection cancels nothing": (
        get(v(2, **EARLY)), get(rejection(version=1), NEWER), release(2), now(2, SUPERSEDED), lines()),
    "a late older version waits for a pending newer one": (
        faults(AWAY), get(v(2, hb("2")), MATCHED), get(v(1, hb("1")), RECEIVED), works(), now(2, CONFLICT), values("2")),
    "a rejection does not end a pending version": (
        faults(refused(2, status=503)), act(deliver_in_two_steps), get(rejection(version=2), QUESTION, "leave out hb"),
        now(1, DELIVERED), lines("accepted", "completed")),
    # who lets a version go before an older one, or answered an earlier question, has not seen the next one
    "a release answers only the question shown": (
        get(v(1, hb("1"), hb("6", "b"), **ODD), QUESTION), get(v(2, hb("2"), **ODD), WAITS), release(2, moved=False),
        now(2, QUESTION),
        release(2), now(1, NEWER, "without b"), release(1), now(1, SUPERSEDED)),
}  # fmt: skip
UNREADABLE = v(1, hb("1"), STRANGE)
WITH_TABLES: dict[str, tuple[Step, ...]] = {
    "a newer version that drops held final values waits, and asks": (
        get(UNREADABLE, UNMAPPED), get(v(2, hb("2")), WAITS), mend(release_all=True), now(1, DELIVERED),
        now(2, QUESTION, "out new"),
        release(2), now(2, DELIVERED)),
    # nobody is asked twice, until a version says all of it
    "a released newer version keeps the larger one held": (
        get(UNREADABLE, UNMAPPED), get(v(2, hb("2")), WAITS), release(2), now(2, DELIVERED), now(1, NEWER, "without new"),
        get(v(3, hb("3"))), now(1, NEWER), mend(release_all=True), get(v(4, hb("4"), STRANGE)), now(1, SUPERSEDED)),
    "an unmapped report that is released still asks": (
        get(make_report(STRANGE, **ODD), UNMAPPED), mend(), release(1, moved=False), now(1, QUESTION)),
    "what was not performed is content": (
        get(v(1, hb("1"), STRANGE, not_performed=ABSENT), UNMAPPED), mend(),
        get(v(2, hb("1"), STRANGE, not_performed=(NotPerformed(line="L1", reason="lost"),)), WAITS)),
    "the end of a line is content": (get(UNREADABLE, UNMAPPED), mend(), get(v(2, hb("1"), STRANGE, **PART), WAITS)),
}  # fmt: skip
FIRST_PART, NEXT_PARTS = (
    v(1, hb("1", "a"), STRANGE, **L0),
    (get(v(2, hb("2", "b"), **L1), WAITS), get(v(3, hb("3", "c"), **L2), WAITS)),
)
NOBODY_WAITS = same(lambda bench: bench.store.transact(lambda uow: uow.reports.needing_operator()), ())
NEW = {"mappings": TABLES, "left_out": "keep"}
PARTS: dict[str, tuple[Step, ...]] = {
    "parts follow an older one that is mapped": (
        get(FIRST_PART, UNMAPPED), *NEXT_PARTS, mend(release_all=True), reads("1", "6.4", "2", "3"), lines(*["completed"] * 3),
        NOBODY_WAITS),
    "parts follow an older one that is dismissed": (
        get(FIRST_PART, UNMAPPED), *NEXT_PARTS, dismiss(1), reads("2", "3"), lines("accepted", "completed", "completed"),
        NOBODY_WAITS),
    "parts follow one of another order that is dismissed": (
        get(v(1, hb("666"), items=("999.999",)), UNMATCHED), *NEXT_PARTS, dismiss(1), reads("2", "3"), NOBODY_WAITS),
    "a part that waits for a superseded one is held": (
        get(FIRST_PART, UNMAPPED), NEXT_PARTS[0], mend(), get(v(3, hb("1", "a"), STRANGE, **L0), WAITS), release(3),
        now(1, SUPERSEDED),
        now(2, NEWER, "without b, line L1")),
}  # fmt: skip
# a laboratory that sends only what is new: what a version keeps is not what it says
K1, K3 = v(1, hb("4.0", "k"), hb("140", "na"), **L0), v(3, hb("141", "na"), **L0)
KEEPING: dict[str, tuple[Step, ...]] = {
    "unnamed values are kept by code and position": (
        get(v(1, hb("1.0", None), hb("2.0", None), hb("7", "other"), **PART)), get(v(2, hb("1.5", None), hb("9", "new"))),
        reads("1.5", "9", "2.0", "7"), values("2.0", name="code.http_3A_2F_2Floinc_2Eorg.718-7.2")),
    "what is not performed beside kept values cancels no line that was reported": (
        get(v(1, items=("001.001",), **PART)),
        get(v(2, hb("2", "b"), items=("004.001",), not_performed=(NotPerformed(reason="clotted"),))),
        lines("accepted", "cancelled")),
    "a value in an older version alone is not dropped in silence": (
        get(v(2, hb("2"))), get(v(1, hb("6.4", "alone")), NEWER, "without alone"), get(v(3, hb("3"))), now(2, NEWER),
        get(v(4, hb("6.4", "alone"))), now(2, SUPERSEDED), reads("3", "6.4")),
    "a late correction of a kept value is asked about": (
        get(K1), get(K3), get(v(2, hb("5.0", "k"), **L0), NEWER, "without k"), get(v(4, hb("5.0", "k"), **L0)),
        now(3, SUPERSEDED),
        values("4.0", "5.0", name="k")),
    "a late version with the kept value is superseded": (get(K1), get(K3), get(v(2, hb("4.0", "k"), **L0), SUPERSEDED)),
    "a version matched again keeps the correction delivered meanwhile": (
        get(K1), faults(refused(route="PUT /fhir/*")), get(K3, MATCHED), faults(), get(v(2, hb("5.0", "k"), **L0), SUPERSEDED),
        states(SUPERSEDED, DELIVERED, SUPERSEDED), values("4.0", "5.0", name="k"), reads("5.0", "141")),
    "a late end of a kept line is asked about": (
        get(v(1, hb("1", "a"), **L0, **PART)), get(v(3, hb("3", "c"), **L1)), get(v(2, hb("1", "a"), **L0), NEWER, "L0")),
}  # fmt: skip
ALL: dict[str, tuple[dict[str, Any], tuple[Step, ...]]] = {
    **{name: ({}, steps) for name, steps in HISTORIES.items()},
    **{name: ({"mappings": TABLES}, steps) for name, steps in WITH_TABLES.items()},
    **{name: (NEW, steps) for name, steps in PARTS.items()},
    **{name: ({"left_out": "keep"}, steps) for name, steps in KEEPING.items()},
    # a PDF that we print does not stand for the document of an older version
    "a printed report does not supersede a document": (
        {"print_reports": True},
        (get(v(1, hb("1"), **ODD, documents=(Document(content=PDF),)), QUESTION), get(v(2, hb("2")), WAITS), release(2),
        now(1, NEWER))),
}  # fmt: skip


@parametrize_first("case", ALL, quick=10)
async def test_versions_go_one_at_a_time_and_lose_nothing(case: str, tmp_path: Path) -> None:
    settings, steps = ALL[case]
    await play(steps, tmp_path, **settings)


@pytest.mark.slow
async def test_incremental_report_is_shown_as_sent_and_as_kept() -> None:
    """People see both; what stayed is not written again."""
    async with open_bench({"left_out": "keep"}) as bench:
        for version, item in enumerate(("001.001", "004.001"), 1):
            await bench.receive(v(version, hb(str(version), None), hb("7", item), items=(item,)))
        assert await bench.statuses(".001_2E001") == ["final"]
        delivered = await bench.get_report("m2")
        sent, whole = load_stored_message(delivered.body), load_stored_message(delivered.outgoing_body or b"")
        assert isinstance(sent, LabReport)
        assert isinstance(whole, LabReport)
        assert ([one.id for one in sent.observations], len(whole.observations)) == ([None, "004.001"], 3)
        assert load_result(delivered).kept == ("001.001",)


@pytest.mark.slow
async def test_release_during_delivery_of_other_version_rejected(bench: ResultsBench) -> None:
    """A release is not lost to a version on its way: it is rejected, and nothing changes."""
    asked = await bench.receive(v(2, hb("2"), **ODD))
    bench.inject_faults(AWAY_FOR_REPORTS)
    assert (await bench.receive(v(3, hb("3"), hb("6", "b")))).state is MATCHED
    with pytest.raises(InvalidTransitionError):
        await bench.release(asked)
    assert await bench.get_report("m1") == asked
