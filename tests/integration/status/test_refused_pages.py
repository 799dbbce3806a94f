"""Refused messages from the wire to the page: kept sealed, shown on request alone, replayed after the map is mended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.registry import AdapterRegistry, load_adapters
from lab_agent.operations.accounts import Role
from lab_agent.operations.retention import RetentionPurger
from lab_agent.results import refused_messages
from lab_agent.results.refused_message_actions import RefusedMessageDesk
from lab_agent.results.refused_records import RefusedState
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.groups import RetentionSettings
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import StoreUnreachableError
from tests.harness.clock import DEADLINE
from tests.harness.refused import FS, MENDED_MAP, NAME, VT, adapter_table, oru, send
from tests.integration.status.conftest import post


@dataclass
class Laboratory:
    """A running hl7v2 adapter over the store of the pages, with its map."""

    pages: Any
    registry: AdapterRegistry
    mapping: Path

    @property
    def port(self) -> int:
        adapter: Any = self.registry.get("hl7")._adapter
        return int(adapter.ports[1])

    @property
    def inbox(self) -> StoreInbox:
        return StoreInbox(self.pages.context.store, self.pages.clock, "hl7")

    async def send(self, *messages: bytes) -> list[str]:
        return await send(self.port, *messages)

    async def use_map(self, text: str = MENDED_MAP) -> None:
        self.mapping.write_text(text)
        await self.registry.reload()

    async def waiting(self, state: RefusedState = RefusedState.WAITING) -> Any:
        found, _ = await self.pages.context.store.transact(lambda uow: uow.refused_messages.list(states=(state,), limit=1000))
        return found

    async def refused(self, *messages: bytes) -> Any:
        """The one message that waits, after these were sent."""
        await self.send(*messages)
        (message,) = await self.waiting()
        return message

    async def operator(self, message: Any) -> tuple[Any, str]:
        """An operator, and the path of the message's page."""
        return await self.pages.signed_in_client(Role.OPERATOR), f"/refused/{message.key}"

    async def reports(self) -> list[str]:
        """The filler numbers of what is in the inbox."""
        return sorted(str(each.report_id).partition("/")[0] for each in (await self.pages.context.queries.reports()).items)

    async def alert(self) -> Any:
        overview = await self.pages.context.queries.overview(now=self.pages.clock.now())
        return next((each for each in overview.alerts if each.condition is ConditionId.LIS_REFUSED_MESSAGES), None)


@pytest.fixture
async def laboratory(pages: Any, tmp_path: Path) -> AsyncIterator[Laboratory]:
    mapping = tmp_path / "map.toml"
    mapping.write_text("")
    registry = load_adapters({"hl7": adapter_table(tmp_path / "own", mapping)}, "hl7", call_timeout=5)
    pages.context = replace(pages.context, refused_messages=RefusedMessageDesk(pages.context.store, pages.clock, registry))
    made = Laboratory(pages, registry, mapping)
    await registry.get("hl7").start(made.inbox)
    try:
        yield made
    finally:
        await registry.get("hl7").stop()


@pytest.mark.parametrize("end", ["\r", pytest.param("", marks=pytest.mark.slow), pytest.param("\r\n", marks=pytest.mark.slow)])
async def test_refused_message_is_replayed_after_map_is_mended(laboratory: Laboratory, end: str) -> None:
    """What was accepted live is not taken in twice, however the message ends."""
    assert await laboratory.send(oru(end=end)) == ["AE"]
    assert await laboratory.reports() == ["77-1A"]
    (message,) = await laboratory.waiting()
    client, page = await laboratory.operator(message)
    shown = (await client.get(page)).text
    for part in ("accepted before", "would be refused", "[tables.report_status]"):
        assert part in shown
    answer = await post(client, f"{page}/replay", page)
    assert answer.headers["location"] == f"{page}?flash=refused-still-waiting"
    assert [each.key for each in await laboratory.waiting()] == [message.key]
    await laboratory.use_map()
    shown = (await client.get(page)).text
    assert "would be accepted" in shown
    assert re.search(r"report 77-1B\S*, final, 1 observation", shown)
    answer = await post(client, f"{page}/replay", page)
    assert answer.headers["location"] == f"{page}?flash=refused-replayed"
    assert await laboratory.reports() == ["77-1A", "77-1B"]
    assert [each.key for each in await laboratory.waiting(RefusedState.REPLAYED)] == [message.key]
    assert await laboratory.alert() is None
    history = (await client.get(page)).text.split("History")[1]
    assert [each for each in ("replayed: 1 new, 1 accepted before", "by operator") if each not in history] == []
    assert (await post(client, f"{page}/replay", page)).status_code == 409
    for odd in ("nobody", "%00", "..%2fx"):
        assert (await post(client, f"/refused/{odd}/replay")).status_code in {404, 405}


async def test_replay_of_what_a_rule_leaves_out(laboratory: Laboratory) -> None:
    """A refused message that the mended map ignores, such as quality control, is done: nothing of it is refused again."""
    message = await laboratory.refused(oru())
    await laboratory.use_map('[[results.ignore]]\npath = "OBR-25"\nvalue = "Q"\n')
    client, page = await laboratory.operator(message)
    assert "would be left out" in (await client.get(page)).text
    answer = await post(client, f"{page}/replay", page)
    assert answer.headers["location"] == f"{page}?flash=refused-replayed"
    assert await laboratory.reports() == ["77-1A"]


async def test_raw_text_is_shown_on_noted_request_alone(laboratory: Laboratory) -> None:
    """No list, page, alert, log or database file has a name; a look names who looked, and comes before the text."""
    message = await laboratory.refused(oru())
    operator, page = await laboratory.operator(message)
    viewer = await laboratory.pages.signed_in_client(Role.VIEWER)
    for client in (viewer, operator):
        for path in ("/", "/results", "/refused", "/refused?source=hl7", page, "/alerts"):
            assert NAME not in (await client.get(path)).text, path
    assert "Show the raw text" not in (await viewer.get(page)).text
    assert "raw text was shown" not in (await operator.get(page)).text
    answer = await post(operator, f"{page}/raw", page)
    (found,) = re.findall(r"<pre[^>]*>(.*?)</pre>", answer.text, flags=re.DOTALL)
    assert unescape(found).strip().split("\n") == oru().decode().rstrip("\r").split("\r")
    assert answer.headers["cache-control"] == "no-store"
    history = (await operator.get(page)).text.split("History")[1]
    assert re.search(r"the raw text was shown.*by operator", history)
    stored = b"".join(path.read_bytes() for path in laboratory.mapping.parent.rglob("*") if path.is_file())
    assert [each for each in (NAME.encode(), b"1961") if each in stored] == []


async def test_name_of_file_told_to_operators_alone(laboratory: Laboratory) -> None:
    """Where a file cannot be read at all, its name is how it is found; it may name the patient, so no list or alert has it."""
    await laboratory.inbox.reject("MEIER_Anna.json:1700000000:12:0123456789abcdef", "document: is not JSON", raw=b"not JSON")
    operator, page = await laboratory.operator(await laboratory.refused())
    assert '<dd class="code">MEIER_Anna.json</dd>' in (await operator.get(page)).text
    for client, path in (
        (await laboratory.pages.signed_in_client(Role.VIEWER), page),
        *((operator, path) for path in ("/", "/results", "/refused", "/alerts")),
    ):
        assert "MEIER" not in (await client.get(path)).text, path
    assert "MEIER" not in (await laboratory.alert()).detail


async def test_hostile_raw_text_is_escaped(laboratory: Laboratory) -> None:
    """Noise is shown as its bytes."""
    client, page = await laboratory.operator(
        await laboratory.refused(b"MSH|^~\\&|<script>alert(1)</script>|\x02\x1b[31m|caf\xe9")
    )
    shown = (await post(client, f"{page}/raw")).text
    assert ("<script>alert" in shown, "␂␛[31m|caf\\xe9" in shown) == (False, True)
    await post(client, f"{page}/dismiss", note="garbage")
    await laboratory.inbox.reject("noise", "bytes outside of a frame", raw=b"\x00\x01\x02\xff" * 8)
    _, page = await laboratory.operator(await laboratory.refused())
    assert "00000010  00 01 02 ff" in (await post(client, f"{page}/raw")).text


async def test_same_message_counts_up_and_stays_dismissed(laboratory: Laboratory) -> None:
    """All are dismissed together up to the number that was shown."""
    await laboratory.send(oru("A"), oru("A"), oru("B"))
    assert sorted(each.count for each in await laboratory.waiting()) == [1, 2]
    assert (await laboratory.alert()).count == 2
    client = await laboratory.pages.signed_in_client(Role.OPERATOR)
    twice = max(await laboratory.waiting(), key=lambda each: each.count)
    assert (await post(client, f"/refused/{twice.key}/dismiss", note="sent again correctly")).status_code == 303
    assert (await laboratory.alert()).count == 1
    await laboratory.send(oru("A"), oru("C"))
    (gone,) = await laboratory.waiting(RefusedState.DISMISSED)
    assert (gone.key, gone.count) == (twice.key, 3)
    for source, count, status in (("hl7", "1", 409), ("x", "2", 404), ("hl7", "2", 303)):
        assert len(await laboratory.waiting()) == 2
        fields = {"source": source, "note": "garbage", "expected_count": count}
        assert (await post(client, "/refused/dismiss", "/refused?source=hl7", **fields)).status_code == status
    assert await laboratory.waiting() == ()
    assert await laboratory.alert() is None


async def test_garbage_of_a_night_is_bounded(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of a day only one count grows, and the alert says so; contents have a limit of bytes."""
    monkeypatch.setattr(refused_messages, "MAX_NEW_A_DAY", 5)
    monkeypatch.setattr(refused_messages, "MAX_BYTES_A_DAY", 3 * len(oru("N0")))
    await laboratory.send(*(oru(f"N{number}") for number in range(9)))
    found = await laboratory.waiting()
    assert sorted((each.count, each.is_kept) for each in found) == [(1, False)] * 2 + [(1, True)] * 3 + [(4, False)]
    assert "4 more of today are only counted" in str(await laboratory.alert())
    laboratory.pages.clock.advance(days=2)
    await laboratory.send(oru("later"))
    assert len(await laboratory.waiting()) == 7


async def test_noise_does_not_use_up_what_is_kept_of_messages(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_messages, "MAX_NEW_A_DAY", 10)
    for number in range(20):
        await laboratory.inbox.reject(f"noise-{number}", "no message", raw=bytes(range(number, 256)))
    assert await laboratory.send(oru("M1"), oru("M2")) == ["AE", "AE"]
    kept = sorted(each.size for each in await laboratory.waiting() if each.is_kept)
    assert kept[2:] == [len(oru("M1"))] * 2


async def test_store_failure_leaves_message_unanswered(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 1: what could not be committed gets neither AE nor AR; the peer sends it again."""

    def fail(*_: Any) -> None:
        raise StoreUnreachableError

    monkeypatch.setattr("lab_agent.results.result_inbox.record_refusal", fail)
    reader, writer = await asyncio.open_connection("127.0.0.1", laboratory.port)
    writer.write(VT + oru() + FS + b"\r")
    async with asyncio.timeout(DEADLINE):
        assert await reader.read() == b""
    writer.close()


async def test_contents_are_purged_with_an_event(laboratory: Laboratory) -> None:
    pages = laboratory.pages
    message = await laboratory.refused(oru())
    purger = RetentionPurger(pages.context.store, pages.clock, RetentionSettings(refused_days=30), lambda _, now: now)
    for days, is_kept in ((29, True), (2, False)):
        pages.clock.advance(days=days)
        await purger.run()
        assert (await laboratory.waiting())[0].is_kept is is_kept
    client, page = await laboratory.operator(message)
    shown = (await client.get(page)).text
    assert "the raw message was deleted, 30 days after it came last" in shown
    assert "Show the raw text" not in shown
    for action, status in (("raw", 409), ("dismiss", 303)):
        assert (await post(client, f"{page}/{action}", note="too old")).status_code == status


async def test_replay_takes_no_newer_value_back_unasked(laboratory: Laboratory) -> None:
    """The laboratory has sent it again and right, and that was delivered: the old one must not correct it."""
    message = await laboratory.refused(oru("M1"))
    laboratory.pages.clock.advance(minutes=5)
    assert await laboratory.send(oru("M2", status="F").replace(b"||4.4|", b"||6.0|")) == ["AA"]
    before = await laboratory.reports()
    await laboratory.use_map()
    client, page = await laboratory.operator(message)
    shown = (await client.get(page)).text
    assert [each for each in ("would take back a newer one", 'name="over_newer"') if each not in shown] == []
    answer = await post(client, f"{page}/replay", page)
    assert answer.headers["location"] == f"{page}?flash=refused-still-waiting"
    assert await laboratory.reports() == before
    answer = await post(client, f"{page}/replay", page, over_newer="yes")
    assert answer.headers["location"] == f"{page}?flash=refused-replayed"
    assert len(await laboratory.reports()) == len(before) + 1


async def test_replayed_preliminary_values_complete_a_later_message(laboratory: Laboratory) -> None:
    """OBX-11 `U` means the value that was sent before: a replayed message counts as sent, as one that came live."""
    message = await laboratory.refused(oru("M1", status="Q"))
    await laboratory.use_map('[tables.report_status]\nQ = "preliminary"\n')
    assert (await laboratory.pages.context.refused_messages.replay(message.key, by="ann")).problems == ()
    segments = oru("M2", status="F").split(b"\r")
    final = b"\r".join([*segments[:2], segments[4], b"OBX|1|NM|2823-3^Potassium^LN||||||||U", b""])
    assert await laboratory.send(final) == ["AA"]


async def test_replay_that_adapter_cannot_keep_goes_on_waiting(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    message = await laboratory.refused(oru("M1"))
    await laboratory.use_map()
    desk = laboratory.pages.context.refused_messages
    with monkeypatch.context() as broken:
        broken.setattr("lab_agent.lis.hl7v2.message_archive.MessageArchive.save_open_report", lambda *_: 1 / 0)
        outcome = await desk.replay(message.key, by="ann")
    assert (outcome.message.state, outcome.new, outcome.known) == (RefusedState.WAITING, 1, 1)
    outcome = await desk.replay(message.key, by="ann")
    assert (outcome.message.state, outcome.new, outcome.known) == (RefusedState.REPLAYED, 0, 2)
