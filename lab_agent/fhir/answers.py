"""QuestionnaireResponse into answers: nested items in one row, every scalar kept; `false` and `0` are answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from lab_agent.domain.received import AnswerValue, ReceivedAnswer, ReceivedResponse, ResourceRef
from lab_agent.domain.values import Coding
from lab_agent.fhir.view import View

_DEEPEST = 20


def read_response(view: View) -> ReceivedResponse:
    """Read one QuestionnaireResponse (interface: QuestionnaireResponse)."""
    response_id = view.text("id")
    return ReceivedResponse(
        ref=ResourceRef("QuestionnaireResponse", response_id) if response_id else None,
        where=view.where,
        status=view.text("status"),
        source=view.link("source"),
        subject=view.link("subject"),
        answers=tuple(_items(view, 0)),
        rights=view.rights(),
    )


def _items(view: View, depth: int) -> Iterator[ReceivedAnswer]:
    """Items lie in items, and also under the answers of a question (FHIR allows both)."""
    if depth > _DEEPEST:
        return
    for item in view.children("item"):
        answers = item.children("answer")
        values = (_value(answer) for answer in answers)
        kept = tuple(value for value in values if value is not None)
        yield ReceivedAnswer(where=item.where, link_id=item.code("linkId"), text=item.text("text"), values=kept)
        for nested in (item, *answers):
            yield from _items(nested, depth + 1)


def _value(answer: View) -> AnswerValue | None:
    for key, value in answer.body.items():
        if key == "valueCoding":
            return answer.child(key).coding()
        if key == "valueQuantity":
            return answer.child(key).number("value")
        if key.startswith("value"):
            return _scalar(value)
    return None


def _scalar(value: object) -> AnswerValue | None:
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, Mapping):
        code = value.get("code")
        return Coding(code=code) if isinstance(code, str) else None
    return value if isinstance(value, bool | int | Decimal) else None
