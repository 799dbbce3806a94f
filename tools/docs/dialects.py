"""The page of dialects, made from the messages that the tests connect: `tests/dialects/dialects.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DIALECTS = Path(__file__).parents[2] / "tests" / "dialects" / "dialects.toml"
_INTRODUCTION = """# Dialects of HL7 v2: which systems need which lines

`make docs` writes this page from `tests/dialects`; a test keeps it current. For each system there is a message, written by hand
after those that such a system sends; none was recorded anywhere. A test lets `lab-agent adapter hl7v2 try` propose what is
missing, adds it with what only the laboratory knows, sends the message over MLLP, and compares what the clinic reads. The lines
below are all that it took.

Your own system may be set up differently: every site has its own codes, times and habits. Take this page as a first guess, and
[try your own messages](connect-a-lis.md).

- Lines under `[lis.hl7v2]` belong into the settings ([every key](adapters-hl7v2.md)); all others belong into the map, the file
  that `mapping` names.
- The mapping tables ([mappings](mappings.md)) are the laboratory's own, so that only their rows are counted: `codes.csv` (local
  codes to LOINC), `units.csv` (units to UCUM) and `answers.csv` (coded answers).
- A time zone is the example's: it is needed wherever a system sends times without one.
"""
_ROW_NAMES = {"codes": "code", "units": "unit", "answers": "answer"}
_NOTHING = "nothing"


def render_dialects_page(dialects: Mapping[str, Mapping[str, Any]]) -> str:
    """Give the page as Markdown."""
    table = "".join(f"| [{_title(each)}](#{_anchor(_title(each))}) | {_summary(each)} |\n" for each in dialects.values())
    sections = "".join(_section(each) for each in dialects.values())
    return f"{_INTRODUCTION}\n| System | Needs |\n|---|---|\n{table}{sections}"


def read_dialects() -> dict[str, Any]:
    """The dialects of the tests, by the names of their files."""
    return tomllib.loads(DIALECTS.read_text(encoding="utf-8"))


def _section(dialect: Mapping[str, Any]) -> str:
    about = dialect["system"].partition(": ")[2]
    lines = dialect.get("lines", "")
    shown = [f"{about[0].upper()}{about[1:]}."]
    if lines:
        shown.append(f"```toml\n{lines}```")
    rows = _rows(dialect)
    if rows:
        shown.append(f"In the mapping tables: {rows}.")
    elif not lines:
        shown.append("No line is needed: the default map reads it, and the codes and units are standard ones.")
    return f"\n## {_title(dialect)}\n\n" + "\n\n".join(shown) + "\n"


def _title(dialect: Mapping[str, Any]) -> str:
    return str(dialect["system"].partition(": ")[0])


def _anchor(title: str) -> str:
    """The link to a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _summary(dialect: Mapping[str, Any]) -> str:
    keys = ", ".join(f"`{key}`" for key in _keys(tomllib.loads(dialect.get("lines", ""))))
    return "; ".join(filter(None, (keys, _rows(dialect)))) or _NOTHING


def _keys(tree: Mapping[str, Any]) -> Iterator[str]:
    """What the lines set: keys of the settings and of `[results]`, and the tables."""
    yield from tree.get("lis", {}).get("hl7v2", {})
    yield from tree.get("results", {})
    yield from (f"[tables.{name}]" for name in tree.get("tables", {}))


def _rows(dialect: Mapping[str, Any]) -> str:
    """How many rows the mapping tables need, such as `7 codes, 1 unit`."""
    counts = dialect.get("rows", {})
    return ", ".join(f"{counts[kind]} {name}{'s' * (counts[kind] > 1)}" for kind, name in _ROW_NAMES.items() if kind in counts)
