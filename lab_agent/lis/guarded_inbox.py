"""The inbox as an adapter gets it: what the adapter made is held against the rules before it comes near the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from lab_agent.codec import validate_message
from lab_agent.domain.results import AccessionUpdate, Document, LabMessage, LabRejection, LabReport
from lab_agent.errors import DataInvalidError, Problem
from lab_agent.ports.lis import Inbox

_MAX_MESSAGE_NAME_LENGTH = 1000
_MAX_REASON_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class GuardedInbox:
    """An `Inbox` around the inbox. `accept` raises `DataInvalidError`, naming every bad field."""

    inbox: Inbox
    adapter: str

    async def accept(self, message: str, content: LabMessage) -> bool:
        """Keep a report or a refusal; False if it was kept before."""
        checked = await asyncio.to_thread(_validate_message, message, content)
        return await self.inbox.accept(message, checked)

    async def was_accepted(self, message: str) -> bool:
        """Whether a message of that name was kept before."""
        return await self.inbox.was_accepted(message)

    async def refused(self, message: str, reason: str) -> None:
        """Hear that a message was refused."""
        await self.inbox.refused(str(message)[:_MAX_MESSAGE_NAME_LENGTH], str(reason)[:_MAX_REASON_LENGTH])


def _validate_message(message: object, content: object) -> LabMessage:
    if not isinstance(content, LabReport | LabRejection | AccessionUpdate):
        mend = "give a LabReport, a LabRefusal or a LabReceipt"
        raise DataInvalidError((Problem("document", f"is a {type(content).__name__}", mend),))
    problems = [*_name_problems(message), *_unread_document_problems(content)]
    if problems:
        raise DataInvalidError(tuple(problems))
    return validate_message(content)


def _name_problems(message: object) -> Iterator[Problem]:
    if not isinstance(message, str) or not message.strip() or len(message) > _MAX_MESSAGE_NAME_LENGTH or "\0" in message:
        mend = f"give the message a stable name of its own, up to {_MAX_MESSAGE_NAME_LENGTH} characters"
        yield Problem("message", "is no name", mend)


def _unread_document_problems(content: LabMessage) -> Iterator[Problem]:
    """Documents must be there in full: beyond this point a file name means a place in our own store, and nothing else."""
    for where, document in _documents(content):
        if document.file is not None:
            yield Problem(f"{where}.file", "was not read", "read the file, and give its bytes as content")


def _documents(content: LabMessage) -> Iterator[tuple[str, Document]]:
    if isinstance(content, LabReport):
        yield from ((f"documents[{index}]", document) for index, document in enumerate(content.documents))
        for index, observation in enumerate(content.observations):
            if observation.value_attachment is not None:
                yield f"observations[{index}].value_attachment", observation.value_attachment
