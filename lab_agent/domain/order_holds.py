"""Why an order is held, as a code: held orders are grouped, counted and released by it; sentences are for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HoldCause(StrEnum):
    """What holds an order besides a rule. What is the matter in words is in `lab_agent.conditions.orders_and_results`."""

    UNREADABLE = "unreadable"  # its resources, or its Tasks, cannot be read
    MAKES_SERVICE_PAUSE = "makes_service_pause"  # reading it makes the service ask everybody to wait
    LINES_DIFFER = "lines_differ"  # two lists of its line Tasks are never equal
    SEARCH_NOT_FILTERED = "search_not_filtered"  # the answers hold what was not asked for
    NOT_REQUESTED = "not_requested"  # somebody else has put it on hold, or works on it
    OFFERED_AGAIN = "offered_again"  # it came back after its end, and it is not clear what is wanted
    IN_OTHER_ORDER = "in_other_order"  # another order has its line, or its test
    NO_CONTRACT = "no_contract"  # it comes under no contract of the settings
    NO_ROUTE = "no_route"  # no laboratory system can be chosen for an item
    RULE_STOPPED = "rule_stopped"  # the rule that would reject it rejected too many


@dataclass(frozen=True, slots=True)
class OrderHold:
    """That an order is held: the `cause` is the id of a rule or a `HoldCause`, and the `text` its sentence for people."""

    cause: str
    text: str
