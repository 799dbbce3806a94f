"""Sets of states that several of our modules ask about."""

from __future__ import annotations

from lab_agent.domain.lifecycle import EffectState, LineState, OrderState, ReportState

UNJUDGED = frozenset({OrderState.SEEN, OrderState.FETCHED, OrderState.HELD})
"""States of an order about which nothing is decided yet."""
LETS_GO = frozenset({LineState.REFUSED, LineState.WITHDRAWN})
"""States in which a line does not use its labels any more."""
TAKEN = frozenset({LineState.ACCEPTED, LineState.RESULTED, LineState.COMPLETED, LineState.CANCELLED})
"""States of a line that the laboratory was to perform."""
WITHDRAWN = frozenset({LineState.WITHDRAWN})
"""The state of a line that the partner withdrew; the laboratory may report on it all the same."""
CLAIMABLE = frozenset({EffectState.DUE, EffectState.UNKNOWN})
"""Effects that an owner can be found for."""
IN_FLIGHT = frozenset({EffectState.IN_FLIGHT})
"""Effects that may lapse."""
FINISHED_REPORTS = frozenset({ReportState.DELIVERED, ReportState.SUPERSEDED, ReportState.DISMISSED})
"""States of a report that need nothing more of its documents."""
