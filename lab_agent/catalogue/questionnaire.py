"""The questions of a whole basket, folded into one questionnaire (interface: Questionnaire).

A question that several items ask is asked once, and is required if any of them requires it. The order is the catalogue's,
so the order of the basket changes nothing. A group appears if anything in it does, and is required if anything in it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab_agent.catalogue.model import Catalogue, Item, Question, QuestionType


@dataclass(frozen=True, slots=True)
class QuestionNode:
    """A question in the folded questionnaire."""

    question: Question
    required: bool
    children: tuple[QuestionNode, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Give the item (interface: Questionnaire, item fields)."""
        question = self.question
        wire: dict[str, Any] = {
            "linkId": question.link_id,
            "text": question.text,
            "type": question.type.value,
            "required": self.required,
            "repeats": question.repeats,
        }
        if question.type is QuestionType.GROUP:
            wire["item"] = [child.as_json() for child in self.children]
        if question.type is QuestionType.CHOICE:
            wire["option"] = [{"system": each.system, "code": each.code} for each in question.options]
        return wire


@dataclass(frozen=True, slots=True)
class Questionnaire:
    """What the laboratory asks for one basket. `top` is None when it needs nothing."""

    root: QuestionNode | None

    def as_json(self) -> dict[str, Any]:
        """Give the response: the top-level `item` is one object, and is left out when nothing is needed."""
        wire: dict[str, Any] = {"resourceType": "Questionnaire", "status": "active"}
        return wire if self.root is None else {**wire, "item": self.root.as_json()}

    def questions(self) -> tuple[QuestionNode, ...]:
        """Every question that wants an answer, without the groups, in order."""
        return tuple(_leaves(self.root)) if self.root else ()


def build_questionnaire(catalogue: Catalogue, items: Iterable[Item]) -> Questionnaire:
    """Fold the questions of these items into one questionnaire."""
    wanted: dict[str, bool] = {}
    for item in items:
        for asked in item.question_refs:
            wanted[asked.link_id] = wanted.get(asked.link_id, False) or asked.required
    tops = _build_nodes(_group_by_parent(catalogue.questions), None, wanted)
    return Questionnaire(tops[0] if tops else None)


def _group_by_parent(questions: Mapping[str, Question]) -> dict[str | None, list[Question]]:
    held: dict[str | None, list[Question]] = {}
    for question in questions.values():
        held.setdefault(question.parent, []).append(question)
    return held


def _build_nodes(
    by_parent: Mapping[str | None, list[Question]], parent: str | None, required_by_link_id: Mapping[str, bool]
) -> tuple[QuestionNode, ...]:
    nodes = []
    for question in by_parent.get(parent, ()):
        if question.type is QuestionType.GROUP:
            children = _build_nodes(by_parent, question.link_id, required_by_link_id)
            if children:
                nodes.append(QuestionNode(question, any(child.required for child in children), children))
        elif question.link_id in required_by_link_id:
            nodes.append(QuestionNode(question, required_by_link_id[question.link_id]))
    return tuple(nodes)


def _leaves(node: QuestionNode) -> Iterable[QuestionNode]:
    if node.question.type is not QuestionType.GROUP:
        yield node
    for child in node.children:
        yield from _leaves(child)
