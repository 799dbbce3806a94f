from typing import Any

import pytest

from lab_agent.domain.ids import ResourceId
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


@pytest.mark.parametrize("reference", ["task/a b|c", "task/a%20b%7Cc", "https://service.example/fhir/Task/a%20b%7Cc/_history/1"])
def test_reference_with_encoded_id_fits(reference: str) -> None:
    asked = SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task", part_of=ResourceRef("Task", "a b|c"))
    assert _select(asked, [line(reference)]).rows


@pytest.mark.parametrize("reference", ["task/8", "task/77", "procedurerequest/7", "7", "", "/", None, 7, {"x": 1}])
def test_reference_to_something_else_does_not_fit(reference: Any) -> None:
    answer = _select(LINES, [line(reference)])
    assert (answer.rows, answer.foreign) == ((), 1)


@pytest.mark.parametrize(
    ("row", "foreign"),
    [
        ({}, 1),
        ({"partOf": 3}, 1),
        ({"resourceType": "Task", "partOf": [None]}, 1),
        ({"partOf": {"reference": "task/7"}, "resourceType": "Patient"}, 0),
        ({"resourceType": "Basic"}, 0),
        ({"resourceType": "Taks"}, 0),
    ],
)
def test_row_that_does_not_fit_is_counted(row: dict[str, Any], foreign: int) -> None:
    """One of another type says nothing about how the search filters."""
    answer = _select(LINES, [row])
    assert (answer.rows, answer.foreign, answer.other_types) == ((), foreign, 1 - foreign)


def test_rows_of_two_types_share_no_id() -> None:
    assert len(_select(LINES, [line("task/7"), {"resourceType": "Patient", "id": "1"}]).rows) == 1


@pytest.mark.parametrize(
    "part_of",
    [
        {"reference": " task/7 "},
        {"reference": "\ttask/7\n"},
        {"reference": "Task/7\u00a0"},
        {"reference": [" task/7"]},
        "task/7",
        [" task/7 "],
    ],
)
def test_reference_in_another_type_or_blanks_fits(part_of: Any) -> None:
    assert _select(LINES, [{"resourceType": "Task", "id": "1", "partOf": part_of}]).rows


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("REQUESTED", "OrderProcessingTask"),
        (" Requested ", "OrderProcessingTask"),
        (["requested"], "OrderProcessingTask"),
        ("requested", "ORDERPROCESSINGTASK"),
        ("requested", " orderprocessingtask"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda code: {"coding": [{"code": code}]}, lambda code: [{"coding": {"code": code}}]])
def test_status_and_code_fit_in_any_case(status: Any, code: str, wrap: Any) -> None:
    assert _select(ORDERS, [{"resourceType": "TASK", "id": "1", "status": status, "code": wrap(code)}]).rows


def copy(status: str = "requested", version: Any = None, updated: Any = None) -> dict[str, Any]:
    meta = {key: value for key, value in (("versionId", version), ("lastUpdated", updated)) if value is not None}
    return {"resourceType": "Task", "id": "1", "status": status, "meta": meta, "partOf": [{"reference": "task/7"}]}


EARLY, LATE = "2026-03-01T12:00:00.1Z", "2026-03-01T14:00:00.2+02:00"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (copy("requested", "1"), copy("cancelled", "2")),
        (copy("requested", "9"), copy("cancelled", "10")),
        (copy("requested", 9), copy("cancelled", [10])),
        (copy("requested", "1", LATE), copy("cancelled", "2", EARLY)),
        (copy("requested", None, EARLY), copy("cancelled", None, LATE)),
        (copy("requested", "x", EARLY), copy("cancelled", "b", LATE)),
        (copy("requested", "3", EARLY), copy("cancelled", "3", LATE)),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_newest_copy_counts_wherever_it_stands(older: dict[str, Any], newer: dict[str, Any], reverse: bool) -> None:
    answer = _select(LINES, [newer, older] if reverse else [older, newer])
    assert answer.rows == (newer,)


@pytest.mark.parametrize(
    "copies",
    [
        (copy("requested"), copy("cancelled")),
        (copy("requested", "a"), copy("cancelled", "b")),
        (copy("requested", "3"), copy("cancelled", "3")),
        (copy("requested", "3", EARLY), copy("cancelled", None, "yesterday")),
        (copy("requested"), {**copy("requested"), "partOf": []}),
    ],
)
def test_copies_that_nobody_can_order_are_contested(copies: tuple[dict[str, Any], ...]) -> None:
    selection = RowSelection(LINES)
    selection.add({"entry": [{"resource": each} for each in copies]})
    assert set(selection.contested) == {"1"}
    selection.settle(ResourceId("1"), copy("failed"))
    assert selection.answer().rows == (copy("failed"),)
    selection.add({"entry": [{"resource": each} for each in copies]})
    selection.settle(ResourceId("1"), None)
    assert selection.answer().rows == ()


@pytest.mark.parametrize("same", [(copy(), copy()), (copy("requested", "3"), copy("requested", "3"))])
def test_equal_copies_are_one_row(same: tuple[dict[str, Any], ...]) -> None:
    selection = RowSelection(LINES)
    selection.add({"entry": [{"resource": each} for each in same]})
    assert (selection.contested, selection.answer().rows) == ({}, same[:1])


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
        ({"total": "2"}, True),
        ({"total": "1"}, False),
        ({"total": [2]}, True),
        ({"total": True}, True),
        ({"total": {}}, True),
        ({"total": "many"}, True),
        ({"total": None}, False),
        ({"entry": [{"fullUrl": "urn:x"}]}, True),
        ({"entry": [{"fullUrl": "urn:x", "search": {"mode": "include"}}]}, False),
        ({"entry": [{"fullUrl": "urn:x", "search": {"mode": "INCLUDE"}}]}, False),
        ({"entry": [{"fullUrl": "urn:x", "search": [{"mode": "Outcome"}]}]}, False),
        ({"entry": [{"fullUrl": "urn:x", "search": "include"}]}, False),
        ({"entry": [{"fullUrl": "urn:x", "search": {"mode": 7}}]}, True),
        ({"entry": [{"resource": FORBIDDEN, "search": {"mode": "outcome"}}]}, True),
        ({"entry": [{"resource": FORBIDDEN}]}, True),
        ({"entry": [{"resource": {**FORBIDDEN, "issue": {"code": "SUPPRESSED"}}}]}, True),
        ({"entry": [{"resource": HINT, "search": {"mode": "outcome"}}]}, False),
    ],
)
def test_answer_says_that_it_withholds_something(page: dict[str, Any], withholds: bool) -> None:
    selection = RowSelection(SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task"))
    selection.add({**page, "entry": [{"resource": line()}, *page.get("entry", ())]})
    assert selection.answer().withholds is withholds
