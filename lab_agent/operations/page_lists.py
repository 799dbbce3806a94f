"""Where the status page lists what waits because of a condition: the addresses that the numbers of conditions lead to."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlencode

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.state_machines import OPEN_ORDERS, UNFINISHED_REPORTS, OrderState, ReportState


def _list_in(path: str, states: Iterable[OrderState | ReportState]) -> str:
    return f"{path}?{urlencode([('state', state.value) for state in states])}"


UNFINISHED_ORDERS = _list_in("/orders", sorted(OPEN_ORDERS))
UNFINISHED_RESULTS = _list_in("/results", sorted(UNFINISHED_REPORTS))
ORDERS_TO_FETCH = _list_in("/orders", (OrderState.SEEN, OrderState.HELD))
ORDERS_TO_HAND_OVER = _list_in("/orders", (OrderState.FETCHED,))
ORDERS_AT_THE_LABORATORY = _list_in("/orders", (OrderState.HANDED_OVER,))
RESULTS_TO_DELIVER = _list_in("/results", (ReportState.MATCHED,))
_BY_SUBJECT = {
    ConditionId.ORDERS_HELD: ("/orders", "cause"),
    ConditionId.RESULTS_HELD: ("/results", "reason"),
    ConditionId.LIS_REFUSED_MESSAGES: ("/refused", "source"),
}
_BY_STATE = {
    ConditionId.RESULTS_UNMATCHED: _list_in("/results", (ReportState.UNMATCHED,)),
    ConditionId.RESULTS_UNMAPPED: _list_in("/results", (ReportState.UNMAPPED,)),
}


def find_list(key: AlertKey) -> str:
    """Where what waits because of this is listed; empty where there is no list of it."""
    if key.condition in _BY_SUBJECT:
        path, name = _BY_SUBJECT[key.condition]
        return f"{path}?{urlencode({name: key.subject})}"
    if key.condition is ConditionId.LINES_HELD or key.condition.value.startswith("jobs."):
        return find_group(key)
    return _BY_STATE.get(key.condition, "")


def find_group(key: AlertKey) -> str:
    """Where all that waits for one cause stands together, with what can be done to all of it."""
    return f"/waiting/members?{urlencode({'cause': str(key)}, safe='/')}"
