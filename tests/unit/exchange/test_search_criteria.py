from typing import Any

import pytest

from lab_agent.domain.received_order import ResourceRef
from lab_agent.domain.values import Identifier
from lab_agent.exchange.search_criteria import RowSelection, SearchAnswer, SearchCriteria, found_rows
from lab_agent.ports.exchange import SearchKind

LINES = SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task", part_of=ResourceRef("Task", "7"))
ORDERS = SearchCriteria(kind=SearchKind.ORDER_TASKS, resource_type="Task", status="requested", code="OrderProcessingTask")


def line(*references: Any) -> dict[str, Any]:
    return {"resourceType": "Task", "id": "1", "partOf": [{"reference": each} for each in references]}


def _select(criteria: SearchCriteria, rows: list[dict[str, Any]]) -> SearchAnswer:
    selection = RowSelection(criteria)
    selection.add({"entry": [{"resource": each} for each in rows]})
    return selection.answer()


@pytest.mark.parametrize(
    "reference",
    [
        "task/7",
        "Task/7",
        "fhir/task/7",
        "/fhir/Task/7/_history/3",
        "https://service.example/fhir/Task/7",
        "http://localhost:8080/fhir/Task/7",
    ],
)
def test_reference_in_any_form_fits(reference: str) -> None:
    assert _select(LINES, [line("task/1", reference)]).rows


@pytest.mark.parametrize("reference", ["task/8", "task/77", "procedurerequest/7", "7", "", "/", None, 7, {"x": 1}])
def test_reference_to_something_else_does_not_fit(reference: Any) -> None:
    answer = _select(LINES, [line(reference)])
    assert (answer.rows, answer.foreign) == ((), 1)


@pytest.mark.parametrize(
    "row", [{}, {"partOf": 3}, {"partOf": [None]}, {"partOf": {"reference": "task/7"}, "resourceType": "Patient"}]
)
def test_malformed_row_does_not_fit(row: dict[str, Any]) -> None:
    assert _select(LINES, [row]).foreign == 1


def test_wrong_status_alone_is_out_of_date() -> None:
    code = {"coding": [{"code": "OrderProcessingTask"}]}
    rows = [{"resourceType": "Task", "id": str(number), "status": status, "code": code} for number, status in enumerate("ab")]
    answer = _select(ORDERS, [*rows, {**rows[0], "id": "2", "status": "requested"}])
    assert ([each["id"] for each in answer.rows], answer.outdated, answer.foreign) == (["2"], {"0", "1"}, 0)


@pytest.mark.parametrize(
    ("identifier", "fits"),
    [
        ([{"system": "s", "value": "v"}], True),
        ({"system": "s", "value": "v"}, True),
        ([{"system": "s", "value": "w"}, {"system": "t", "value": "v"}, {"value": "v"}], False),
        ([], False),
    ],
)
def test_identifier_is_compared_with_its_system(identifier: Any, fits: bool) -> None:
    ours = SearchCriteria(
        kind=SearchKind.BY_IDENTIFIER, resource_type="Observation", identifier=Identifier(system="s", value="v")
    )
    assert bool(_select(ours, [{"resourceType": "Observation", "identifier": identifier}]).rows) is fits


def test_sole_contract_without_identifier_fits() -> None:
    """The interface does not show the fields of a Contract; where there are several, nobody knows which was meant."""
    wanted = SearchCriteria(kind=SearchKind.BY_IDENTIFIER, resource_type="Contract", identifier=Identifier(value="C"))
    contracts = [{"resourceType": "Contract", "id": each} for each in "ab"]
    assert len(_select(wanted, contracts[:1]).rows) == 1
    assert _select(wanted, contracts).foreign == 2


def test_included_resources_and_outcomes_are_no_rows() -> None:
    entries: list[Any] = [
        {"resource": {"resourceType": "OperationOutcome"}},
        {"resource": {"resourceType": "Patient"}, "search": {"mode": "include"}},
        {"resource": {"resourceType": "Patient"}, "search": {"mode": "match"}},
        {},
        3,
    ]
    assert found_rows({"entry": entries}) == [{"resourceType": "Patient"}]


@pytest.mark.parametrize(
    ("system", "fits"),
    [
        ("http://codes.lab.example/contract/", True),
        ("https://codes.lab.example/contract", True),
        ("HTTP://Codes.Lab.Example//contract", True),
        ("http://other.example/contract", False),
        ("http://codes.lab.example/labels", False),
        ("", False),
        (None, False),
    ],
)
def test_system_of_identifier_is_compared_with_tolerance(system: Any, fits: bool) -> None:
    asked = Identifier(system="http://codes.lab.example/contract", value="C-100")
    search = SearchCriteria(kind=SearchKind.BY_IDENTIFIER, resource_type="Contract", identifier=asked)
    row = {"resourceType": "Contract", "id": "1", "identifier": [{"system": system, "value": "C-100"}]}
    assert (_select(search, [row]).rows != ()) is fits


FORBIDDEN = {"resourceType": "OperationOutcome", "issue": [{"severity": "warning", "code": "suppressed"}]}
HINT = {"resourceType": "OperationOutcome", "issue": [{"severity": "warning", "code": "not-supported"}]}


@pytest.mark.parametrize(
    ("page", "withholds"),
    [
        ({}, False),
        ({"total": 1}, False),
        ({"total": 2}, True),
        ({"total": "2"}, False),
        ({"entry": [{"fullUrl": "urn:x"}]}, True),
        ({"entry": [{"fullUrl": "urn:x", "search": {"mode": "include"}}]}, False),
        ({"entry": [{"resource": FORBIDDEN, "search": {"mode": "outcome"}}]}, True),
        ({"entry": [{"resource": FORBIDDEN}]}, True),
        ({"entry": [{"resource": HINT, "search": {"mode": "outcome"}}]}, False),
    ],
)
def test_answer_says_that_it_withholds_something(page: dict[str, Any], withholds: bool) -> None:
    selection = RowSelection(SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task"))
    selection.add({**page, "entry": [{"resource": line()}, *page.get("entry", ())]})
    assert selection.answer().withholds is withholds
