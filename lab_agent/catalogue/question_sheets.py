"""Questions, their answers, and which item asks them, out of their sheets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from lab_agent.catalogue.cells import Cells, Problems
from lab_agent.catalogue.items import Answer, Asked, Question, QuestionType
from lab_agent.catalogue.parts import by_key
from lab_agent.catalogue.sheets import Table


def questions(table: Table, options: Table, problems: Problems) -> dict[str, Question]:
    """Questions by linkId, in the order of the sheet."""
    read = list(by_key(table, "link_id", problems))
    rows = {key: cells for key, cells in read if key}
    groups = {key for key, cells in rows.items() if cells.text("type").lower() == QuestionType.GROUP}
    answers = _answers(options, rows, problems)
    made = [(key, _question(key, cells, groups, answers.get(key or "", ()))) for key, cells in read]
    found = {key: question for key, question in made if key}
    _check_tree(found, rows, problems)
    return found


def _answers(table: Table, rows: Mapping[str, Cells], problems: Problems) -> dict[str, tuple[Answer, ...]]:
    held: dict[str, tuple[Answer, ...]] = defaultdict(tuple)
    for row in table.rows:
        cells = Cells(row, problems)
        key = cells.known("link_id", rows.keys(), "questions")
        answer = Answer(cells.text("system"), cells.text("code"))
        if key and rows[key].text("type").lower() != QuestionType.CHOICE and not rows[key].unread("type"):
            problems.add(row, "link_id", f"question {key!r} is not of type choice", "make it a choice, or remove the answer")
        elif key and answer in held[key] and not cells.unread("system", "code"):
            problems.add(row, "code", f"{answer.code!r} is an answer of {key!r} already", "keep one of the two")
        elif key:
            held[key] += (answer,)
    return held


def _question(key: str | None, cells: Cells, groups: set[str], options: tuple[Answer, ...]) -> Question:
    kind = QuestionType(cells.one_of("type", (each.value for each in QuestionType)))
    if key and kind is QuestionType.CHOICE and not options and "options" not in cells.problems.partial:
        cells.problems.add(cells.row, "type", "is choice, and the sheet options has no answer for it", "add its answers")
    parent = cells.known("parent", groups, "questions as a group")
    return Question(key or "", cells.text("text"), kind, cells.yes("repeats"), parent, options)


def _check_tree(found: Mapping[str, Question], rows: Mapping[str, Cells], problems: Problems) -> None:
    """One top group; every chain of parents ends there."""
    ungrouped = (key for key, each in found.items() if each.parent is None and not rows[key].unread("parent"))
    tops = [key for key in ungrouped if not rows[key].text("parent")]
    for key in tops[1:]:
        problems.add(
            rows[key].row, "parent", f"is empty, as for {tops[0]!r}", "put the question into a group: there is one top group"
        )
    if tops and found[tops[0]].type is not QuestionType.GROUP:
        problems.add(rows[tops[0]].row, "type", "of the top question is not group", "put the questions into one group")
    for key in found:
        seen, at = {key}, found[key].parent
        while at is not None and at not in seen:
            seen.add(at)
            at = found[at].parent
        if at is not None:
            problems.add(rows[key].row, "parent", "goes round in a circle", "let one group have no parent")


def asked(table: Table, items: set[str], known: Mapping[str, Question], problems: Problems) -> dict[str, tuple[Asked, ...]]:
    """What each item asks."""
    held: dict[str, dict[str, Asked]] = defaultdict(dict)
    for row in table.rows:
        cells = Cells(row, problems)
        item, link_id = cells.known("item", items, "items"), cells.known("link_id", known.keys(), "questions")
        required = cells.yes("required")
        if not item or not link_id:
            continue
        if known[link_id].type is QuestionType.GROUP and "questions" not in problems.partial:
            problems.add(row, "link_id", f"{link_id!r} is a group", "name the questions of the group")
        elif link_id in held[item]:
            problems.add(row, "link_id", f"{link_id!r} is asked by {item!r} already", "keep one of the two")
        else:
            held[item][link_id] = Asked(link_id, required)
    return {item: tuple(each.values()) for item, each in held.items()}
