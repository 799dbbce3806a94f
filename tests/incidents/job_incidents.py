"""Work that fails again and again, or for good."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.conditions.ids import ConditionId
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory


def deliver_one(lab: Laboratory) -> None:
    """An order is handed over, and its first line gets its result."""
    order = lab.place_and_hand_over()
    lab.write_result(f"r-{order['key']}", order=order["key"], lines=[order["lines"][0]["key"]])


@incident(ConditionId.JOBS_OUTCOME_UNKNOWN, affected=["1 job"])
def uploads_are_answered_with_500(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 500, "route": "POST /fhir/Observation"})
    deliver_one(lab)
    yield
    lab.fault()


@incident(ConditionId.JOBS_OUTCOME_UNKNOWN, affected=["1 job"])
def uploads_are_answered_with_503(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 503, "route": "POST /fhir/Observation"})
    deliver_one(lab)
    yield
    lab.fault()


@incident(ConditionId.JOBS_WRITE_REJECTED, affected=["1 job"], ends=False)
def upload_is_refused_with_422(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 422, "route": "POST /fhir/Observation"})
    deliver_one(lab)
    yield


@incident(ConditionId.JOBS_NO_RIGHT, affected=["1 job"], ends=False)
def upload_is_forbidden(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 403, "route": "POST /fhir/Observation"})
    deliver_one(lab)
    yield


@incident(ConditionId.JOBS_SEVERAL_MATCHES, affected=["1 job"], ends=False)
def service_has_two_of_one_identifier(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 412, "route": "POST /fhir/Observation"})
    deliver_one(lab)
    yield


@incident(ConditionId.JOBS_INVALID_RESPONSE, affected=["1 job"])
def uploads_are_answered_with_a_web_page(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "html", "route": "POST /fhir/Observation"})
    deliver_one(lab)
    yield
    lab.fault()


@incident(ConditionId.JOBS_LIS_DISK_FULL, "folder", affected=["1 job"], alone=True)
def disk_of_the_laboratory_system_is_full(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    with lab.small_disk(lab.orders, kilobytes=64):
        lab.start_agent()  # it finds the disk as it starts: one that replaces its folder later would get no order
        lab.fill_disk(lab.orders)
        lab.place_order()
        yield
        (lab.orders / ".filler").unlink()
        lab.wait_until_logged("order_handed_over")
