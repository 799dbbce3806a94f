"""The sheets about questions: the questions and their groups, the options of choices, and which item asks what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from lab_agent.catalogue.model import AnswerOption, Question, QuestionRef, QuestionType
from lab_agent.catalogue.spreadsheet.cells import RowReader, SpreadsheetProblems, rows_by_key
from lab_agent.catalogue.spreadsheet.schema import SheetTable


def read_questions(table: SheetTable, options: SheetTable, problems: SpreadsheetProblems) -> dict[str, Question]:
    """The questions by linkId, in the order of the sheet."""
    read = list(rows_by_key(table, "link_id", problems))
    rows = {key: cells for key, cells in read if key}
    groups = {key for key, cells in rows.items() if cells.text("type").lower() == QuestionType.GROUP}
    choices = _read_answer_options(options, rows, problems)
    made = [(key, _read_question(key, cells, groups, choices.get(key or "", ()))) for key, cells in read]
    questions = {key: question for key, question in made if key}
    _check_one_top_group(questions, rows)
    _check_parents(questions, rows)
    return questions


def _read_answer_options(
    table: SheetTable, rows: Mapping[str, RowReader], problems: SpreadsheetProblems
) -> dict[str, tuple[AnswerOption, ...]]:
    options: dict[str, tuple[AnswerOption, ...]] = defaultdict(tuple)
    for row in table.rows:
        cells = RowReader(row, problems)
        key = cells.reference("link_id", rows.keys(), "questions")
        option = AnswerOption(cells.text("system"), cells.text("code"))
        if key and rows[key].text("type").lower() != QuestionType.CHOICE and not rows[key].has_unreadable("type"):
            problems.add(row, "link_id", f"question {key!r} is not of type choice", "make it a choice, or remove the option")
        elif key and option in options[key] and not cells.has_unreadable("system", "code"):
            problems.add(row, "code", f"{option.code!r} is already an option of {key!r}", "keep one of the two")
        elif key:
            options[key] += (option,)
    return options


def _read_question(key: str | None, cells: RowReader, groups: set[str], options: tuple[AnswerOption, ...]) -> Question:
    kind = QuestionType(cells.one_of("type", (each.value for each in QuestionType)))
    if key and kind is QuestionType.CHOICE and not options and "options" not in cells.problems.partial_sheets:
        cells.add_problem("type", "is choice, but the sheet options has none for it", "add its options")
    parent = cells.reference("parent", groups, "questions as a group")
    return Question(key or "", cells.text("text"), kind, cells.boolean("repeats"), parent, options)


def _check_one_top_group(questions: Mapping[str, Question], rows: Mapping[str, RowReader]) -> None:
    without_parent = (key for key, each in questions.items() if each.parent is None and not rows[key].has_unreadable("parent"))
    tops = [key for key in without_parent if not rows[key].text("parent")]
    for key in tops[1:]:
        what = f"is empty, and so is that of {tops[0]!r}: only one group is at the top"
        rows[key].add_problem("parent", what, "put the question into a group")
    if tops and questions[tops[0]].type is not QuestionType.GROUP:
        rows[tops[0]].add_problem("type", "is not group, but the question has no parent", "put the questions into one group")


def _check_parents(questions: Mapping[str, Question], rows: Mapping[str, RowReader]) -> None:
    """Check that every chain of parents ends."""
    for key in questions:
        seen, parent = {key}, questions[key].parent
        while parent is not None and parent not in seen:
            seen.add(parent)
            parent = questions[parent].parent
        if parent is not None:
            rows[key].add_problem("parent", "leads back to itself", "leave the parent of one group empty")


def read_question_refs(
    table: SheetTable, items: set[str], questions: Mapping[str, Question], problems: SpreadsheetProblems
) -> dict[str, tuple[QuestionRef, ...]]:
    """Which questions each item asks."""
    asked: dict[str, dict[str, QuestionRef]] = defaultdict(dict)
    for row in table.rows:
        cells = RowReader(row, problems)
        item, link_id = cells.reference("item", items, "items"), cells.reference("link_id", questions.keys(), "questions")
        required = cells.boolean("required")
        if not item or not link_id:
            continue
        if questions[link_id].type is QuestionType.GROUP and "questions" not in problems.partial_sheets:
            problems.add(row, "link_id", f"{link_id!r} is a group", "name the questions of the group")
        elif link_id in asked[item]:
            problems.add(row, "link_id", f"{link_id!r} is already asked by {item!r}", "keep one of the two")
        else:
            asked[item][link_id] = QuestionRef(link_id, required)
    return {item: tuple(each.values()) for item, each in asked.items()}
