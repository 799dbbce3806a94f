"""The daemon tells an outage of the service: one mail at its start, one at its end, however often it is restarted meanwhile."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.certificates import CertificateAuthority
from tests.harness.clock import wait_until
from tests.harness.installation import ProcessHarness
from tests.harness.mail_server import LOGIN, MailServer, running_mail_server

LISTENER = """
import sys
with open(sys.argv[1], "a") as file:
    file.write(sys.stdin.read())
"""


def write_settings(harness: ProcessHarness, authority: CertificateAuthority, port: int, told: Path) -> None:
    script = told.with_suffix(".py")
    script.write_text(LISTENER)
    settings = harness.workspace.agent_settings
    settings.write_text(
        settings.read_text()
        + f"""
[notify]
laboratory = "Example Lab"
first_after = 1
ended_after = 2
[notify.email.it]
host = "127.0.0.1"
port = {port}
ca_file = "{authority.ca}"
user = "{LOGIN[0]}"
password = "{LOGIN[1]}"
sender = "agent@lab.example"
recipients = ["it@lab.example"]
[notify.command.lines]
argv = ["{sys.executable}", "{script}", "{told}"]
"""
    )


def told_by_command(told: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


@pytest.mark.slow
async def test_outage_is_one_mail_at_its_start_and_one_at_its_end(harness: ProcessHarness, tmp_path: Path) -> None:
    authority, told = CertificateAuthority(tmp_path), tmp_path / "told.jsonl"
    async with running_mail_server(MailServer("starttls", authority.issue("mail"))) as server:
        write_settings(harness, authority, server.port, told)
        await harness.stop_service()
        agent = await harness.start_agent()
        await wait_until(lambda: bool(server.mails) and bool(told_by_command(told)), "the mail about the outage")
        assert await agent.stop() == 0
        agent = await harness.start_agent()
        polls = harness.poll_count()
        await wait_until(lambda: harness.poll_count() >= polls + 8, "polls after the restart")
        assert len(server.mails) == 1

        await harness.start_service()
        await wait_until(lambda: len(server.mails) > 1 and len(told_by_command(told)) > 1, "the mail about its end")
        polls = harness.poll_count()
        await wait_until(lambda: harness.poll_count() >= polls + 5, "polls after the end")
        assert await agent.stop() == 0

    start, end = server.mails
    assert start["Subject"].strip() == "[lab-agent Example Lab] critical: The exchange service does not answer"
    assert end["Subject"].strip() == "[lab-agent Example Lab] ended: The exchange service does not answer"
    assert end["References"] == start["Message-ID"]
    assert [[each["change"] for each in line["conditions"]] for line in told_by_command(told)] == [["started"], ["ended"]]
    log = "\n".join(harness.log_lines(""))
    assert LOGIN[1] not in log
    assert len(harness.log_lines("notification_sent")) == 4
