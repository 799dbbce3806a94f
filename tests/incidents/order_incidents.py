"""What goes wrong with orders and with results, so that they wait for a person."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.conditions.ids import ConditionId
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory, replace_item

LINE_TASKS = "GET /fhir/Task?*part-of=*"


@incident(ConditionId.ORDERS_HELD, "order.contract-known", affected=["1 order"])
def order_of_a_contract_not_in_the_settings(lab: Laboratory) -> Iterator[None]:
    lab.replace_setting("[exchange.contracts.C-100]\n", "")
    lab.restart_agent()
    lab.place_order()
    yield
    lab.replace_setting("[exchange.contracts.C-200]", "[exchange.contracts.C-100]\n[exchange.contracts.C-200]")
    lab.restart_agent()


@incident(ConditionId.ORDERS_HELD, "order.readable", affected=["1 order"], sample=True)
def lines_of_an_order_cannot_be_read(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 404, "route": "GET /fhir/ProcedureRequest/*"})
    lab.place_order()
    yield
    lab.fault()


@incident(ConditionId.ORDERS_HELD, "order.readable", affected=["1 order"])
def right_to_read_a_specimen_is_missing(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 403, "route": "GET /fhir/Specimen/*"})
    lab.place_order()
    yield
    lab.fault()


@incident(ConditionId.ORDERS_HELD, "search_not_filtered", affected=["1 order"])
def search_for_lines_is_not_filtered(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.fault({"kind": "ignore_search_parameters", "route": LINE_TASKS, "parameters": ["part-of"]})
    lab.place_order()
    yield
    lab.fault()


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


@incident(ConditionId.RESULTS_UNMAPPED, affected=["1 result"], ends=False)
def result_has_a_code_without_a_mapping(lab: Laboratory) -> Iterator[None]:
    order = lab.place_and_hand_over()
    value = {"id": "x", "code": {"code": "LOCAL-1"}, "value_quantity": {"value": "1.20", "unit": "g/L"}}
    lab.write_result("local", order=order["key"], lines=[order["lines"][0]["key"]], observations=[value])
    yield


@incident(ConditionId.RESULTS_HELD, "document_mismatch", affected=["1 result"], ends=False)
def document_is_not_of_its_type(lab: Laboratory) -> Iterator[None]:
    order = lab.place_and_hand_over()
    document = {"content": "aGVsbG8=", "content_type": "application/pdf"}
    lab.write_result("fake", order=order["key"], lines=[order["lines"][0]["key"]], documents=[document])
    yield


@incident(ConditionId.RESULTS_HELD, "patient_mismatch", affected=["1 result"], ends=False)
def result_names_another_patient(lab: Laboratory) -> Iterator[None]:
    order = lab.place_and_hand_over()
    patient = {"birth_date": "1901-01-01"}
    lab.write_result("other", order=order["key"], lines=[order["lines"][0]["key"]], patient=patient)
    yield


@incident(ConditionId.LIS_REFUSED_MESSAGES, "folder", affected=["1 message"], sample=True, ends=False)
def result_file_is_not_json(lab: Laboratory) -> Iterator[None]:
    lab.write_result_file("broken.json", "{ this is not JSON")
    yield


@incident(ConditionId.LINES_TASK_UNREADABLE, affected=["{placed} line"])  # of each order that has not ended
def line_task_cannot_be_read_any_more(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.wait_until_logged("order_handed_over")
    lab.fault({"kind": "incomplete_search", "route": LINE_TASKS}, {"kind": "status", "status": 403, "route": "GET /fhir/Task/*"})
    yield
    lab.fault()


@incident(ConditionId.ORDERS_TASK_UNREADABLE, affected=["{placed} order"])
def order_task_cannot_be_read_any_more(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.fault({"kind": "status", "status": 403, "route": "GET /fhir/Task/*"})
    yield
    lab.fault()
