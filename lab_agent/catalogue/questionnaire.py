"""The questions of a whole basket, merged into one questionnaire (interface: Questionnaire).

A question that several items ask is asked once, and is required if any of them requires it. The order is the catalogue's,
whatever the order of the basket. A group appears if any of its questions does, and is required if any of them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab_agent.catalogue.model import Catalogue, Item, Question, QuestionType


@dataclass(frozen=True, slots=True)
class QuestionNode:
    """A question or group in the questionnaire of a basket."""

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
    """What the laboratory asks for one basket. `root` is None when it asks nothing."""

    root: QuestionNode | None

    def as_json(self) -> dict[str, Any]:
        """Give the response: the top-level `item` is one object, and is left out when nothing is needed."""
        wire: dict[str, Any] = {"resourceType": "Questionnaire", "status": "active"}
        return wire if self.root is None else {**wire, "item": self.root.as_json()}

    def questions(self) -> tuple[QuestionNode, ...]:
        """Every question, without the groups, in order."""
        return tuple(_leaves(self.root)) if self.root else ()


def build_questionnaire(catalogue: Catalogue, items: Iterable[Item]) -> Questionnaire:
    """Merge the questions of these items into one questionnaire."""
    required_by_link_id: dict[str, bool] = {}
    for item in items:
        for asked in item.question_refs:
            required_by_link_id[asked.link_id] = asked.required or required_by_link_id.get(asked.link_id, False)
    roots = _build_nodes(_group_by_parent(catalogue.questions), None, required_by_link_id)
    return Questionnaire(roots[0] if roots else None)


def _group_by_parent(questions: Mapping[str, Question]) -> dict[str | None, list[Question]]:
    by_parent: dict[str | None, list[Question]] = {}
    for question in questions.values():
        by_parent.setdefault(question.parent, []).append(question)
    return by_parent


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
