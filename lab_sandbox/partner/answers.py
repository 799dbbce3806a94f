"""Answers to a questionnaire as an operator would give them: every required question, and most of the recommended ones.

The interface shows valueCoding and valueInteger; a `string` question takes any scalar, and `0` and `false` are answers.
"""

from __future__ import annotations

from random import Random
from typing import Any

from lab_sandbox.partner.plain_json import Json

_TEXT_ANSWERS = ("none", "as prescribed", "since last week", "not known", "aspirin 100 mg, evenings", "«Ω-3», 2 × day")


def answer_questionnaire(questionnaire: Json, rng: Random) -> list[Json]:
    """`QuestionnaireResponse.item` for this questionnaire; empty when nothing is asked."""
    top = questionnaire.get("item")
    questions = [] if top is None else top if isinstance(top, list) else [top]
    return _answer_items(questions, rng)


def _answer_items(questions: list[Json], rng: Random) -> list[Json]:
    items = (_answer_item(question, rng) for question in questions)
    return [item for item in items if item is not None]


def _answer_item(question: Json, rng: Random) -> Json | None:
    named = {"linkId": question["linkId"], "text": question.get("text", "")}
    if question.get("type") == "group":
        nested = _answer_items(question.get("item", []), rng)
        return {**named, "item": nested} if nested else None
    if not question.get("required") and rng.random() < 0.3:
        return None
    return {**named, "answer": _answer_values(question, rng)}


def _answer_values(question: Json, rng: Random) -> list[dict[str, Any]]:
    if question.get("type") != "choice":
        return [_random_scalar(rng)]
    options = question.get("option", [])
    count = rng.randint(1, min(2, len(options))) if question.get("repeats") else 1
    return [{"valueCoding": {"code": one["code"], "system": one["system"]}} for one in rng.sample(options, count)]


def _random_scalar(rng: Random) -> dict[str, Any]:
    values: tuple[dict[str, Any], ...] = (
        {"valueString": rng.choice(_TEXT_ANSWERS)},
        {"valueInteger": rng.choice((0, 1, 12, 38))},
        {"valueBoolean": rng.choice((False, True))},
    )
    return rng.choices(values, weights=(6, 3, 1))[0]
