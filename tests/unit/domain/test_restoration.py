"""What is kept of a restored database, and what its mark says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lab_agent.domain.restoration import MarkedNumber, Restoration, RestoreSign, find_sign

NOW = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
NOTICED = Restoration(sign=RestoreSign.OLDER_THAN_MARK, noticed_at=NOW, known_until=NOW - timedelta(hours=6))
RELEASED = NOTICED.reconciled(NOW, 0).released(NOW + timedelta(hours=1), "anna")


@pytest.mark.parametrize("restoration", [NOTICED, RELEASED, Restoration(sign=RestoreSign.COMMAND, noticed_at=NOW)])
def test_stored_restoration_reads_back(restoration: Restoration) -> None:
    assert Restoration.from_json(restoration.to_json()) == restoration


def test_restoration_of_an_older_program_reads_back() -> None:
    older = json.dumps(json.loads(RELEASED.to_json()) | {"tells_withdrawals": False})
    assert Restoration.from_json(older) == RELEASED


def test_what_was_decided_before_the_release_is_concerned() -> None:
    assert NOTICED.concerns(NOW + timedelta(days=1))
    assert RELEASED.concerns(NOW)
    assert RELEASED.concerns(NOW + timedelta(hours=1))
    assert (NOTICED.is_open, RELEASED.is_open) == (True, False)
    assert not RELEASED.concerns(NOW + timedelta(hours=2))


@pytest.mark.parametrize(
    ("mark", "sign"),
    [
        (None, None),
        (MarkedNumber("one", 4), None),
        (MarkedNumber("one", 5), None),
        (MarkedNumber("one", 6), RestoreSign.OLDER_THAN_MARK),
        (MarkedNumber("two", 1), RestoreSign.OTHER_DATABASE),
    ],
)
def test_mark_says_whether_it_was_restored(mark: MarkedNumber | None, sign: RestoreSign | None) -> None:
    assert find_sign(mark, MarkedNumber("one", 5)) is sign


def test_first_comparison_is_kept_with_the_last_number() -> None:
    once = NOTICED.reconciled(NOW, 3)
    again = once.reconciled(NOW + timedelta(hours=1), 0)
    assert (once.reconciled_at, once.not_compared, again.reconciled_at, again.not_compared) == (NOW, 3, NOW, 0)
    assert (RELEASED.released_at, RELEASED.released_by) == (NOW + timedelta(hours=1), "anna")
