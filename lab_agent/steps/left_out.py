"""What a new version of a report leaves out of the one before it.

The interface knows no Observation status that would take a value back (registered, preliminary, final, amended), and nothing in a
message tells a value that was withdrawn from one that was sent before and not repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lab_agent.codec import load_kept
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.quoting import quoted, several
from lab_agent.domain.results import LabReport, ObservationStatus, ReportedObservation
from lab_agent.errors import Problem
from lab_agent.fhir.uploads import observation_ids

_SETTLED = frozenset({ObservationStatus.FINAL, ObservationStatus.AMENDED})


def left_out(before: Iterable[ReportRecord], message: LabReport) -> Mapping[str, ReportedObservation]:
    """Give the observations of earlier versions that this one has not, by their names for people."""
    earlier = [report for each in before if isinstance(report := load_kept(each.body), LabReport)]
    named = {name: one for each in earlier for name, one in zip(observation_ids(each), each.observations, strict=True)}
    return {name: one for name, one in named.items() if name not in observation_ids(message)}


def final_left_out(before: Iterable[ReportRecord], message: LabReport) -> Problem | None:
    """Ask about values that were final and are not there any more; what was preliminary may go without a question."""
    gone = [name for name, one in left_out(before, message).items() if one.status in _SETTLED]
    if not gone:
        return None
    what = f"leave out {names(gone)}, final in the version before; withdrawn, or only not repeated?"
    return Problem("observations", what, "send the whole report; released, it names them no more, and they stay on the service")


def completed(before: Iterable[ReportRecord], message: LabReport) -> LabReport:
    """Give the report with what it leaves out behind its own observations, where each keeps its name."""
    return replace(message, observations=(*message.observations, *left_out(before, message).values()))


def names(given: Iterable[str]) -> str:
    """Names of observations in a sentence."""
    return several(map(quoted, given))
