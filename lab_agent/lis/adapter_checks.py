"""Checks what an adapter returns and delivers: foreign code may be wrong, and nothing of it goes further unchecked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lab_agent.lis.lab_messages import AccessionUpdate, Document, LabMessage, LabRejection, LabReport
from lab_agent.lis.laboratory_system import ParsedMessage, ParsedPart, RenderedOrder, SubmitResult
from lab_agent.lis.serialization import validate_message
from lab_agent.shared.errors import DataInvalidError, LisOutcomeUnknown, LisRejected, LisUnavailable, Problem
from lab_agent.shared.text import join_limited

MAX_MESSAGE_ID_LENGTH = 1000
_MAX_ACCESSION_LENGTH = 200


def check_submit_result(value: Any, adapter: str) -> SubmitResult:
    """Validate what `submit` returned. Raises `LisOutcomeUnknown`: the order may well be in the LIS."""
    if not isinstance(value, SubmitResult):
        raise LisOutcomeUnknown(f"submit of the adapter {adapter} returned {type(value).__name__} instead of a SubmitResult")
    whole = value.accession is None or _is_accession(value.accession)
    if not (whole and _are_accessions(value.line_accessions) and _are_accessions(value.tube_accessions)):
        raise LisOutcomeUnknown(f"submit of the adapter {adapter} returned a SubmitResult with invalid accession numbers")
    if not isinstance(value.unnamed_lines, tuple) or not all(map(_is_accession, value.unnamed_lines)):
        raise LisOutcomeUnknown(f"submit of the adapter {adapter} returned a SubmitResult with invalid unnamed_lines")
    return value


def check_was_received(value: Any, adapter: str) -> bool | None:
    """Validate what `was_received` returned. Raises `LisUnavailable`."""
    if value is None or isinstance(value, bool):
        return value
    raise LisUnavailable(f"was_received of the adapter {adapter} returned {type(value).__name__} instead of True, False or None")


def check_message_count(value: Any, adapter: str) -> int:
    """Validate what `collect` returned. Raises `LisUnavailable`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise LisUnavailable(f"collect of the adapter {adapter} returned {type(value).__name__} instead of a number of messages")


def check_rendered(value: Any, adapter: str) -> tuple[RenderedOrder, ...]:
    """Validate what `render_order` returned. Raises `LisRejected`."""
    if isinstance(value, tuple) and all(isinstance(each, RenderedOrder) and isinstance(each.content, bytes) for each in value):
        return value
    raise LisRejected(f"render_order of the adapter {adapter} returned {type(value).__name__} instead of RenderedOrders")


def check_parsed_message(value: Any, name: str, adapter: str) -> ParsedMessage:
    """Validate what `parse_message` returned; a part whose content the inbox would not take becomes one with a problem."""
    if not isinstance(value, ParsedMessage) or not all(isinstance(part, ParsedPart) for part in value.parts):
        return unparsed_message(
            name, f"parse_message of the adapter {adapter} returned {type(value).__name__} instead of a ParsedMessage"
        )
    return replace(value, parts=tuple(map(_check_part, value.parts)))


def _check_part(part: ParsedPart) -> ParsedPart:
    if part.content is None:
        return part
    try:
        return replace(part, content=validate_delivered(part.message_id, part.content))
    except DataInvalidError as error:
        return replace(part, content=None, problem=join_limited(f"{one.where} {one.what}" for one in error.problems))


def unparsed_message(name: str, problem: str) -> ParsedMessage:
    """A message of which nothing could be read: one part with the problem."""
    return ParsedMessage(parts=(ParsedPart(message_id=name, problem=problem),))


def _are_accessions(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) and _is_accession(value) for key, value in given.items())


def _is_accession(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _MAX_ACCESSION_LENGTH and value.isprintable()


def validate_delivered(message_id: object, message: object) -> LabMessage:
    """Validate a message as an adapter gives it to the inbox. Raises `DataInvalidError`, naming every invalid field."""
    if not isinstance(message, LabReport | LabRejection | AccessionUpdate):
        hint = "pass a LabReport, a LabRejection or an AccessionUpdate"
        raise DataInvalidError((Problem("document", f"is a {type(message).__name__}", hint),))
    problems = [*_message_id_problems(message_id), *_unread_document_problems(message)]
    if problems:
        raise DataInvalidError(tuple(problems))
    return validate_message(message)


def _message_id_problems(message_id: object) -> Iterator[Problem]:
    valid = isinstance(message_id, str) and message_id.strip() and len(message_id) <= MAX_MESSAGE_ID_LENGTH
    if not valid or "\0" in str(message_id):
        hint = f"pass a stable id of the message, up to {MAX_MESSAGE_ID_LENGTH} characters"
        yield Problem("message_id", "is not a valid message id", hint)


def _unread_document_problems(message: LabMessage) -> Iterator[Problem]:
    """Documents must be complete: from here on, a file name means a place in our own store and nothing else."""
    for where, document in _documents(message):
        if document.file is not None:
            yield Problem(f"{where}.file", "was not read", "read the file and pass its bytes as content")


def _documents(message: LabMessage) -> Iterator[tuple[str, Document]]:
    if isinstance(message, LabReport):
        yield from ((f"documents[{index}]", document) for index, document in enumerate(message.documents))
        for index, observation in enumerate(message.observations):
            if observation.value_attachment is not None:
                yield f"observations[{index}].value_attachment", observation.value_attachment
