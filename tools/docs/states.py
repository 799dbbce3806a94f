"""The page of states, drawn from the tables that the code runs on: `python -m tools.docs.states > docs/states.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum

from lab_agent.shared.state_machines import (
    ENDED_LINES,
    JOB_TRANSITIONS,
    LINE_TRANSITIONS,
    ORDER_TRANSITIONS,
    REPORT_TRANSITIONS,
    WORK_ORDER_TRANSITIONS,
    OrderState,
    StateT,
)
from lab_agent.status.formatting import state_meaning

_ENDS = frozenset({OrderState.CLOSED, *ENDED_LINES})
"""States in which nothing is left to do, although something may come back to life."""
_STATES_HEAD = """# The states

Generated from the tables in `lab_agent/shared/state_machines.py`, which alone decide which transitions are legal; any other
raises an error and changes nothing. The meanings are those that the status page shows.
"""

_COMES_BACK = """
## What comes back to life

Only requested Tasks are ours. An order that is on hold, a draft, or taken on by somebody else waits here as held, before its
assessment and right before its handover, and is assessed again when it is requested again. A line of that kind is left out, which
the order's timeline tells, and the others go on; only where no line is requested does the order wait. Of what had ended, or was
left out:

| What is seen | What follows |
|---|---|
| an order that the laboratory never had is requested again, changed or not | it is assessed like a new order: `closed` → `seen` |
| the same, but none of its lines is requested yet | held; it goes on when lines are requested |
| lines of an order that was rejected as a whole come before its Task is ended | all is assessed again: `rejected` → `seen` |
| such lines come after we ended its Task (a look five minutes after the end finds them) | the order is held; it goes on when \
its Task is requested again, and an operator may refuse it |
| a line is requested again, or is new, in an order that the laboratory has or had | the line is held: \
`lab-agent orders accept-line` or `refuse-line` |
| the same, and the reports of a completed line are gone from the service: it was restored from a backup | they are sent again, \
and the line ends with them: `completed` → `resulted`; [`exchange.restored`](conditions.md#exchangerestored) tells |
| only the Task of such an order is requested again, or has a status of ours (`worker.acknowledge_status`) | \
the order is held; it goes on when a line is requested, and ends with its Task |
| a Task of another code, or one that is not requested, is new in an order that the laboratory has | \
told once in the order's timeline, and left alone |
| a Task cannot be read right before the handover | the handover is tried again; after `worker.unreadable_after` the order is \
held |
| lines that are open in an order that the partner ended | nothing: they are the partner's |
| a second order about ProcedureRequests that are done, or being done, in another | held, until that line is withdrawn |
| an order from before `worker.ignore_before` | nothing |

A closed order is checked once more five minutes after its end, and whenever the poll finds its Task requested two minutes or
more after its end: a search index may be that slow. While it has a line that somebody has set aside (on hold, a draft), it is
checked again after as long again as it has been closed, and at least once a day: that line may be requested yet. Any other line
that is put back or added later, in an order whose own Task stays ended, is not seen: the laboratory picks up orders by their
order-level Task alone (interface: States).
"""


def states_page() -> str:
    """Give the page as Markdown with Mermaid diagrams."""
    parts = (
        _state_machine_section("An order", ORDER_TRANSITIONS),
        _state_machine_section("A work order", WORK_ORDER_TRANSITIONS),
        _state_machine_section("An order line", LINE_TRANSITIONS),
        _state_machine_section("A version of a report", REPORT_TRANSITIONS),
        _state_machine_section("A job (a row of the outbox)", JOB_TRANSITIONS),
    )
    return _STATES_HEAD + "".join(parts) + _COMES_BACK


def _state_machine_section(title: str, transitions: Mapping[StateT, frozenset[StateT]]) -> str:
    rows = "".join(f"| `{state.value}` | {state_meaning(state)} |\n" for state in transitions)
    return f"\n## {title}\n\n```mermaid\n{state_diagram(transitions)}```\n\n| State | Meaning |\n|---|---|\n{rows}"


def state_diagram(transitions: Mapping[StateT, frozenset[StateT]]) -> str:
    """Draw a table of moves (Mermaid, `stateDiagram-v2`); what comes first in the table is where it starts."""
    return "stateDiagram-v2\n" + "".join(f"    {arrow}\n" for arrow in _diagram_transitions(transitions))


def _diagram_transitions(transitions: Mapping[StateT, frozenset[StateT]]) -> Iterator[str]:
    order: list[StrEnum] = list(transitions)
    yield f"[*] --> {order[0].value}"
    for state, targets in transitions.items():
        yield from (f"{state.value} --> {target.value}" for target in sorted(targets, key=order.index))
        if not targets or state in _ENDS:
            yield f"{state.value} --> [*]"


if __name__ == "__main__":
    sys.stdout.write(states_page())
