"""HAPI (Java) and we understand each other: it reads our orders strictly, and gives us results that it wrote itself.

Maven fetches it, from wherever Maven fetches here. Without a JDK, Maven or a registry these tests are skipped, and say why.
"""

import asyncio
import base64
import fcntl
import os
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pytest

from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.lab_order import LabOrder, OrderPatient
from lab_agent.lis.testing import MemoryInbox, make_order
from lab_agent.shared.errors import LisRejected, LisUnavailable
from lab_agent.shared.values import Quantity
from tests.harness.clock import DEADLINE
from tests.harness.hl7_wire import client, running
from tests.harness.programs import free_port

pytestmark = pytest.mark.proof

SOURCE = Path(__file__).parent / "hapi" / "Peer.java"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>peer</groupId><artifactId>peer</artifactId><version>1</version>
<dependencies>
<dependency><groupId>ca.uhn.hapi</groupId><artifactId>hapi-base</artifactId><version>2.5.1</version></dependency>
<dependency><groupId>ca.uhn.hapi</groupId><artifactId>hapi-structures-v25</artifactId><version>2.5.1</version></dependency>
</dependencies></project>
"""
HOSTILE = "a|b^c~d&e\\f\\F\\ ё"
PDF = b"%PDF-1.4\n" + bytes(range(256))


@pytest.fixture(scope="module")
def hapi(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Command that starts our Java program; it still wants its words."""
    if missing := [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]:
        pytest.skip(f"HAPI is not tried: {', '.join(missing)} missing on this machine")
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "hapi"  # one for all test processes
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "problem").exists():
            (home / "problem").write_text(built(home))
    if problem := (home / "problem").read_text():
        pytest.skip(f"HAPI is not tried: {problem}")
    return ["java", "-cp", f"{home}/jars/*:{home}/classes", "Peer"]


def built(home: Path) -> str:
    """Fetch HAPI and compile our program; say why it cannot be fetched."""
    (home / "pom.xml").write_text(POM)
    fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
    try:
        subprocess.run(fetch, cwd=home, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=40)
    except subprocess.TimeoutExpired:
        return "Maven did not fetch it within 40 seconds"
    except subprocess.CalledProcessError as exc:
        words = " ".join(exc.stdout.decode(errors="replace").split()) or f"code {exc.returncode}"
        return f"Maven cannot fetch it: {words[:300]}"
    subprocess.run(["javac", "-cp", "jars/*", "-d", "classes", SOURCE], cwd=home, check=True, timeout=DEADLINE)
    return ""


@asynccontextmanager
async def java(hapi: list[str], *words: object) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(*hapi, *map(str, words), stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: Process) -> dict[str, str]:
    assert process.stdout
    line = await asyncio.wait_for(process.stdout.readline(), DEADLINE)
    return dict(parse_qsl(line.decode().strip(), keep_blank_values=True))


def with_code(order: LabOrder, code: str) -> LabOrder:
    return replace(order, lines=(replace(order.lines[0], lab_code=code), *order.lines[1:]))


async def test_hapi_strict_parser_accepts_orders_ack_decides(hapi: list[str], tmp_path: Path) -> None:
    """HAPI (Java) reads our orders strictly, and its acknowledgement decides the outcome of the submit."""
    patient = OrderPatient(family=HOSTILE, given=("Ёлка", "Ünal"), gender="female")
    order, port = replace(make_order(6), patient=patient), free_port()
    async with java(hapi, "serve", port) as server:
        assert await said(server) == {"up": "yes"}
        async with running(tmp_path, orders=client(port)) as adapter:
            receipt = await adapter.submit(order)
            seen = await said(server)
            with pytest.raises(LisRejected, match="AE with error 204"):
                await adapter.submit(with_code(make_order(7), "UNKNOWN"))
            with pytest.raises(LisUnavailable, match="206"):
                await adapter.submit(with_code(make_order(8), "BUSY"))
    tubes = {one.id: one.containers[0].barcode for one in order.specimens}
    lines = [(line.key, line.lab_code, *[tubes[line.specimens[0]]] * 2) for line in order.lines]
    assert len(lines) > 1
    assert [tuple(line.split()) for line in seen.pop("lines").splitlines()] == lines
    assert seen == {"id": order.key, "family": HOSTILE, "given": "Ёлка", "middle": "Ünal", "sex": "F"}
    assert receipt.line_accessions == {line.key: f"F{number}" for number, line in enumerate(order.lines)}


async def test_hapi_as_it_comes_reads_one_line_of_a_message(hapi: list[str], tmp_path: Path) -> None:
    """HAPI's own settings take the second ORC for a prior result: that is told, and one line per message mends it."""
    order, port = next(order for order in map(make_order, range(100)) if len(order.lines) == 3), free_port()
    first, *others = (line.key for line in order.lines)
    async with java(hapi, "serve-plain", port) as server:
        assert await said(server) == {"up": "yes"}
        async with running(tmp_path / "1", orders=client(port)) as adapter:
            receipt = await adapter.submit(order)
            assert receipt.line_accessions == {first: "F0"}
            assert receipt.unnamed_lines == tuple(others)
            assert len((await said(server))["lines"].splitlines()) == 1
        async with running(tmp_path / "2", orders=client(port), one_line_per_message=True) as adapter:
            receipt = await adapter.submit(order)
            assert set(receipt.line_accessions) == {first, *others}
            assert receipt.unnamed_lines == ()
            read = [(await said(server))["lines"].split()[0] for _ in order.lines]
            assert read == [first, *others]


class SlowInbox(MemoryInbox):
    """An inbox whose commit waits until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.may = asyncio.Event(), asyncio.Event()

    async def accept(self, message: str, content: object) -> bool:
        self.reached.set()
        await self.may.wait()
        return await super().accept(message, content)  # type: ignore[arg-type]


async def test_hapi_result_acknowledged_only_after_commit(hapi: list[str], tmp_path: Path) -> None:
    inbox, line = SlowInbox(), make_order(6).lines[0].key
    async with running(tmp_path, inbox, orders=client(free_port())) as adapter:

        def sending(control_id: str, status: str, patience: int):
            words = (adapter.ports[1], control_id, line, status, quote(HOSTILE), base64.b64encode(PDF).decode(), patience)
            return java(hapi, "send", *words)

        async with sending("H1", "F", 30) as sender:
            await asyncio.wait_for(inbox.reached.wait(), DEADLINE)
            answer = asyncio.create_task(said(sender))
            await asyncio.sleep(0.5)
            assert not answer.done()
            assert not inbox.contents
            inbox.may.set()
            assert await answer == {"code": "AA", "about": "H1", "error": "", "why": ""}
        [report] = inbox.contents

        inbox.fail_before = 1
        async with sending("H2", "P", 2) as sender:
            assert "failure" in await said(sender)
        assert inbox.contents == [report]
        async with sending("H2", "P", 30) as sender:
            assert (await said(sender))["about"] == "H2"
        assert len(inbox.contents) == 2

        async with sending("H3", "X", 30) as sender:
            refused = await said(sender)
        assert (refused["code"], refused["about"]) == ("AE", "H3")
        assert "operator" in refused["why"]
        assert len(inbox.contents) == 2

    assert isinstance(report, LabReport)
    assert (report.lines, report.accession) == ((line,), "B1")
    number, coded, text = report.observations
    assert number.value_quantity == Quantity(value=Decimal("1.20"), unit="g/L")
    assert str(number.value_quantity.value) == "1.20"
    assert coded.value_codeable_concept
    assert coded.value_codeable_concept.coding[0].code == "260385009"
    assert text.value_string == HOSTILE
    [document] = report.documents
    assert (document.content, document.content_type) == (PDF, "application/pdf")
