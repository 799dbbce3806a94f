"""Every kind of fault that the sandbox has, each as bad as a real service may be without ever being right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from lab_sandbox.faults.plan import FaultKind, FaultPlan, FaultRule

_FHIR = "/fhir/*"
_READS = "GET /fhir/*/*"
_SEARCHES = "GET /fhir/*[?]*"
_POLL = "GET /fhir/Task?*status=requested*"

FAULTS: dict[str, tuple[dict[str, Any], ...]] = {
    "latency": ({"seconds": 0.001, "probability": 0.3},),
    "hang": ({"seconds": 0.001, "probability": 0.1},),
    "reset": ({"probability": 0.1},),
    "truncate": ({"probability": 0.1},),
    "lost_reply": (
        {"route": "POST /fhir/*", "probability": 0.3},
        {"route": "PUT /fhir/*", "probability": 0.3},
        {"route": "POST /connect/token", "probability": 0.3},
    ),
    "status": (
        {"status": 503, "retry_after": 30, "probability": 0.01},
        {"status": 429, "retry_after": 30, "retry_after_form": "date", "probability": 0.01},
        {"status": 500, "probability": 0.03},
        {"status": 500, "after_work": True, "route": "POST /fhir/*", "probability": 0.2},
        {"status": 502, "after_work": True, "route": "PUT /fhir/*", "probability": 0.2},
        {"status": 500, "route": "PUT /fhir/*", "probability": 0.2},
        {"status": 404, "route": "GET /fhir/Specimen/*", "probability": 0.1},
        {"status": 410, "route": "GET /fhir/Patient/*", "probability": 0.1},
        {"status": 403, "route": "GET /fhir/ProcedureRequest/*", "probability": 0.1},
    ),
    "unauthorized": ({"route": _FHIR, "probability": 0.04},),
    "html": (
        {"probability": 0.05},
        {"route": "POST /fhir/*", "after_work": True, "probability": 0.2},
        {"route": "PUT /fhir/*", "after_work": True, "probability": 0.2},
    ),
    "maintenance_page": (
        {"probability": 0.05},
        {"route": "POST /fhir/*", "after_work": True, "probability": 0.2},
        {"route": "PUT /fhir/*", "after_work": True, "probability": 0.2},
    ),
    "expire_token": ({"route": _FHIR, "probability": 0.04},),
    "revoke_token": ({"route": _FHIR, "probability": 0.04},),
    "bad_token": ({"route": "POST /connect/token", "probability": 0.3},),
    "stale_read": ({"route": _READS, "probability": 0.3},),
    "partner_edit": ({"route": "PUT /fhir/Task/*", "probability": 0.3},),
    "small_pages": ({"route": _SEARCHES, "size": 1, "probability": 0.7},),
    "repeated_rows": ({"route": _SEARCHES, "probability": 0.7},),
    "incomplete_search": ({"route": _POLL, "script": "x.x.x"}, {"route": "GET /fhir/*?*identifier=*", "probability": 0.5}),
    "missing_entry": ({},),
    "foreign_next": ({"route": _SEARCHES, "probability": 0.1},),
    "own_next_links": ({"route": _SEARCHES, "probability": 0.3},),
    "ignore_search_parameters": ({"route": _SEARCHES, "probability": 0.2},),
    "poison_task": ({"route": "GET /fhir/*", "probability": 0.1},),
    "lower_case_references": ({"route": "GET /fhir/*", "probability": 0.5},),
    "canonical_references": ({"route": "GET /fhir/*", "probability": 0.5},),
    "absolute_references": ({"route": "GET /fhir/*", "probability": 0.1},),
    # But for what is read to be written back: it goes back as it came (law 4), the service refuses it, and a person repeats it.
    "foreign_references": (
        {"route": "GET /fhir/[!t]*", "probability": 0.1},
        {"route": "GET /fhir/Task[?]*", "probability": 0.1},
    ),
    "unknown_fields": ({"route": "GET /fhir/*", "probability": 0.5},),
    "trailing_zeros": ({"route": "GET /fhir/*", "probability": 0.5},),
}
assert set(FAULTS) == set(get_args(FaultKind))


def plan_of(*kinds: str, seed: int) -> FaultPlan:
    """A plan with these kinds of faults at once, all against the laboratory alone."""
    rules = [FaultRule(kind=kind, **each) for kind in kinds for each in FAULTS[kind]]
    return FaultPlan(seed=seed, faults=tuple(rules))


def singles_and_pairs() -> Iterator[tuple[str, ...]]:
    """Each pair of kinds, and each kind alone; whoever takes only the first of them soon has every kind (a round robin)."""
    ring: list[str | None] = [*FAULTS, *([None] if len(FAULTS) % 2 else [])]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        for pair in zip(ring[:half], reversed(ring[half:]), strict=True):
            yield tuple(kind for kind in pair if kind is not None)
        ring = [ring[0], ring[-1], *ring[1:-1]]
