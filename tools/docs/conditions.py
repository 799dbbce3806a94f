"""The page of all conditions, made from the table, so that it cannot differ from what page, commands and alerts say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping

from lab_agent.shared.conditions.api import API_CONDITIONS
from lab_agent.shared.conditions.exchange import EXCHANGE_CONDITIONS
from lab_agent.shared.conditions.jobs import JOB_CONDITIONS
from lab_agent.shared.conditions.laboratory_systems import LIS_CONDITIONS
from lab_agent.shared.conditions.machine import MACHINE_CONDITIONS
from lab_agent.shared.conditions.model import Affected, Condition, Severity
from lab_agent.shared.conditions.orders_and_results import ORDER_AND_RESULT_CONDITIONS
from lab_agent.shared.conditions.store import STORE_CONDITIONS

GROUPS: Mapping[str, tuple[Condition, ...]] = {
    "The exchange service and the clocks": EXCHANGE_CONDITIONS,
    "Laboratory systems": LIS_CONDITIONS,
    "Orders, lines and results": ORDER_AND_RESULT_CONDITIONS,
    "Jobs, by why they fail": JOB_CONDITIONS,
    "The database": STORE_CONDITIONS,
    "The agent and its machine": MACHINE_CONDITIONS,
    "The laboratory's API, its catalogue and labels": API_CONDITIONS,
}
"""The sections of the page."""
_INTRODUCTION = """# Conditions: what can be wrong, and what to do

`make docs` writes this page from `lab_agent/shared/conditions`, the one table from which the status page, `lab-agent check`,
`lab-agent status`, `/readyz`, notifications and metrics take their words; a test keeps it current.

- The **id** is the name of the condition in the log (`alert=`, `outage=`), in `/readyz`, in `--json`, and in the label
  `condition` of the metrics. Where there may be several at once, a **subject** follows it, as in `lis.unavailable/folder`; in the
  texts below it is written as `…`.
- **Since when** is when it began: where something waits, when that was first due.
- **Severity**: *critical*: work stands still or is in danger, wake somebody; *warning*: a person is needed, in working hours;
  *notice*: worth knowing, nothing waits for a person.
- **Counted** is what the agent counts to say how much waits because of it.
"""
_COUNTED: Mapping[Affected, str] = {
    Affected.NOTHING: "",
    Affected.EVERYTHING: "all unfinished orders and results",
    Affected.EXCHANGE_JOBS: "orders to fetch, results to deliver, Tasks to update",
    Affected.LIS_JOBS: "orders to hand over to this laboratory system",
    Affected.LIS_LINES: "lines that wait for a result of this laboratory system",
    Affected.AS_COUNTED: "whatever was found, when it was found",
}
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


def render_conditions_page(groups: Mapping[str, Iterable[Condition]] = GROUPS) -> str:
    """Give the page as Markdown."""
    every = [each for conditions in groups.values() for each in conditions]
    rows = "".join(_index_row(each) for each in sorted(every, key=lambda each: _RANKS[each.severity]))
    index = f"\n## All of them, worst first\n\n| Condition | Severity | What is wrong |\n|---|---|---|\n{rows}"
    return _INTRODUCTION + index + "".join(_section(title, conditions) for title, conditions in groups.items())


def _index_row(condition: Condition) -> str:
    return f"| [`{condition.id}`](#{_anchor(condition.id)}) | {condition.severity} | {_shown(condition.title)} |\n"


def _section(title: str, conditions: Iterable[Condition]) -> str:
    return f"\n## {title}\n" + "".join(_paragraph(each) for each in conditions)


def _paragraph(condition: Condition) -> str:
    wrong = [
        f"**{_shown(condition.title)}** ({condition.severity}).",
        f"Cause: {_sentence(condition.cause)}",
        f"Affects: {_sentence(condition.affects)}",
        _counted(condition),
        "While it is open, `/readyz` answers 503." if condition.is_unready else "",
    ]
    mend = [f"**What to do:** {_sentence(condition.mend)}", _where(condition)]
    alert = [
        f"Noticed: {_sentence(condition.noticed)}",
        f"Alert opens: {_sentence(condition.opens)}",
        f"Ends: {_sentence(condition.ends)}",
        f"Subject: {_sentence(condition.subject)}" if condition.subject else "",
        _not_told(condition),
        _subjects(condition),
    ]
    return f"\n### `{condition.id}`\n" + "".join(f"\n{' '.join(filter(None, each))}\n" for each in (wrong, mend, alert))


def _counted(condition: Condition) -> str:
    counted = _COUNTED[condition.affected]
    return f"Counted: {counted}." if counted else ""


def _where(condition: Condition) -> str:
    command = f"Command: `{_shown(condition.command)}`." if condition.command else ""
    page = f"On the status page: `{_shown(condition.page)}`." if condition.page else ""
    return f"{command} {page}".strip()


def _subjects(condition: Condition) -> str:
    words = "; ".join(f"`{subject}`: {meaning}" for subject, meaning in condition.subject_words.items())
    return f"The subjects are {words}." if words else ""


def _not_told(condition: Condition) -> str:
    if not condition.covered_by:
        return ""
    return (
        f"Not told while one of these is open, which say more: {', '.join(f'`{each}`' for each in sorted(condition.covered_by))}."
    )


def _sentence(text: str) -> str:
    return _shown(text).rstrip(".") + "."


def _shown(text: str) -> str:
    return text.replace("{subject}", "…").replace("{words}", "…").replace("|", "\\|")


def _anchor(heading: str) -> str:
    """The link to a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(render_conditions_page())
