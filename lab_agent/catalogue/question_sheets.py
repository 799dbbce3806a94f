"""Questions, their answers, and which item asks them, out of their sheets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from lab_agent.catalogue.cells import RowReader, SpreadsheetProblems
from lab_agent.catalogue.items import AnswerOption, Question, QuestionRef, QuestionType
from lab_agent.catalogue.parts import rows_by_key
from lab_agent.catalogue.sheets import SheetTable


def read_questions(table: SheetTable, options: SheetTable, problems: SpreadsheetProblems) -> dict[str, Question]:
    """Questions by linkId, in the order of the sheet."""
    read = list(rows_by_key(table, "link_id", problems))
    rows = {key: cells for key, cells in read if key}
    groups = {key for key, cells in rows.items() if cells.text("type").lower() == QuestionType.GROUP}
    answers = _read_answer_options(options, rows, problems)
    made = [(key, _read_question(key, cells, groups, answers.get(key or "", ()))) for key, cells in read]
    found = {key: question for key, question in made if key}
    _check_question_tree(found, rows, problems)
    return found


def _read_answer_options(
    table: SheetTable, rows: Mapping[str, RowReader], problems: SpreadsheetProblems
) -> dict[str, tuple[AnswerOption, ...]]:
    held: dict[str, tuple[AnswerOption, ...]] = defaultdict(tuple)
    for row in table.rows:
        cells = RowReader(row, problems)
        key = cells.reference("link_id", rows.keys(), "questions")
        answer = AnswerOption(cells.text("system"), cells.text("code"))
        if key and rows[key].text("type").lower() != QuestionType.CHOICE and not rows[key].has_unreadable("type"):
            problems.add(row, "link_id", f"question {key!r} is not of type choice", "make it a choice, or remove the answer")
        elif key and answer in held[key] and not cells.has_unreadable("system", "code"):
            problems.add(row, "code", f"{answer.code!r} is an answer of {key!r} already", "keep one of the two")
        elif key:
            held[key] += (answer,)
    return held


def _read_question(key: str | None, cells: RowReader, groups: set[str], options: tuple[AnswerOption, ...]) -> Question:
    kind = QuestionType(cells.one_of("type", (each.value for each in QuestionType)))
    if key and kind is QuestionType.CHOICE and not options and "options" not in cells.problems.partial_sheets:
        cells.problems.add(cells.row, "type", "is choice, and the sheet options has no answer for it", "add its answers")
    parent = cells.reference("parent", groups, "questions as a group")
    return Question(key or "", cells.text("text"), kind, cells.boolean("repeats"), parent, options)


def _check_question_tree(found: Mapping[str, Question], rows: Mapping[str, RowReader], problems: SpreadsheetProblems) -> None:
    """One top group; every chain of parents ends there."""
    ungrouped = (key for key, each in found.items() if each.parent is None and not rows[key].has_unreadable("parent"))
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


def read_question_refs(
    table: SheetTable, items: set[str], questions: Mapping[str, Question], problems: SpreadsheetProblems
) -> dict[str, tuple[QuestionRef, ...]]:
    """What each item asks."""
    held: dict[str, dict[str, QuestionRef]] = defaultdict(dict)
    for row in table.rows:
        cells = RowReader(row, problems)
        item, link_id = cells.reference("item", items, "items"), cells.reference("link_id", questions.keys(), "questions")
        required = cells.boolean("required")
        if not item or not link_id:
            continue
        if questions[link_id].type is QuestionType.GROUP and "questions" not in problems.partial_sheets:
            problems.add(row, "link_id", f"{link_id!r} is a group", "name the questions of the group")
        elif link_id in held[item]:
            problems.add(row, "link_id", f"{link_id!r} is asked by {item!r} already", "keep one of the two")
        else:
            held[item][link_id] = QuestionRef(link_id, required)
    return {item: tuple(each.values()) for item, each in held.items()}
