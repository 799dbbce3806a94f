"""Sets of states that several of our modules ask about."""

from __future__ import annotations

from lab_agent.domain.lifecycle import JobState, LineState, OrderState, ReportState

UNASSESSED_ORDERS = frozenset({OrderState.SEEN, OrderState.FETCHED, OrderState.HELD})
"""States of an order about which nothing is decided yet."""
LABEL_RELEASING = frozenset({LineState.REJECTED, LineState.WITHDRAWN})
"""States in which a line does not use its labels any more."""
AT_LABORATORY = frozenset({LineState.ACCEPTED, LineState.RESULTED, LineState.COMPLETED, LineState.CANCELLED})
"""States of a line that the laboratory was to perform."""
WITHDRAWN_LINES = frozenset({LineState.WITHDRAWN})
"""The state of a line that the partner withdrew; the laboratory may report on it all the same."""
CLAIMABLE_STATES = frozenset({JobState.DUE, JobState.OUTCOME_UNKNOWN})
"""Effects that an owner can be found for."""
IN_FLIGHT_STATES = frozenset({JobState.IN_FLIGHT})
"""Effects that may lapse."""
FINISHED_REPORTS = frozenset({ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED})
"""States of a report that need nothing more of its documents."""
