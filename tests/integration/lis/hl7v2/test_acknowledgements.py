"""Who is answered what, whatever the peer writes into the fields that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.lis.testing import make_order, make_report
from tests.fakes.hl7_lis import build_oru
from tests.harness.hl7_wire import dialled, framed, running

REPORT = make_report(6, make_order(6))
SERVERS = {"orders": {"role": "server", "port": 0}, "results": {"role": "server", "port": 0}}


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ("||||0", ["AA"]),
        ("||||1", ["AA"]),
        ("|||0|2", ["AA"]),
        ("|||Q|AL", ["AA"]),
        ("|||AL|0", ["CA"]),
        ("|||al|al", ["CA", "AA"]),
    ],
)
async def test_conditions_outside_table_0155_count_as_empty(tmp_path: Path, asked: str, codes: list[str]) -> None:
    """Analysers write the number of their result's kind into MSH-16, and still wait for an answer."""
    message = build_oru(REPORT, "M1").replace("|2.5.1", "|2.5.1" + asked, 1)
    async with running(tmp_path, **SERVERS) as adapter, dialled(adapter.ports[1]) as wire:
        await wire.send(framed(message))
        answers = [(await wire.frame()).split(b"\r")[1].decode() for _ in codes]
    assert answers == [f"MSA|{code}|M1" for code in codes]
