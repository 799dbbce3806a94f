"""The first row of a sheet: which column is where, and what is wrong with it."""

from __future__ import annotations

from lab_agent.catalogue.cells import did_you_mean
from lab_agent.catalogue.sheets import Column, Sheet
from lab_agent.errors import Problem


def resolve_header(source: str, header: list[str], sheet: Sheet, problems: list[Problem]) -> list[Column] | None:
    """The columns in the order of the header; None, with the problems noted, if it is not right."""
    known = {column.name: column for column in sheet.columns}
    wrong = [
        Problem(
            f"{source} row 1, column {name or '(empty)'}",
            "is not a column of this sheet",
            did_you_mean(name, known) or "remove it",
        )
        for name in header
        if name not in known
    ]
    wrong += [
        Problem(f"{source} row 1", f"the column {column.name} is missing", f"add it: {column.description}")
        for column in sheet.columns
        if column.required and column.name not in header and (header or not sheet.optional)
    ]
    wrong += [
        Problem(f"{source} row 1, column {name}", "is there twice", "remove one") for name in known if header.count(name) > 1
    ]
    problems += wrong
    return None if wrong else [known[name] for name in header]
