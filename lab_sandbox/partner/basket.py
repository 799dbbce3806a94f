"""The basket of chosen tests, and answers to its questionnaire.

Questionnaire and pre-analytics get the whole basket at once, since tests may share a tube (interface: What the service does,
rule 5). Answers are as an operator would give them: to every required question, and to most of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.random_source import random_guid

_TEXT_ANSWERS = ("none", "as prescribed", "since last week", "not known", "aspirin 100 mg, evenings", "«Ω-3», 2 × day")


def answer_questionnaire(questionnaire: Json, rng: Random) -> list[Json]:
    """`QuestionnaireResponse.item` for this questionnaire; empty if it has no questions."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BasketItem:
    """One chosen test with at most one specimen type. `multiple_specimen`: several types belong to one test."""

    id: str
    caption: str
    guid: str
    specimen_code: str | None = None
    bodysite_code: str | None = None
    container_type: str | None = None
    multiple_specimen: bool = False

    def as_json(self) -> Json:
        """The item of `analyticsrequests`, without empty fields."""
        optional = {
            "specimen_code": self.specimen_code,
            "bodysite_code": self.bodysite_code,
            "container_type": self.container_type,
        }
        return {"id": self.id, "guid": self.guid, **{name: value for name, value in optional.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Basket:
    """All tests that are ordered together under one contract."""

    contract: str
    items: tuple[BasketItem, ...]

    def as_json(self, *, transport: bool | None = None) -> Json:
        """The request body; `transport` asks for transport containers (pre-analytics only)."""
        body: Json = {"contract": self.contract, "analyticsrequests": [item.as_json() for item in self.items]}
        return body if transport is None else {**body, "includetransportcontainer": transport}


def choose_item(item: Json, rng: Random, *, option: Json | None = None) -> BasketItem:
    """A nomenclature item with one of its specimen options: `option`, or a random one."""
    options = item.get("specimen") or []
    chosen = option or (rng.choice(options) if options else {})
    return BasketItem(
        id=item["id"],
        caption=item["caption"],
        guid=random_guid(rng),
        specimen_code=_optional_text(chosen.get("specimen_code")),
        bodysite_code=_optional_text(chosen.get("bodysite_code")),
        container_type=_optional_text(chosen.get("container_type")),
        multiple_specimen=bool(item.get("multiple_specimen")),
    )


def orderable_items(nomenclature: Iterable[Json], eta: Iterable[Json], *, include_delayed: bool = False) -> list[Json]:
    """The items that can be ordered now: not stopped, and not delayed unless `include_delayed` is set."""
    allowed = {"available", "delayed"} if include_delayed else {"available"}
    statuses = {one["id"]: one["status"] for one in eta}
    return [item for item in nomenclature if statuses.get(item["id"], "available") in allowed]


def _optional_text(code: object) -> str | None:
    return None if code is None else str(code)
