"""`lab-sandbox order` as a person runs it: real orders through real processes, to their results."""

from __future__ import annotations

import asyncio
import json
import re
from asyncio.subprocess import PIPE

import pytest

from lab_sandbox.demo.processes import program_path
from lab_sandbox.demo.runner import build_account
from lab_sandbox.partner.client import open_partner_client
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.installation import ProcessHarness
from tests.harness.paths import ROOT

pytestmark = pytest.mark.slow
GOLDEN_ORDER = ROOT / "tests" / "integration" / "lab_sandbox" / "golden" / "order_request.json"


async def order(harness: ProcessHarness, *words: str) -> tuple[int, str, str]:
    command = (program_path("lab-sandbox"), "order", "--service", str(harness.workspace.service_settings), *words)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_orders_are_followed_to_their_results(harness: ProcessHarness) -> None:
    await harness.start_agent()
    code, out, err = await order(harness, "--tests", "001.001,002.001", "--count", "2", "--seed", "one")
    assert (code, err) == (0, "")
    assert "TEST-one-one-0: sent, 001.001, 002.001; Task " in out
    assert "2 of 2 orders completed." in out
    assert len(re.findall(r"final report, 1 documents\n    .* = 1\.20 g/L", out)) == 4, "digits as they were reported"
    assert re.search(r"TEST-one-one-1: order completed; lines: 2 completed \(\d+\.\d s\)", out)


async def test_order_of_the_guide_is_accepted_and_completed(harness: ProcessHarness) -> None:
    """docs/sandbox.md: the complete order that a partner sends by hand."""
    await harness.start_agent()
    account = build_account(harness.workspace)
    async with open_partner_client(account) as client:
        name = {"family": "0123456789", "given": ["-", "-"]}
        security = [{"system": "read", "code": account.laboratory}]
        patient = {"resourceType": "Patient", "meta": {"security": security}, "gender": "female", "birthDate": "1980-02-29"}
        created = await client.create_patient({**patient, "name": [name]})
        text = GOLDEN_ORDER.read_text(encoding="utf-8").replace("PATIENT", created["id"])
        text = text.replace("http://exchange.test", account.base_url.rstrip("/")).replace("guid-laboratory", account.laboratory)
        await client.create_order(json.loads(text))

        async def is_told_completed() -> bool:
            return any((each["level"], each["status"]) == ("order", "completed") for each in await client.notifications())

        await wait_until(is_told_completed, "the order of the guide is completed")
