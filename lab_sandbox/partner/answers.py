"""Answers to a questionnaire as an operator would give them: every required question, and most of the recommended ones.

The interface shows valueCoding and valueInteger; a `string` question takes any scalar, and `0` and `false` are answers.
"""

from __future__ import annotations

from random import Random
from typing import Any

from lab_sandbox.partner.plain_json import Json

_TEXTS = ("none", "as prescribed", "since last week", "not known", "aspirin 100 mg, evenings", "«Ω-3», 2 × day")


def answered(questionnaire: Json, luck: Random) -> list[Json]:
    """`QuestionnaireResponse.item` for this questionnaire; empty when nothing is asked."""
    top = questionnaire.get("item")
    questions = [] if top is None else top if isinstance(top, list) else [top]
    return _items(questions, luck)


def _items(questions: list[Json], luck: Random) -> list[Json]:
    items = (_item(question, luck) for question in questions)
    return [item for item in items if item is not None]


def _item(question: Json, luck: Random) -> Json | None:
    named = {"linkId": question["linkId"], "text": question.get("text", "")}
    if question.get("type") == "group":
        nested = _items(question.get("item", []), luck)
        return {**named, "item": nested} if nested else None
    if not question.get("required") and luck.random() < 0.3:
        return None
    return {**named, "answer": _answers(question, luck)}


def _answers(question: Json, luck: Random) -> list[dict[str, Any]]:
    if question.get("type") != "choice":
        return [_scalar(luck)]
    options = question.get("option", [])
    count = luck.randint(1, min(2, len(options))) if question.get("repeats") else 1
    return [{"valueCoding": {"code": one["code"], "system": one["system"]}} for one in luck.sample(options, count)]


def _scalar(luck: Random) -> dict[str, Any]:
    values: tuple[dict[str, Any], ...] = (
        {"valueString": luck.choice(_TEXTS)},
        {"valueInteger": luck.choice((0, 1, 12, 38))},
        {"valueBoolean": luck.choice((False, True))},
    )
    return luck.choices(values, weights=(6, 3, 1))[0]
