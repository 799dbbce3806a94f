"""A mail server on 127.0.0.1 for tests: STARTTLS or TLS from the first byte, signing in, refusals; it keeps what it takes."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Literal

from tests.harness.clock import DEADLINE

LOGIN = ("agent", "a mail password")


@dataclass
class MailServer:
    """What it was sent. `refuses` are recipients that it does not take; `answer` replaces its answer to a mail."""

    security: Literal["starttls", "tls", "none"]
    certificate: tuple[Path, Path] | None = None
    refuses: frozenset[str] = frozenset()
    answer: str = "250 taken"
    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, ...]] = field(default_factory=list)
    """Recipients of each mail, as the commands named them."""
    lines: list[str] = field(default_factory=list)
    """Commands, each with whether the connection was encrypted."""

    def tls(self) -> ssl.SSLContext:
        assert self.certificate
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        return context

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):  # the client has gone
                await _Conversation(self, reader, writer, encrypted=self.security == "tls").run()
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


@dataclass
class _Conversation:
    server: MailServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    encrypted: bool
    recipients: list[str] = field(default_factory=list)

    async def run(self) -> None:
        await self.say("220 mail.test ESMTP")
        while line := (await self.reader.readline()).decode().rstrip("\r\n"):
            word = line.upper().split(":")[0].split()[0]
            self.server.lines.append(f"{word} {'encrypted' if self.encrypted else 'plain'}")
            if word == "QUIT":
                await self.say("221 bye")
                return
            await self.obey(word, line)

    async def obey(self, word: str, line: str) -> None:
        match word:
            case "EHLO":
                extra = ["250-STARTTLS"] if self.server.security == "starttls" and not self.encrypted else []
                await self.say("250-mail.test", *extra, "250 AUTH PLAIN")
            case "STARTTLS":
                await self.say("220 go ahead")
                await self.writer.start_tls(self.server.tls())
                self.encrypted = True
            case "AUTH":
                given = base64.b64decode(line.split()[2]).decode().split("\0")[1:]
                await self.say("235 welcome" if tuple(given) == LOGIN else "535 wrong password")
            case "RCPT":
                name = line.split("<")[1].split(">", maxsplit=1)[0]
                refused = name in self.server.refuses
                self.recipients += [] if refused else [name]
                await self.say("550 no such mailbox" if refused else "250 ok")
            case "DATA":
                await self.say("354 go on")
                await self.take((await self.reader.readuntil(b"\r\n.\r\n"))[:-3])
            case _:
                self.recipients = [] if word == "RSET" else self.recipients
                await self.say("250 ok")

    async def take(self, data: bytes) -> None:
        if self.server.answer.startswith("2"):
            text = b"\r\n".join(line.removeprefix(b".") for line in data.split(b"\r\n"))
            mail = message_from_bytes(text, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.server.mails.append(mail)
            self.server.envelopes.append(tuple(self.recipients))
        self.recipients = []
        await self.say(self.server.answer)

    async def say(self, *lines: str) -> None:
        self.writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await self.writer.drain()


@asynccontextmanager
async def running_mail_server(server: MailServer) -> AsyncIterator[MailServer]:
    tls = server.tls() if server.security == "tls" else None
    conversations: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.add(asyncio.create_task(server.serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", server.port, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        if conversations:
            await asyncio.wait(conversations, timeout=DEADLINE)
