"""Mail, as a real server on this machine gets it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.operations.notification.channel import NotificationNotSent
from lab_agent.operations.notification.email_channel import EmailChannel
from lab_agent.operations.notification.message import Change, Message
from lab_agent.settings.notify import EmailSettings
from tests.harness.certificates import CertificateAuthority
from tests.harness.clock import DEADLINE
from tests.harness.mail_server import LOGIN, MailServer, running_mail_server
from tests.harness.notifications import LIS_DOWN, NOW, make_item, make_message


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


def make_channel(server: MailServer, authority: CertificateAuthority, **fields: Any) -> EmailChannel:
    given = {
        "host": "127.0.0.1",
        "port": server.port,
        "security": server.security,
        "ca_file": authority.ca,
        "user": LOGIN[0],
        "password": LOGIN[1],
        "sender": "agent@lab.example",
        "recipients": ["it@lab.example", "night@lab.example"],
        "timeout": 10,
    }
    return EmailChannel("email.it", EmailSettings.model_validate(given | fields))


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_mail_is_encrypted_before_anything_is_said(authority: CertificateAuthority, security: Any) -> None:
    async with running_mail_server(MailServer(security, authority.issue("mail"))) as server:
        message = make_message(make_item(detail="ConnectError"), link="https://agent.lab.example")
        assert await make_channel(server, authority).send(message) == ""
    said = [line for line in server.lines if not line.startswith(("EHLO", "STARTTLS"))]
    assert said
    assert all(line.endswith("encrypted") for line in said)
    (mail,) = server.mails
    assert server.envelopes == [("it@lab.example", "night@lab.example")]
    assert mail["Subject"].strip().startswith("[lab-agent Example Lab] critical: ")
    assert mail["From"] == "lab-agent Example Lab <agent@lab.example>"
    assert mail["Message-ID"] == "<0123456789abcdef@lab.example>"
    assert mail["Date"].datetime == NOW
    assert (mail["Auto-Submitted"], mail["References"]) == ("auto-generated", None)
    text = mail.get_content()
    assert mail.get_content_type() == "text/plain"
    for part in ("CRITICAL: ", "ConnectError", "12 orders to fetch", "2 h", "https://agent.lab.example"):
        assert part in text


async def mailed(authority: CertificateAuthority, message: Message) -> Any:
    """The mail that arrives."""
    async with running_mail_server(MailServer("tls", authority.issue("mail"))) as server:
        await make_channel(server, authority).send(message)
    assert server.envelopes == [("it@lab.example", "night@lab.example")]
    (mail,) = server.mails
    return mail


async def test_end_refers_to_the_mail_that_told_the_start(authority: CertificateAuthority) -> None:
    ended = make_item(change=Change.ENDED, ended_at=NOW + timedelta(minutes=10), affected_before="12 orders to fetch")
    mail = await mailed(authority, make_message(ended, references=("first", "second")))
    assert mail["Subject"].strip().startswith("[lab-agent Example Lab] ended: ")
    assert mail["In-Reply-To"] == "<first@lab.example>"
    assert mail["References"] == "<first@lab.example> <second@lab.example>"
    assert [each for each in ("2 h 10 min", "12 orders to fetch when it was told") if each not in mail.get_content()] == []


async def test_texts_from_outside_add_no_header(authority: CertificateAuthority) -> None:
    hostile = "x\r\nBcc: evil@evil.example\r\n\r\n<b>body</b>\x1b[2J\u202e\ud800 Ä"
    message = make_message(make_item(LIS_DOWN, hostile, detail=hostile), laboratory="L\r\nX-Evil: 1")
    mail = await mailed(authority, message)
    assert (mail["Bcc"], mail["X-Evil"]) == (None, None)
    text = mail.get_content()
    assert (set(text) & set("\x1b\u202e"), "Ä" in text) == (set(), True)
    assert not [line for line in text.splitlines() if line.startswith("Bcc")]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"password": "wrong"}, "rejects user or password (535)"),
        ({"host": "localhost.invalid"}, "name that cannot be resolved"),
        ({"port": 1}, "refuses the connection"),
        ({"ca_file": None}, "certificate that is not trusted"),
        ({"security": "tls"}, "check `security`"),
        ({"host": "x" * 70}, "check `host`"),
        ({"ca_file": Path(__file__)}, "the certificates of `ca_file` cannot be read"),
    ],
)
async def test_failure_is_told_in_plain_words(authority: CertificateAuthority, fields: dict[str, Any], reason: str) -> None:
    async with running_mail_server(MailServer("starttls", authority.issue("mail"))) as server:
        with pytest.raises(NotificationNotSent) as caught:
            await make_channel(server, authority, **fields).send(make_message(make_item()))
    assert reason in str(caught.value)
    assert "wrong" not in str(caught.value).replace("wrong version", "")
    assert server.mails == []


async def test_server_without_starttls_gets_no_password(authority: CertificateAuthority) -> None:
    async with running_mail_server(MailServer("none")) as server:
        with pytest.raises(NotificationNotSent, match="STARTTLS"):
            await make_channel(server, authority, security="starttls").send(make_message(make_item()))
    assert not [line for line in server.lines if line.startswith(("AUTH", "MAIL"))]


async def test_one_refused_recipient_does_not_keep_it_from_the_others(authority: CertificateAuthority) -> None:
    server = MailServer("tls", authority.issue("mail"), refuses=frozenset({"night@lab.example"}))
    async with running_mail_server(server):
        assert "refuses night@lab.example" in await make_channel(server, authority).send(make_message(make_item()))
    assert server.envelopes == [("it@lab.example",)]


async def test_silent_server_is_given_up(authority: CertificateAuthority) -> None:
    ended = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    listening = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    server = MailServer("tls", port=listening.sockets[0].getsockname()[1])
    with pytest.raises(NotificationNotSent, match="does not answer in time"):
        await make_channel(server, authority, timeout=0.3).send(make_message(make_item()))
    await asyncio.wait_for(ended.wait(), DEADLINE)
    listening.close()
