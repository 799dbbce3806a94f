"""Catalogues, notices, labels and API tokens: one suite over memory, SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lab_agent.domain.api_refusals import KEPT, ApiRefusals, RefusalReason
from lab_agent.domain.catalogue_records import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.errors import AlreadyExistsError
from lab_agent.store import catalogue_tables, tables
from lab_agent.store.row_mapping import to_values

HOUR = timedelta(hours=1)


def version(make, name, hours):
    return CatalogueVersion(version=name, since=make.now + hours * HOUR, content=b"\x00" + name.encode(), origin="x", by="anna")


async def test_versions_are_listed_by_activation_time(transact, factory):
    assert await transact(lambda uow: (uow.catalogues.newest(), uow.catalogues.active_since(factory.now))) == (None, ())
    a, b, c = (version(factory, name, hours) for name, hours in (("a", 0), ("b", 2), ("a", 4)))
    for each in (a, b, c):
        assert await transact.catalogues.add(each) is True
    assert await transact.catalogues.add(replace(c, since=factory.now + 9 * HOUR)) is False
    assert await transact.catalogues.newest() == c
    for hours, wanted in ((-1, (c, b, a)), (1, (c, b, a)), (2, (c, b)), (3, (c, b)), (4, (c,)), (50, (c,))):
        assert await transact.catalogues.active_since(factory.now + hours * HOUR) == wanted


async def test_damaged_content_is_replaced_keeping_its_row(transact, factory):
    """Damaged bytes are replaced, and nothing else of their row."""
    a, b = version(factory, "a", 0), version(factory, "b", 2)
    for each in (replace(a, content=b"damaged"), b, replace(a, since=factory.now + 4 * HOUR, content=b"too")):
        assert await transact.catalogues.add(each) is True
    again = replace(a, since=factory.now + 9 * HOUR, origin="y", by=None)
    assert await transact.catalogues.add(again) is True
    assert await transact.catalogues.add(again) is False
    kept = await transact.catalogues.active_since(factory.now)
    assert kept == (replace(a, since=factory.now + 4 * HOUR), b, a)


@pytest.mark.parametrize(
    ("former", "by", "kept"), [(None, "anna", "anna"), (None, None, None), ("boris", "anna", "boris"), ("boris", None, "boris")]
)
async def test_active_version_gets_first_importer(transact, factory, former, by, kept):
    first = replace(version(factory, "a", 0), by=former)
    await transact.catalogues.add(first)
    is_noted = await transact.catalogues.add(replace(first, by=by, origin="y"))
    newest = await transact.catalogues.newest()
    assert (newest.by, newest.origin, is_noted) == (kept, "y" if kept != former else "x", kept != former)


async def test_notices_end_by_time_or_lift(transact, factory):
    def notice(key, **change):
        start = TurnaroundNotice(
            key=key, item="1", contract=None, start=factory.now, end=factory.now + 4 * HOUR, made_at=factory.now
        )
        return replace(start, **change)

    notices = [
        notice("n1", delay_hours=Decimal("12.50"), caption="c", by="anna"),
        notice("n2", contract="C-1"),
        notice("n3", item="2"),
        notice("n4", end=factory.now + HOUR),
    ]
    for each in notices:
        await transact.turnaround_notices.add(each)
    assert await transact.turnaround_notices.active_since(factory.now) == tuple(notices)
    assert str((await transact.turnaround_notices.active_since(factory.now))[0].delay_hours) == "12.50"
    assert [each.key for each in await transact.turnaround_notices.active_since(factory.now + HOUR)] == [
        "n1",
        "n2",
        "n3",
    ]
    later = factory.now + 2 * HOUR
    assert await transact.turnaround_notices.lift("1", "C-1", now=later) == 1
    assert await transact.turnaround_notices.lift("1", None, now=later) == 1
    assert await transact.turnaround_notices.lift("1", None, now=later) == 0
    assert [each.key for each in await transact.turnaround_notices.active_since(later)] == ["n3"]
    assert [each.key for each in await transact.turnaround_notices.active_since(factory.now + HOUR)] == [
        "n1",
        "n2",
        "n3",
    ]


async def test_label_pool_advances_and_barcode_is_issued_once(transact, factory):
    assert await transact.issued_labels.lock_ranges("77-#", 5) == {5: 5}
    await transact.issued_labels.set_next_number("77-#", 5, 7)
    assert await transact(lambda uow: (uow.issued_labels.lock_ranges("77-#", 5), uow.issued_labels.lock_ranges("88-#", 1))) == (
        {5: 7},
        {1: 1},
    )
    assert await transact.issued_labels.lock_ranges("77-#", 1) == {1: 1, 5: 7}
    await transact.issued_labels.set_next_number("77-#", 1, 3)
    assert await transact(lambda uow: (uow.issued_labels.lock_ranges("77-#", 5), uow.issued_labels.lock_ranges("88-#", 1))) == (
        {1: 3, 5: 7},
        {1: 1},
    )
    first = IssuedLabel(label="77-5", pool="main", serial=5, basket="b", tube_slot="0", issued_at=factory.now)
    second = replace(first, label="77-6", serial=6, tube_slot="1")
    assert await transact.issued_labels.add_all([first]) == {"77-5"}
    assert await transact.issued_labels.add_all([]) == set()
    again = replace(first, pool="other", basket="c")
    assert await transact.issued_labels.add_all([again, second, replace(second, basket="c")]) == {"77-6"}
    assert await transact(lambda uow: (uow.issued_labels.list_for_basket("b"), uow.issued_labels.list_for_basket("c"))) == (
        (first, second),
        (),
    )
    assert await transact.issued_labels.mark_used(["77-6", "foreign"], "R1", at=factory.now) == 1
    assert await transact.issued_labels.mark_used(["77-6"], "R2", at=factory.now) == 0
    assert await transact.issued_labels.list_for_basket("b") == (
        first,
        replace(second, used_at=factory.now, order="R1"),
    )


async def test_api_tokens_round_trip(transact, factory):
    one = ApiToken(id="t1", name="b", sha256="0" * 64, contracts=("C-1", "C-2"), created_at=factory.now)
    two = replace(one, id="t2", name="a", contracts=None, expires_at=factory.now + HOUR)
    three = replace(one, id="t3", created_at=factory.now + HOUR)
    for each in (one, two, three):
        await transact.api_tokens.add(each)
    with pytest.raises(AlreadyExistsError):
        await transact.api_tokens.add(one)
    assert await transact.api_tokens.all() == (two, one, three)
    assert two.is_valid(factory.now)
    assert not two.is_valid(factory.now + HOUR)
    assert one.is_valid(factory.now + HOUR)
    assert await transact.api_tokens.revoke("t1", now=factory.now) == 1
    assert await transact.api_tokens.revoke("b", now=factory.now) == 1
    assert await transact.api_tokens.revoke("b", now=factory.now) == 0
    assert [each.is_valid(factory.now) for each in await transact.api_tokens.all()] == [True, False, False]


async def test_refusals_added_up_by_period_and_forgotten(transact, factory):
    first = ApiRefusals(
        reason=RefusalReason.TOKEN_EXPIRED, client="a", count=2, first_at=factory.now, last_at=factory.now + timedelta(minutes=1)
    )
    again = replace(first, count=3, first_at=factory.now + timedelta(minutes=2), last_at=factory.now + timedelta(minutes=3))
    later = replace(first, count=5, first_at=factory.now + HOUR, last_at=factory.now + HOUR)
    other = replace(first, client="")
    for each in ([first], [again, other], [later]):
        await transact.api_refusals.add(each, now=factory.now)
    found = await transact.api_refusals.since(factory.now)
    assert found == (other, replace(first, count=10, last_at=later.last_at))
    assert await transact.api_refusals.since(factory.now + HOUR) == (later,)
    await transact.api_refusals.add([], now=factory.now + KEPT + timedelta(minutes=30))
    assert await transact.api_refusals.since(factory.now) == (later,)


def test_each_record_field_has_a_column():
    for record, table in (
        (CatalogueVersion, catalogue_tables.catalogues),
        (TurnaroundNotice, catalogue_tables.turnaround_notices),
        (IssuedLabel, catalogue_tables.issued_labels),
        (ApiToken, tables.api_tokens),
    ):
        blank = object.__new__(record)
        for field in fields(record):
            object.__setattr__(blank, field.name, None)
        assert set(to_values(blank)) <= set(table.c.keys()), record.__name__
