"""TLS both ways as docs/adapters-hl7v2.md sets it up: its commands are run, its settings used; both sides verify each other."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.hl7v2 import Hl7v2Adapter
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.shared.errors import LisOutcomeUnknown, LisUnavailable
from tests.fakes.hl7_lis import Hl7Lis, build_oru
from tests.harness.clock import DEADLINE
from tests.harness.hl7_wire import CR, FS, framed, running
from tests.harness.paths import ROOT

SECTION = (ROOT / "docs" / "adapters-hl7v2.md").read_text(encoding="utf-8").partition("### TLS both ways")[2]
COMMANDS, _ = re.findall(r"```bash\n(.*?)```", SECTION, re.DOTALL)[:2]
SETTINGS = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)[0]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates, and those of an authority that nobody trusts in `foreign`."""
    folder = tmp_path_factory.mktemp("certificates")
    for each in (folder, folder / "foreign"):
        each.mkdir(exist_ok=True)
        subprocess.run(["bash", "-euc", COMMANDS], cwd=each, check=True, capture_output=True)
    return folder


def links(home: Path, orders: int) -> dict[str, Any]:
    """The settings of the page, with files in `home` and ports on this machine."""
    table: dict[str, Any] = tomllib.loads(SETTINGS)["lis"]["hl7v2"]
    for link in table.values():
        link["tls"] = {name: str(home / file) for name, file in link["tls"].items()}
    table["orders"]["tls"]["server_name"] = table["orders"]["host"]
    table["orders"] |= {"host": "127.0.0.1", "port": orders}
    table["results"] |= {"host": "127.0.0.1", "port": 0}
    return table


def context_of_lis(trusted: Path, own: Path | None, purpose: ssl.Purpose) -> ssl.SSLContext:
    context = ssl.create_default_context(purpose, cafile=trusted / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    if own is not None:
        context.load_cert_chain(own / "lis.pem", own / "lis.key")
    return context


async def submit(
    home: Path, folder: Path, lis: Hl7Lis, context: ssl.SSLContext, connect_timeout: float = 0.5, *, own: bool = True
) -> None:
    lis.server = await asyncio.start_server(lis.on_connection, "127.0.0.1", 0, ssl=context)
    keys = links(home, lis.server.sockets[0].getsockname()[1])
    if not own:
        del keys["orders"]["tls"]["certificate"], keys["orders"]["tls"]["key"]
    try:
        async with running(folder, connect_timeout=connect_timeout, **keys) as adapter:
            await adapter.submit(make_order(6))
    finally:
        await lis.close()


async def send_result(adapter: Hl7v2Adapter, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", adapter.ports[1], ssl=context, server_hostname="lab-agent.example"
    )
    try:
        writer.write(framed(build_oru(make_report(6, make_order(6)), "M1")))
        async with asyncio.timeout(DEADLINE):
            return await reader.readuntil(FS + CR)
    finally:
        writer.transport.abort()


async def test_worked_example_submits_and_receives(home: Path, tmp_path: Path) -> None:
    lis = Hl7Lis()
    await submit(home, tmp_path, lis, context_of_lis(home, home, ssl.Purpose.CLIENT_AUTH), connect_timeout=DEADLINE)
    assert lis.accepted_ids == [make_order(6).key]
    inbox = MemoryInbox()
    async with running(tmp_path, inbox, **links(home, 1)) as adapter:
        assert b"MSA|AA|M1" in await send_result(adapter, context_of_lis(home, home, ssl.Purpose.SERVER_AUTH))
    assert len(inbox.messages) == 1


async def test_lis_that_asks_for_no_certificate_gets_the_order(home: Path, tmp_path: Path) -> None:
    lis, context = Hl7Lis(), context_of_lis(home, home, ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_NONE
    await submit(home, tmp_path, lis, context, DEADLINE, own=False)
    assert lis.accepted_ids == [make_order(6).key]


@pytest.mark.parametrize(("trusted", "own"), [("", "foreign"), ("foreign", "")])
async def test_order_goes_only_where_both_trust(home: Path, tmp_path: Path, trusted: str, own: str) -> None:
    """A LIS with a foreign certificate gets none; and one that does not trust ours takes none."""
    lis = Hl7Lis()
    with pytest.raises((LisUnavailable, LisOutcomeUnknown) if trusted else LisUnavailable):  # TLS 1.3: we learn it late
        await submit(home, tmp_path, lis, context_of_lis(home / trusted, home / own, ssl.Purpose.CLIENT_AUTH))
    assert lis.raw == []


@pytest.mark.parametrize(("trusted", "own"), [("", None), ("", "foreign"), ("foreign", "")])
async def test_result_without_trust_is_not_taken(home: Path, tmp_path: Path, trusted: str, own: str | None) -> None:
    """Without a certificate, with one of another authority, or where the LIS does not trust ours."""
    inbox = MemoryInbox()
    context = context_of_lis(home / trusted, None if own is None else home / own, ssl.Purpose.SERVER_AUTH)
    async with running(tmp_path, inbox, **links(home, 1)) as adapter:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await send_result(adapter, context)
    assert not inbox.messages
