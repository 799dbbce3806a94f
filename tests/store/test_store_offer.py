"""Catalogues, notices, labels and API tokens: one suite over memory, SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lab_agent.domain.offer import ApiToken, CatalogueVersion, EtaNotice, LabelGiven
from lab_agent.errors import AlreadyKnownError
from lab_agent.store import tables
from lab_agent.store.rows import to_values

HOUR = timedelta(hours=1)


def version(make, name, hours):
    return CatalogueVersion(version=name, since=make.now + hours * HOUR, content=b"\x00" + name.encode(), origin="x", by="anna")


async def test_versions_by_the_time_that_they_were_in_force(do, make):
    assert await do(lambda uow: (uow.catalogues.newest(), uow.catalogues.in_force_since(make.now))) == (None, ())
    a, b, c = (version(make, name, hours) for name, hours in (("a", 0), ("b", 2), ("a", 4)))
    for each in (a, b, c):
        assert await do(lambda uow, each=each: uow.catalogues.add(each)) is True
    assert await do(lambda uow: uow.catalogues.add(replace(c, since=make.now + 9 * HOUR))) is False
    assert await do(lambda uow: uow.catalogues.newest()) == c
    for hours, wanted in ((-1, (c, b, a)), (1, (c, b, a)), (2, (c, b)), (3, (c, b)), (4, (c,)), (50, (c,))):
        assert await do(lambda uow, hours=hours: uow.catalogues.in_force_since(make.now + hours * HOUR)) == wanted


async def test_damaged_bytes_are_replaced_and_nothing_else_of_their_row(do, make):
    a, b = version(make, "a", 0), version(make, "b", 2)
    for each in (replace(a, content=b"damaged"), b, replace(a, since=make.now + 4 * HOUR, content=b"too")):
        assert await do(lambda uow, each=each: uow.catalogues.add(each)) is True
    again = replace(a, since=make.now + 9 * HOUR, origin="y", by=None)
    assert await do(lambda uow: uow.catalogues.add(again)) is True
    assert await do(lambda uow: uow.catalogues.add(again)) is False
    kept = await do(lambda uow: uow.catalogues.in_force_since(make.now))
    assert kept == (replace(a, since=make.now + 4 * HOUR), b, a)


async def test_notices_end_by_time_or_by_hand(do, make):
    def notice(key, **change):
        start = EtaNotice(key=key, item="1", contract=None, start=make.now, end=make.now + 4 * HOUR, made_at=make.now)
        return replace(start, **change)

    notices = [
        notice("n1", delay_hours=Decimal("12.50"), caption="c", by="anna"),
        notice("n2", contract="C-1"),
        notice("n3", item="2"),
        notice("n4", end=make.now + HOUR),
    ]
    for each in notices:
        await do(lambda uow, each=each: uow.eta_notices.add(each))
    assert await do(lambda uow: uow.eta_notices.since(make.now)) == tuple(notices)
    assert str((await do(lambda uow: uow.eta_notices.since(make.now)))[0].delay_hours) == "12.50"
    assert [each.key for each in await do(lambda uow: uow.eta_notices.since(make.now + HOUR))] == ["n1", "n2", "n3"]
    later = make.now + 2 * HOUR
    assert await do(lambda uow: uow.eta_notices.clear("1", "C-1", now=later)) == 1
    assert await do(lambda uow: uow.eta_notices.clear("1", None, now=later)) == 1
    assert await do(lambda uow: uow.eta_notices.clear("1", None, now=later)) == 0
    assert [each.key for each in await do(lambda uow: uow.eta_notices.since(later))] == ["n3"]
    assert [each.key for each in await do(lambda uow: uow.eta_notices.since(make.now + HOUR))] == ["n1", "n2", "n3"]


async def test_a_pool_goes_on_and_a_barcode_is_given_once(do, make):
    assert await do(lambda uow: uow.labels.hold("77-#", 5)) == {5: 5}
    await do(lambda uow: uow.labels.move("77-#", 5, 7))
    assert await do(lambda uow: (uow.labels.hold("77-#", 5), uow.labels.hold("88-#", 1))) == ({5: 7}, {1: 1})
    assert await do(lambda uow: uow.labels.hold("77-#", 1)) == {1: 1, 5: 7}
    await do(lambda uow: uow.labels.move("77-#", 1, 3))
    assert await do(lambda uow: (uow.labels.hold("77-#", 5), uow.labels.hold("88-#", 1))) == ({1: 3, 5: 7}, {1: 1})
    first = LabelGiven(label="77-5", pool="main", serial=5, basket="b", place="0", given_at=make.now)
    second = replace(first, label="77-6", serial=6, place="1")
    assert [await do(lambda uow, each=each: uow.labels.add(each)) for each in (first, second)] == [True, True]
    assert await do(lambda uow: uow.labels.add(replace(first, pool="other", basket="c"))) is False
    assert await do(lambda uow: (uow.labels.of_basket("b"), uow.labels.of_basket("c"))) == ((first, second), ())
    assert await do(lambda uow: uow.labels.use(["77-6", "foreign"], "R1", at=make.now)) == 1
    assert await do(lambda uow: uow.labels.use(["77-6"], "R2", at=make.now)) == 0
    assert await do(lambda uow: uow.labels.of_basket("b")) == (first, replace(second, used_at=make.now, order="R1"))


async def test_api_tokens(do, make):
    one = ApiToken(id="t1", name="b", sha256="0" * 64, contracts=("C-1", "C-2"), created_at=make.now)
    two = replace(one, id="t2", name="a", contracts=None, expires_at=make.now + HOUR)
    three = replace(one, id="t3", created_at=make.now + HOUR)
    for each in (one, two, three):
        await do(lambda uow, each=each: uow.api_tokens.add(each))
    with pytest.raises(AlreadyKnownError):
        await do(lambda uow: uow.api_tokens.add(one))
    assert await do(lambda uow: uow.api_tokens.all()) == (two, one, three)
    assert (two.valid(make.now), two.valid(make.now + HOUR), one.valid(make.now + HOUR)) == (True, False, True)
    assert await do(lambda uow: uow.api_tokens.revoke("t1", now=make.now)) == 1
    assert await do(lambda uow: uow.api_tokens.revoke("b", now=make.now)) == 1
    assert await do(lambda uow: uow.api_tokens.revoke("b", now=make.now)) == 0
    assert [each.valid(make.now) for each in await do(lambda uow: uow.api_tokens.all())] == [True, False, False]


def test_each_record_has_a_column_for_each_of_its_fields():
    for record, table in (
        (CatalogueVersion, tables.catalogues),
        (EtaNotice, tables.eta_notices),
        (LabelGiven, tables.labels_given),
        (ApiToken, tables.api_tokens),
    ):
        blank = object.__new__(record)
        for field in fields(record):
            object.__setattr__(blank, field.name, None)
        assert set(to_values(blank)) <= set(table.c.keys()), record.__name__
