"""QuestionnaireResponse into answers: nested items in one row, every scalar kept; `false` and `0` are answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from lab_agent.domain.received import AnswerValue, ReceivedAnswer, ReceivedResponse, ResourceRef
from lab_agent.domain.values import Coding
from lab_agent.fhir.view import JsonReader

_MAX_DEPTH = 20


def parse_questionnaire_response(reader: JsonReader) -> ReceivedResponse:
    """Read one QuestionnaireResponse (interface: QuestionnaireResponse)."""
    response_id = reader.text("id")
    return ReceivedResponse(
        ref=ResourceRef("QuestionnaireResponse", response_id) if response_id else None,
        where=reader.where,
        status=reader.text("status"),
        source=reader.reference("source"),
        subject=reader.reference("subject"),
        answers=tuple(_parse_items(reader, 0)),
        rights=reader.access_rights(),
    )


def _parse_items(reader: JsonReader, depth: int) -> Iterator[ReceivedAnswer]:
    """Items lie in items, and also under the answers of a question (FHIR allows both)."""
    if depth > _MAX_DEPTH:
        return
    for item in reader.children("item"):
        answers = item.children("answer")
        values = (_answer_value(answer) for answer in answers)
        kept = tuple(value for value in values if value is not None)
        yield ReceivedAnswer(where=item.where, link_id=item.code("linkId"), text=item.text("text"), values=kept)
        for nested in (item, *answers):
            yield from _parse_items(nested, depth + 1)


def _answer_value(answer: JsonReader) -> AnswerValue | None:
    for key, value in answer.body.items():
        if key == "valueCoding":
            return answer.child(key).coding()
        if key == "valueQuantity":
            return answer.child(key).decimal("value")
        if key.startswith("value"):
            return _scalar_value(value)
    return None


def _scalar_value(value: object) -> AnswerValue | None:
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, Mapping):
        code = value.get("code")
        return Coding(code=code) if isinstance(code, str) else None
    return value if isinstance(value, bool | int | Decimal) else None
