"""Refused messages by command, in another process than the agent's; and the agent itself, which reads its map on SIGHUP."""

from __future__ import annotations

import asyncio
import json
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.registry import load_adapters
from lab_agent.results.refused_messages import record_refusal
from lab_agent.results.refused_records import RefusedContent, RefusedState
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.store.crypto import Cipher
from lab_agent.store.unit_of_work import Store
from tests.harness.clock import VirtualClock, wait_until
from tests.harness.daemon import alerts, running
from tests.harness.programs import free_port
from tests.harness.refused import CR, FS, MENDED_MAP, NAME, VT, adapter_table, oru, send
from tests.integration.cli.conftest import KEY


def add_adapter(lab: Any, **keys: Any) -> Path:
    """Give the laboratory an hl7v2 adapter with an empty map; where that lies."""
    mapping = Path(lab.folder / "map.toml")
    mapping.write_text("")
    table = adapter_table(lab.folder / "own", mapping, **keys)
    plain = "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict))
    nested = "\n".join(
        f"[lis.hl7.{key}]\n" + "\n".join(f"{name} = {json.dumps(one)}" for name, one in value.items())
        for key, value in table.items()
        if isinstance(value, dict)
    )
    default = lab.config.read_text().replace("[lis.folder]", '[lis]\ndefault = "hl7"\n[lis.folder]')
    lab.config.write_text(f"{default}[lis.hl7]\n{plain}\n{nested}\n")
    return mapping


@pytest.fixture
def mapping(lab: Any, capsys: pytest.CaptureFixture[str]) -> Path:
    """The map of a laboratory whose adapter has refused one of two reports of a message."""
    path = add_adapter(lab)

    async def refuse() -> None:
        store = Store(lab.url, Cipher(KEY))
        adapter = load_adapters({"hl7": adapter_table(lab.folder / "own", path)}, "hl7").get("hl7")
        clock = VirtualClock(datetime.now(UTC))
        await adapter.start(StoreInbox(store, clock, "hl7"))
        try:
            inner: Any = adapter._adapter
            assert await send(inner.ports[1], oru(), oru()) == ["AE", "AE"]
        finally:
            await adapter.stop()
            await store.close()

    asyncio.run(refuse())
    capsys.readouterr()
    return path


def test_refused_message_is_listed_shown_and_replayed(cli: Any, mapping: Path) -> None:
    (row,) = cli("results", "refused", "list", "--json").json()
    assert (row["from"], row["times"], row["state"]) == ("hl7", 2, "waiting")
    key = row["message"]
    for command in (("list",), ("list", "--json"), ("show", key), ("show", key, "--json")):
        assert NAME not in cli("results", "refused", *command).out
    shown = cli("results", "refused", "show", key, "--json").json()
    assert sorted(part["outcome"] for part in shown["parts"]) == ["accepted before", "would be refused"]
    answer = cli("results", "refused", "replay", key)
    assert (answer.code, "unknown status" in answer.out) == (1, True)
    mapping.write_text(MENDED_MAP)
    answer = cli("results", "refused", "replay", key, "--by", "ann")
    assert (answer.code, answer.err) == (0, "")
    assert "1 new, 1 accepted before" in answer.out
    assert "No refused messages wait." in cli("results", "refused", "list").out
    assert len(cli("results", "list", "--json").json()) == 2
    assert "replayed: 1 new" in cli("results", "refused", "show", key).out
    assert "it does not wait" in cli("results", "refused", "replay", key).err


def test_all_that_wait_of_an_adapter_are_replayed(cli: Any, mapping: Path) -> None:
    assert cli("results", "refused", "replay").code == 2
    assert cli("results", "refused", "replay", "--adapter", "hl7").code == 1
    mapping.write_text(MENDED_MAP)
    answer = cli("results", "refused", "replay", "--adapter", "hl7", "--by", "ann")
    assert (answer.code, answer.err) == (0, "")
    assert "replayed now: 1 new, 1 accepted before" in answer.out
    assert "No refused message" in cli("results", "refused", "replay", "--adapter", "hl7").out


def test_raw_text_is_printed_and_noted(cli: Any, lab: Any, mapping: Path) -> None:
    (row,) = cli("results", "refused", "list", "--json").json()
    answer = cli("results", "refused", "show", row["message"], "--raw", "--by", "ann")
    assert answer.out.splitlines() == oru().decode().rstrip("\r").split("\r")
    history = cli("results", "refused", "show", row["message"], "--json").json()["history"]
    assert [(each["text"], each["by"]) for each in history] == [("the raw text was shown", "ann")]
    stored = b"".join(path.read_bytes() for path in lab.folder.rglob("*") if path.is_file())
    assert NAME.encode() not in stored


def test_name_of_unreadable_file_is_shown_and_not_listed(cli: Any, lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    content = RefusedContent(message_id="MEIER_Anna.json:1700000000:12:0123456789abcdef", raw=b"not JSON")
    lab.write(lambda uow: record_refusal(uow, "main", content, "document: is not JSON", datetime.now(UTC)))
    capsys.readouterr()  # what it logged is out of the way
    (row,) = cli("results", "refused", "list", "--json").json()
    assert "MEIER" not in cli("results", "refused", "list").out
    assert cli("results", "refused", "show", row["message"], "--json").json()["sent_as"] == "MEIER_Anna.json"
    assert "MEIER_Anna.json" in cli("results", "refused", "show", row["message"]).out


def test_dismissed_messages_end_the_alert(cli: Any, lab: Any, mapping: Path) -> None:
    (row,) = cli("results", "refused", "list", "--json").json()
    assert cli("results", "refused", "dismiss", "--note", "n").code == 2
    assert "There is no refused message" in cli("results", "refused", "dismiss", "MNOBODY", "--note", "n").err
    assert "dismissed: 1" in cli("results", "refused", "dismiss", row["message"], "--note", "sent again").out
    assert "dismissed: 0" in cli("results", "refused", "dismiss", "--adapter", "hl7", "--note", "n").out
    assert ("lis.refused_messages", False) not in alerts(lab)


@pytest.mark.slow
async def test_sighup_reads_mended_map_without_dropping_connection(lab: Any) -> None:
    """A mended map is used from the next message on; an invalid one leaves the former in use, with an alert."""
    port = free_port()
    mapping = add_adapter(lab, results={"role": "server", "port": port})
    async with running(lab) as daemon:
        await wait_until(daemon.is_ready)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def answer(rest: bytes) -> bytes:
            writer.write(rest)
            return (await reader.readuntil(FS + CR)).split(b"\rMSA|")[1][:2]

        async def reload(text: str, outcome: str) -> None:
            mapping.write_text(text)
            daemon.process.send_signal(signal.SIGHUP)
            await wait_until(lambda: f"outcome={outcome}" in daemon.log, outcome)

        assert await answer(VT + oru("M1") + FS + CR) == b"AE"
        whole = VT + oru("M2") + FS + CR
        writer.write(whole[:100])
        await reload(MENDED_MAP, "reloaded")
        assert await answer(whole[100:]) == b"AA"
        await reload("[tables.report_status]\nQ = 'nonsense'\n", "invalid")
        assert await answer(VT + oru("M3", number="78-1") + FS + CR) == b"AA"
        writer.close()
    assert ("lis.map_invalid", False) in alerts(lab)
    found, _ = await asyncio.to_thread(lab.write, lambda uow: uow.refused_messages.list(states=(RefusedState.WAITING,), limit=9))
    assert len(found) == 1
