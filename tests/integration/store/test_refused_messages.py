"""Refused messages: listed without their contents, which are sealed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from lab_agent.results.refused_records import RefusedContent, RefusedMessage, RefusedState
from lab_agent.shared.ids import RefusedKey, refused_key
from lab_agent.store.event_records import Event
from tests.integration.store.conftest import NOW

DAY = timedelta(days=1)


def message(number: int, *, source: str = "hl7", **fields: Any) -> RefusedMessage:
    at = NOW + timedelta(minutes=number)
    times = {"first_seen_at": at, "last_seen_at": at, "changed_at": at}
    return RefusedMessage(**{"key": RefusedKey(f"M{number}"), "source": source, "reason": "why", "size": 10, **times, **fields})


async def test_messages_are_listed_newest_first_by_source_and_state(transact: Any) -> None:
    others = [message(8, source="other"), message(9, state=RefusedState.DISMISSED)]
    await transact(lambda uow: [uow.refused_messages.save(each) for each in (message(1), message(2), message(3), *others)])
    found, total = await transact.refused_messages.list(source="hl7", states=(RefusedState.WAITING,), offset=1, limit=1)
    assert ([each.key for each in found], total) == (["M2"], 3)
    found, total = await transact.refused_messages.list(limit=9)
    assert ([each.key for each in found], total) == (["M9", "M8", "M3", "M2", "M1"], 5)
    assert await transact.refused_messages.waiting_counts() == {"hl7": 3, "other": 1}


async def test_saved_message_and_content_come_back(transact: Any) -> None:
    given = message(1, reason="Ünreadable\x00", count=3, size=None, is_kept=False)
    for content in (RefusedContent(message_id="a\0b", raw=b"\0\xff"), RefusedContent(message_id="x", raw=b"")):
        await transact.refused_messages.save_content(given.key, content, at=NOW)
        found = await transact.refused_messages.content(given.key)
        assert (found.raw, found.message_id[0]) == (content.raw, content.message_id[0])
    await transact.refused_messages.save_content(given.key, RefusedContent(message_id="only"), at=NOW)
    assert await transact.refused_messages.content(given.key) == RefusedContent(message_id="only")
    await transact.refused_messages.save(given)
    assert replace(await transact.refused_messages.get(given.key), reason="") == replace(given, reason="")
    await transact.refused_messages.purge_content(given.key)
    assert await transact.refused_messages.content(given.key) is None


async def test_limits_count_what_is_new_and_kept(transact: Any) -> None:
    old = message(1, first_seen_at=NOW - 2 * DAY)
    await transact(lambda uow: [uow.refused_messages.save(each) for each in (old, message(2), message(3, is_kept=False))])
    assert await transact.refused_messages.added_since("hl7", NOW - DAY) == (2, 10)
    assert await transact.refused_messages.added_since("other", NOW - DAY) == (0, 0)


async def test_finished_messages_are_purged_with_their_events(transact: Any) -> None:
    gone = message(1, state=RefusedState.DISMISSED)
    kept = [message(2), message(3, state=RefusedState.REPLAYED, changed_at=NOW + 9 * DAY)]

    def write(uow: Any) -> None:
        for each in (gone, *kept):
            uow.refused_messages.save(each)
            uow.refused_messages.save_content(each.key, RefusedContent(message_id="m", raw=b"r"), at=NOW)
            uow.events.add(Event(order=None, refused_message=each.key, at=NOW, action="a", text="t", by="ann"))

    await transact(write)
    assert await transact.refused_messages.purge_finished(before=NOW + DAY) == 1
    left = [await transact.refused_messages.events(each.key) for each in (gone, *kept)]
    assert [[each.by for each in events] for events in left] == [[], ["ann"], ["ann"]]
    assert await transact.refused_messages.content(gone.key) is None
    old = await transact.refused_messages.kept_before(NOW + DAY, limit=9)
    assert [each.key for each in old] == ["M2", "M3"]
    await transact.purge.closed_orders(before=NOW + 99 * DAY)
    assert len(await transact.refused_messages.events(kept[0].key)) == 1


async def test_later_report_is_found_by_its_id(transact: Any, factory: Any) -> None:
    later = factory.report(source="hl7", message="later", report_id="rep", received_at=NOW + DAY)
    await transact(lambda uow: [uow.reports.add(each) for each in (factory.report(source="hl7", report_id="rep"), later)])
    since = transact.refused_messages.accepted_since
    assert await since("hl7", "rep", NOW, except_message="m") == NOW + DAY
    assert await since("hl7", "rep", NOW, except_message="later") is None
    for asked in (("hl7", "rep", NOW + DAY), ("hl7", "other", NOW), ("folder", "rep", NOW)):
        assert await since(*asked, except_message="m") is None


def test_key_is_that_of_the_content_of_an_adapter() -> None:
    """The same bytes are the same message, whatever name they come under; without bytes the name tells."""
    given = [("a", "m", b"x"), ("a", "m", b"y"), ("b", "m", b"x"), ("a", "m", None), ("a", "n", None), ("a", "m", b"")]
    keys = [refused_key(*each) for each in given]
    assert len(set(keys)) == len(keys)
    assert refused_key("a", "other", b"x") == keys[0]
