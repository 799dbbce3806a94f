"""Catalogues, notices, labels, API tokens and what the API refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lab_agent.catalogue.records import ApiToken, CatalogueVersion, IssuedLabel, TurnaroundNotice
from lab_agent.shared.errors import AlreadyExistsError
from lab_agent.store.api_refusals import KEPT, ApiRefusals, RefusalReason
from tests.integration.store.conftest import NOW

HOUR = timedelta(hours=1)


def version(name, hours):
    return CatalogueVersion(version=name, since=NOW + hours * HOUR, content=b"\x00" + name.encode(), origin="x", by="anna")


async def test_versions_are_listed_by_activation_time(transact):
    catalogues = transact.catalogues
    assert (await catalogues.newest(), await catalogues.active_since(NOW)) == (None, ())
    a, b, c = version("a", 0), version("b", 2), version("a", 4)
    added = [await catalogues.add(each) for each in (a, b, c, replace(c, since=NOW + 9 * HOUR))]
    assert added == [True, True, True, False]
    assert await catalogues.newest() == c
    for hours, wanted in ((-1, (c, b, a)), (1, (c, b, a)), (2, (c, b)), (3, (c, b)), (4, (c,)), (50, (c,))):
        assert await catalogues.active_since(NOW + hours * HOUR) == wanted


@pytest.mark.parametrize(
    ("former", "by", "kept"), [(None, "anna", "anna"), (None, None, None), ("boris", "anna", "boris"), ("boris", None, "boris")]
)
async def test_active_version_gets_first_importer(transact, former, by, kept):
    first = replace(version("a", 0), by=former)
    await transact.catalogues.add(first)
    is_noted = await transact.catalogues.add(replace(first, by=by, origin="y"))
    newest = await transact.catalogues.newest()
    assert (newest.by, newest.origin, is_noted) == (kept, "y" if kept != former else "x", kept != former)


async def test_notices_end_by_time_or_lift(transact):
    start = TurnaroundNotice(key="n1", item="1", contract=None, start=NOW, end=NOW + 4 * HOUR, made_at=NOW)
    first = replace(start, delay_hours=Decimal("12.50"), caption="c", by="anna")
    others = ({"key": "n2", "contract": "C-1"}, {"key": "n3", "item": "2"}, {"key": "n4", "end": NOW + HOUR})
    notices = [first, *(replace(start, **each) for each in others)]
    for each in notices:
        await transact.turnaround_notices.add(each)

    async def active(hours):
        return [each.key for each in await transact.turnaround_notices.active_since(NOW + hours * HOUR)]

    found = await transact.turnaround_notices.active_since(NOW)
    assert (found, str(found[0].delay_hours)) == (tuple(notices), "12.50")
    assert await active(1) == ["n1", "n2", "n3"]
    later = NOW + 2 * HOUR
    lifted = [await transact.turnaround_notices.lift("1", contract, now=later) for contract in ("C-1", None, None)]
    assert lifted == [1, 1, 0]
    assert await active(2) == ["n3"]
    assert await active(1) == ["n1", "n2", "n3"]


async def test_label_pool_advances_and_barcode_is_issued_once(transact):
    labels = transact.issued_labels
    assert await labels.lock_ranges("77-#", 5) == {5: 5}
    await labels.set_next_number("77-#", 5, 7)
    assert await labels.lock_ranges("77-#", 5) == {5: 7}
    assert await labels.lock_ranges("77-#", 1) == {1: 1, 5: 7}
    await labels.set_next_number("77-#", 1, 3)
    assert await labels.lock_ranges("77-#", 5) == {1: 3, 5: 7}
    assert await labels.lock_ranges("88-#", 1) == {1: 1}
    first = IssuedLabel(label="77-5", pool="main", serial=5, basket="b", tube_slot="0", issued_at=NOW)
    second = replace(first, label="77-6", serial=6, tube_slot="1")
    assert await labels.add_all([first]) == {"77-5"}
    assert await labels.add_all([]) == set()
    again = replace(first, pool="other", basket="c")
    assert await labels.add_all([again, second, replace(second, basket="c")]) == {"77-6"}
    assert [await labels.list_for_basket(basket) for basket in "bc"] == [(first, second), ()]
    assert await labels.mark_used(["77-6", "foreign"], "R1", at=NOW) == 1
    assert await labels.mark_used(["77-6"], "R2", at=NOW) == 0
    assert await labels.list_for_basket("b") == (first, replace(second, used_at=NOW, order="R1"))


async def test_api_tokens_round_trip(transact):
    one = ApiToken(id="t1", name="b", sha256="0" * 64, contracts=("C-1", "C-2"), created_at=NOW)
    two = replace(one, id="t2", name="a", contracts=None, expires_at=NOW + HOUR)
    three = replace(one, id="t3", created_at=NOW + HOUR)
    for each in (one, two, three):
        await transact.api_tokens.add(each)
    with pytest.raises(AlreadyExistsError):
        await transact.api_tokens.add(one)
    assert await transact.api_tokens.all() == (two, one, three)
    assert [two.is_valid(NOW), two.is_valid(NOW + HOUR), one.is_valid(NOW + HOUR)] == [True, False, True]
    assert [await transact.api_tokens.revoke(name, now=NOW) for name in ("t1", "b", "b")] == [1, 1, 0]
    assert [each.is_valid(NOW) for each in await transact.api_tokens.all()] == [True, False, False]


async def test_refusals_added_up_by_period_and_forgotten(transact):
    minute = timedelta(minutes=1)
    first = ApiRefusals(reason=RefusalReason.TOKEN_EXPIRED, client="a", count=2, first_at=NOW, last_at=NOW + minute)
    again = replace(first, count=3, first_at=NOW + 2 * minute, last_at=NOW + 3 * minute)
    later = replace(first, count=5, first_at=NOW + HOUR, last_at=NOW + HOUR)
    other = replace(first, client="")
    for each in ([first], [again, other], [later]):
        await transact.api_refusals.add(each, now=NOW)
    assert await transact.api_refusals.since(NOW) == (other, replace(first, count=10, last_at=later.last_at))
    assert await transact.api_refusals.since(NOW + HOUR) == (later,)
    await transact.api_refusals.add([], now=NOW + KEPT + 30 * minute)
    assert await transact.api_refusals.since(NOW) == (later,)
