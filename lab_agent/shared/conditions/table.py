"""The table: every condition by its id.

Its parts are in the modules beside this one. An entry is one `Condition(...)` with all of its fields; a sentence that several
entries share is a constant above them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType

from lab_agent.shared.conditions.api import API_CONDITIONS
from lab_agent.shared.conditions.exchange import EXCHANGE_CONDITIONS
from lab_agent.shared.conditions.jobs import JOB_CONDITIONS
from lab_agent.shared.conditions.laboratory_systems import LIS_CONDITIONS
from lab_agent.shared.conditions.machine import MACHINE_CONDITIONS
from lab_agent.shared.conditions.model import Condition, ConditionId
from lab_agent.shared.conditions.orders_and_results import ORDER_AND_RESULT_CONDITIONS
from lab_agent.shared.conditions.store import STORE_CONDITIONS

CONDITIONS: Mapping[ConditionId, Condition] = MappingProxyType(
    {
        each.id: each
        for each in chain(
            EXCHANGE_CONDITIONS,
            LIS_CONDITIONS,
            ORDER_AND_RESULT_CONDITIONS,
            JOB_CONDITIONS,
            STORE_CONDITIONS,
            MACHINE_CONDITIONS,
            API_CONDITIONS,
        )
    }
)


def explain(condition: ConditionId, subject: str = "") -> str:
    """What is wrong, and what to do about it, in two sentences."""
    entry = CONDITIONS[condition]
    return entry.fill(f"{entry.title}. {entry.mend}", subject)
