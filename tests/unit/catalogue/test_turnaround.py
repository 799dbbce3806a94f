"""Turnaround: which fields are filled holds by construction (interface: Turnaround item)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.nomenclature import nomenclature, turnarounds
from lab_agent.catalogue.turnaround import (
    Delayed,
    Notice,
    NoticePeriod,
    Stopped,
    Turnaround,
    compute_eta,
    format_decimal,
    next_change,
)

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NORMAL = Turnaround(Decimal(24), "usual")
HOUR = timedelta(hours=1)


def period(start: int, end: int) -> NoticePeriod:
    return NoticePeriod(NOW + start * HOUR, NOW + end * HOUR)


def test_available_test_has_no_period_or_delay() -> None:
    assert compute_eta("C", "a", NORMAL, [], NOW).as_json() == {
        "id": "a",
        "status": "available",
        "time": Decimal(24),
        "caption": "usual",
        "effectivePeriod": None,
        "delayDuration": None,
    }


def test_delayed_test_has_period_and_delay() -> None:
    notice = Notice("a", Delayed(period(-1, 1), Decimal(48)), caption="late")
    assert compute_eta("C", "a", NORMAL, [notice], NOW).as_json() == {
        "id": "a",
        "status": "delayed",
        "time": Decimal(24),
        "caption": "late",
        "effectivePeriod": {"start": "2026-11-20T11:00:00+00:00", "end": "2026-11-20T13:00:00+00:00"},
        "delayDuration": {"value": "48", "unit": "h"},
    }


def test_stopped_test_has_only_period() -> None:
    """Exact to the second."""
    moment = NOW.replace(microsecond=123456)
    wire = compute_eta("C", "a", NORMAL, [Notice("a", Stopped(NoticePeriod(moment, moment + HOUR)))], moment).as_json()
    assert (wire["status"], wire["delayDuration"], wire["caption"]) == ("stopped", None, "usual")
    assert wire["effectivePeriod"] == {"start": "2026-11-20T12:00:00+00:00", "end": "2026-11-20T13:00:00+00:00"}


@pytest.mark.parametrize(
    ("start", "end", "contract", "status"),
    [
        (-2, -1, None, "available"),
        (-2, 0, None, "available"),
        (0, 1, None, "stopped"),
        (1, 2, None, "available"),
        (-1, 1, "C", "stopped"),
        (-1, 1, "D", "available"),
    ],
)
def test_notice_applies_only_within_its_period_and_contract(start: int, end: int, contract: str | None, status: str) -> None:
    notice = Notice("a", Stopped(period(start, end)), contract)
    assert compute_eta("C", "a", NORMAL, [notice], NOW).as_json()["status"] == status
    assert compute_eta("C", "b", NORMAL, [notice], NOW).as_json()["status"] == "available"


def test_stop_outweighs_delay_and_longer_delay_shorter() -> None:
    short, long = (Notice("a", Delayed(period(-1, 1), Decimal(hours))) for hours in (5, 10))
    for both in ([long, short], [short, long]):
        assert compute_eta("C", "a", NORMAL, both, NOW).as_json()["delayDuration"] == {"value": "10", "unit": "h"}
    assert compute_eta("C", "a", NORMAL, [long, Notice("a", Stopped(period(-1, 1))), short], NOW).as_json()["status"] == "stopped"


def notice(start: int, length: int, hours: int) -> Notice:
    holds = period(start, start + length)
    return Notice("a", Delayed(holds, Decimal(hours)) if hours else Stopped(holds))


@given(st.lists(st.builds(notice, st.integers(-5, 5), st.integers(1, 5), st.integers(0, 9)), max_size=4))
def test_filled_fields_follow_status(notices: list[Notice]) -> None:
    """And nothing changes before the next change."""
    wire = compute_eta("C", "a", NORMAL, notices, NOW).as_json()
    filled = (wire["effectivePeriod"] is not None, wire["delayDuration"] is not None)
    assert filled == {"available": (False, False), "stopped": (True, False), "delayed": (True, True)}[wire["status"]]
    change = next_change(notices, NOW)
    last = NOW + 20 * HOUR if change is None else change - timedelta(microseconds=1)
    assert compute_eta("C", "a", NORMAL, notices, NOW) == compute_eta("C", "a", NORMAL, notices, last)


def test_nomenclature_has_every_field_in_its_type(sample: Catalogue) -> None:
    strings = {"id", "caption", "lab_id", "lab_caption", "group", "description"}
    booleans = {"allow_multiple_items", "multiple_specimen"}
    listed = nomenclature(sample.contract("C-100"))
    for each in listed:
        assert set(each) == strings | booleans | {"patient_preparation", "specimen", "required_specimen", "price"}
        assert all(isinstance(each[name], str) for name in strings)
        assert all(isinstance(each[name], bool) for name in booleans)
        assert all(isinstance(each[name], list) for name in ("patient_preparation", "specimen", "required_specimen"))
        assert all(isinstance(text, str) for text in each["patient_preparation"])
        assert isinstance(each["price"], Decimal)
        for option in (*each["specimen"], *each["required_specimen"]):
            assert isinstance(option["specimen_code"], int)
            names = ("description", "specimen_name", "bodysite_name", "container_name")
            assert all(isinstance(option[name], str) for name in names)
            assert all(option[name] is None or isinstance(option[name], str) for name in ("bodysite_code", "container_type"))
            assert len(option) == 7
    assert {each["id"]: each for each in listed}["050.001"]["specimen"][0]["bodysite_code"] == "THR"


def test_next_change_is_the_nearest_edge_ahead() -> None:
    notices = [Notice("a", Stopped(period(-2, 3))), Notice("b", Stopped(period(0, 5)))]
    assert next_change(notices, NOW) == NOW + 3 * HOUR
    assert next_change(notices, NOW - HOUR) == NOW
    assert next_change(notices, NOW + 5 * HOUR) is None


def test_of_equal_notices_the_one_that_ends_later_is_told() -> None:
    early, late = (Notice("a", Stopped(period(-1, end)), caption=str(end)) for end in (1, 2))
    assert [compute_eta("C", "a", NORMAL, each, NOW).caption for each in ([early, late], [late, early])] == ["2", "2"]


@pytest.mark.parametrize(("hours", "text"), [("48", "48"), ("1E+2", "100"), ("1.50", "1.50")])
def test_hours_are_written_without_exponent(hours: str, text: str) -> None:
    assert format_decimal(Decimal(hours)) == text


def test_turnarounds_use_the_notices_of_each_item(sample: Catalogue) -> None:
    contract = sample.contract("C-100")
    late = Delayed(period(-1, 1), Decimal(5))
    notices = (Notice("001.001", Stopped(period(-1, 1))), Notice("002.001", late, "C-9"), Notice("002.002", late, "C-100"))
    by_id = {each["id"]: each["status"] for each in turnarounds(contract, notices, NOW)}
    assert {id_: status for id_, status in by_id.items() if status != "available"} == {"001.001": "stopped", "002.002": "delayed"}
