"""How operation is shown by `check` and `status`: what needs a person, in the words of the table, then the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rich.text import Text

from lab_agent.cli.operation import Operation, StoreState
from lab_agent.operations.cause_groups import CauseGroup
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.conditions.model import OpenCondition, Severity
from lab_agent.shared.state_machines import CLAIMABLE_STATES, JOBS_NEEDING_OPERATOR, REPORTS_NEEDING_OPERATOR, OrderState
from lab_agent.shared.systemd_units import typed, with_typed_commands
from lab_agent.shared.text import escape_unprintable, format_age

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTICE: "cyan"}
_INDENT = " " * 10


def format_verdict(operation: Operation) -> str:
    """The first line: whether anything waits for a person."""
    number = len(operation.needing_person)
    if number:
        return f"{number} {'thing needs' if number == 1 else 'things need'} a person."
    if operation.is_new:
        return f"Nothing waits for a person. The database is still to be made: run `{typed('lab-agent db upgrade')}`."
    return "Works: nothing waits for a person." if operation.living else "Nothing waits for a person. The agent has not run yet."


def condition_lines(operation: Operation) -> Iterator[Text]:
    """Each condition in a few lines: what, since when, what it affects, the cause, and what to do."""
    for each in operation.conditions:
        severity = each.condition.severity
        line = Text(f"{severity.value.upper():<{len(_INDENT)}}", style=_STYLES[severity])
        yield line.append(escape_unprintable(each.title), style="bold")
        for text in _explanations(each, operation.at):
            yield Text(escape_unprintable(_INDENT + with_typed_commands(text)))


def _explanations(each: OpenCondition, now: datetime) -> Iterator[str]:
    yield f"{each.key}, since {_since(each.since, now)}"
    yield f"cause: {each.cause}"
    counted = ", ".join(str(number) for number in each.affected)
    yield f"affected: {each.condition.affects}" + (f" ({counted})" if counted else "")
    yield f"to do: {each.mend}" + (f" — {each.command}" if each.command else "")


def number_lines(operation: Operation) -> Iterator[tuple[str, str]]:
    """What waits and what was done, by name; nothing where the store cannot be read."""
    state = operation.store
    if state is None:
        return
    now = operation.at
    yield "last poll", _since(state.overview.last_poll, now)
    yield from _waiting_lines(state, now)
    recent = state.recent
    yield (
        "last hour",
        (
            f"{recent.orders_seen} orders seen, {recent.orders_handed_over} handed over; "
            f"{recent.results_received} results received, {recent.results_delivered} delivered"
        ),
    )


def _waiting_lines(state: StoreState, now: datetime) -> Iterator[tuple[str, str]]:
    overview = state.overview
    held = overview.orders.get(OrderState.HELD, 0)
    yield "orders held", _number(held, overview.oldest_orders.get(OrderState.HELD), now)
    parked, oldest_parked = _sum_up(overview.jobs, overview.oldest_jobs, JOBS_NEEDING_OPERATOR)
    yield "jobs parked", _number(parked, oldest_parked, now)
    results, oldest_results = _sum_up(overview.reports, overview.oldest_reports, REPORTS_NEEDING_OPERATOR)
    yield "results waiting", _number(results, oldest_results, now)
    waiting, _ = _sum_up(overview.jobs, overview.oldest_jobs, CLAIMABLE_STATES)
    yield "jobs waiting", _number(waiting, overview.due_since, now, what="due for longest since")
    for each in state.causes:
        yield f"cause {each.code}", f"{_number(each.count, each.told.since, now)}: {each.told.title}"


def _sum_up(numbers: Mapping[Any, int], oldest: Mapping[Any, datetime], states: Any) -> tuple[int, datetime | None]:
    since = min((at for state, at in oldest.items() if state in states), default=None)
    return sum(number for state, number in numbers.items() if state in states), since


def _number(number: int, since: datetime | None, now: datetime, *, what: str = "oldest since") -> str:
    return f"{number}, {what} {_since(since, now)}" if number and since is not None else f"{number}"


def _since(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{_local(at)} ({format_age(at, now)})"


def _local(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def format_worker(worker: WorkerRecord, now: datetime) -> str:
    """A worker that lives: where, since when, which version, and how late it was last."""
    return (
        f"{worker.host}, process {worker.pid}, version {worker.version}, {worker.mode}, "
        f"since {_since(worker.started_at, now)}, late by at most {worker.loop_lag_ms} ms"
    )


def condition_to_json(each: OpenCondition) -> dict[str, Any]:
    """A condition for programs. `condition` and `subject` are its key; `since` is in ISO 8601."""
    return {
        "condition": each.condition.id.value,
        "subject": each.subject,
        "severity": each.condition.severity.value,
        "title": each.title,
        "cause": each.cause,
        "since": each.since,
        "affects": each.condition.affects,
        "affected": [{"number": one.number, "text": str(one), "page": one.page} for one in each.affected],
        "mend": each.mend,
        "command": each.command,
        "page": each.page,
    }


def operation_to_json(operation: Operation) -> dict[str, Any]:
    """Everything for programs; without the store, `numbers` is null."""
    return {
        "at": operation.at,
        "needs_person": len(operation.needing_person),
        "conditions": [condition_to_json(each) for each in operation.conditions],
        "workers": operation.living,
        "numbers": None if operation.store is None else _numbers_to_json(operation.store),
    }


def _numbers_to_json(state: StoreState) -> dict[str, Any]:
    overview = state.overview
    parked, oldest_parked = _sum_up(overview.jobs, overview.oldest_jobs, JOBS_NEEDING_OPERATOR)
    return {
        "last_poll": overview.last_poll,
        "orders": overview.orders,
        "lines": overview.lines,
        "jobs": overview.jobs,
        "results": overview.reports,
        "held": overview.orders.get(OrderState.HELD, 0),
        "held_since": overview.oldest_orders.get(OrderState.HELD),
        "parked": parked,
        "parked_since": oldest_parked,
        "waiting": _sum_up(overview.jobs, {}, CLAIMABLE_STATES)[0],
        "due_since": overview.due_since,
        "causes": [_cause_to_json(each) for each in state.causes],
        "last_hour": state.recent,
    }


def _cause_to_json(group: CauseGroup) -> dict[str, Any]:
    """All that fails or waits for one cause; `cause` is what `--cause` takes, and `waiting` of the `number` wait for a person."""
    return {
        "cause": group.code,
        "condition": group.key.condition,
        "lis": group.system or None,
        "number": group.count,
        "waiting": group.waiting,
        "since": group.told.since,
    }
