"""What goes wrong with orders and with results, so that they wait for a person, and work that fails again and again."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.shared.conditions.model import ConditionId
from tests.harness.small_disk import fill, mounted_disk
from tests.incidents.catalogue_of_incidents import fault_incident, incident
from tests.incidents.laboratory import Laboratory, replace_item

LINE_TASKS = "GET /fhir/Task?*part-of=*"
ONE_ORDER, ONE_JOB, ONE_RESULT = ({"affected": [f"1 {each}"]} for each in ("order", "job", "result"))


@incident(ConditionId.ORDERS_HELD, "order.contract-known", **ONE_ORDER)
def order_of_a_contract_not_in_the_settings(lab: Laboratory) -> Iterator[None]:
    lab.replace_setting("[exchange.contracts.C-100]\n", "")
    lab.restart_agent()
    lab.place_order()
    yield
    lab.replace_setting("[exchange.contracts.C-200]", "[exchange.contracts.C-100]\n[exchange.contracts.C-200]")
    lab.restart_agent()


for name, fault, more in (
    (
        "lines_of_an_order_cannot_be_read",
        {"kind": "status", "status": 404, "route": "GET /fhir/ProcedureRequest/*"},
        {"subject": "order.readable", "sample": True},
    ),
    (
        "right_to_read_a_specimen_is_missing",
        {"kind": "status", "status": 403, "route": "GET /fhir/Specimen/*"},
        {"subject": "order.readable"},
    ),
    (
        "search_for_lines_is_not_filtered",
        {"kind": "ignore_search_parameters", "route": LINE_TASKS, "parameters": ["part-of"]},
        {"subject": "search_not_filtered", "before": Laboratory.place_and_hand_over},
    ),
):
    fault_incident(name, ConditionId.ORDERS_HELD, fault, during=Laboratory.place_order, **ONE_ORDER, **more)


@incident(ConditionId.RULE_STOPPED, "line.item", affected=["2 orders"], settings={"rules": {"refusal_limit": 2}}, ends=False)
def many_orders_name_an_unknown_item(lab: Laboratory) -> Iterator[None]:
    for _ in range(4):
        lab.place_order(replace_item)
    yield


@incident(ConditionId.RESULTS_UNMATCHED, affected=["2 results"], sample=True, ends=False)
def results_arrive_for_nobody(lab: Laboratory) -> Iterator[None]:
    lab.write_result("lost-1", order="R0000000000NONE")
    lab.write_result("lost-2", barcode="4711")
    yield


@incident(ConditionId.RESULTS_UNMAPPED, **ONE_RESULT, ends=False)
def result_has_a_code_without_a_mapping(lab: Laboratory) -> Iterator[None]:
    value = {"id": "x", "code": {"code": "LOCAL-1"}, "value_quantity": {"value": "1.20", "unit": "g/L"}}
    deliver_one(lab, observations=[value])
    yield


@incident(ConditionId.RESULTS_HELD, "document_mismatch", **ONE_RESULT, ends=False)
def document_is_not_of_its_type(lab: Laboratory) -> Iterator[None]:
    deliver_one(lab, documents=[{"content": "aGVsbG8=", "content_type": "application/pdf"}])
    yield


@incident(ConditionId.RESULTS_HELD, "patient_mismatch", **ONE_RESULT, ends=False)
def result_names_another_patient(lab: Laboratory) -> Iterator[None]:
    deliver_one(lab, patient={"birth_date": "1901-01-01"})
    yield


@incident(ConditionId.LIS_REFUSED_MESSAGES, "folder", affected=["1 message"], sample=True, ends=False)
def result_file_is_not_json(lab: Laboratory) -> Iterator[None]:
    lab.write_result_file("broken.json", "{ this is not JSON")
    yield


def hand_over_one(lab: Laboratory) -> None:
    lab.place_and_hand_over()
    lab.wait_until_logged("order_handed_over")


TASKS_FORBIDDEN = {"kind": "status", "status": 403, "route": "GET /fhir/Task/*"}
fault_incident(
    "line_task_cannot_be_read_any_more",
    ConditionId.LINES_TASK_UNREADABLE,
    {"kind": "incomplete_search", "route": LINE_TASKS},
    TASKS_FORBIDDEN,
    before=hand_over_one,
    affected=["{placed} line"],  # of each order that has not ended
)
fault_incident(
    "order_task_cannot_be_read_any_more",
    ConditionId.ORDERS_TASK_UNREADABLE,
    TASKS_FORBIDDEN,
    before=Laboratory.place_and_hand_over,
    affected=["{placed} order"],
)


def deliver_one(lab: Laboratory, **fields: object) -> None:
    """An order is handed over, and its first line gets its result."""
    order = lab.place_and_hand_over()
    lab.write_result(f"r-{order['key']}", order=order["key"], lines=[order["lines"][0]["key"]], **fields)


UPLOAD = {"route": "POST /fhir/Observation"}
for name, condition, failing, ends in (
    ("uploads_are_answered_with_500", ConditionId.JOBS_OUTCOME_UNKNOWN, {"kind": "status", "status": 500}, True),
    ("uploads_are_answered_with_503", ConditionId.JOBS_OUTCOME_UNKNOWN, {"kind": "status", "status": 503}, True),
    ("uploads_are_answered_with_a_web_page", ConditionId.JOBS_INVALID_RESPONSE, {"kind": "html"}, True),
    ("upload_is_refused_with_422", ConditionId.JOBS_WRITE_REJECTED, {"kind": "status", "status": 422}, False),
    ("upload_is_forbidden", ConditionId.JOBS_NO_RIGHT, {"kind": "status", "status": 403}, False),
    ("service_has_two_of_one_identifier", ConditionId.JOBS_SEVERAL_MATCHES, {"kind": "status", "status": 412}, False),
):
    fault_incident(name, condition, {**failing, **UPLOAD}, during=deliver_one, **ONE_JOB, ends=ends)


@incident(ConditionId.JOBS_LIS_DISK_FULL, "folder", **ONE_JOB, alone=True)
def disk_of_the_laboratory_system_is_full(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    with mounted_disk(lab.orders, 64 * 1024):
        lab.start_agent()  # it finds the disk as it starts: one that replaces its folder later would get no order
        filler = fill(lab.orders)
        lab.place_order()
        yield
        filler.unlink()
        lab.wait_until_logged("order_handed_over")
