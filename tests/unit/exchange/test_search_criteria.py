from typing import Any

import pytest

from lab_agent.exchange.search_criteria import RowSelection, SearchAnswer, SearchCriteria, found_rows
from lab_agent.exchange.service import SearchKind
from lab_agent.fhir.received_order import ResourceRef
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier

LINES = SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task", part_of=ResourceRef("Task", "7"))
ORDERS = SearchCriteria(kind=SearchKind.ORDER_TASKS, resource_type="Task", status="requested", code="OrderProcessingTask")


def line(*references: Any) -> dict[str, Any]:
    return {"resourceType": "Task", "id": "1", "partOf": [{"reference": each} for each in references]}


def _select(criteria: SearchCriteria, rows: list[dict[str, Any]]) -> SearchAnswer:
    selection = RowSelection(criteria)
    selection.add({"entry": [{"resource": each} for each in rows]})
    return selection.answer()


def test_reference_in_any_form_fits() -> None:
    spelled = ("task/7", "Task/7", "fhir/task/7", "/fhir/Task/7/_history/3", "https://service.example/fhir/Task/7")
    encoded = ("task/a b|c", "task/a%20b%7Cc", "https://service.example/fhir/Task/a%20b%7Cc/_history/1")
    other = SearchCriteria(kind=SearchKind.LINE_TASKS, resource_type="Task", part_of=ResourceRef("Task", "a b|c"))
    for asked, references in ((LINES, (*spelled, "http://localhost:8080/fhir/Task/7")), (other, encoded)):
        for reference in references:
            assert _select(asked, [line(reference)]).rows, reference
    in_another_type = (
        *({"reference": each} for each in (" task/7 ", "\ttask/7\n", "Task/7\u00a0", [" task/7"])),
        *("task/7", [" task/7 "]),
    )
    for part_of in in_another_type:
        assert _select(LINES, [{"resourceType": "Task", "id": "1", "partOf": part_of}]).rows, part_of


def test_row_that_does_not_fit_is_counted() -> None:
    """One of another type says nothing about how the search filters."""
    for reference in ("task/8", "task/77", "procedurerequest/7", "7", "", "/", None, 7, {"x": 1}):
        answer = _select(LINES, [line(reference)])
        assert (answer.rows, answer.foreign) == ((), 1), reference
    for row, foreign in (
        ({}, 1),
        ({"partOf": 3}, 1),
        ({"resourceType": "Task", "partOf": [None]}, 1),
        ({"partOf": {"reference": "task/7"}, "resourceType": "Patient"}, 0),
        ({"resourceType": "Taks"}, 0),
    ):
        answer = _select(LINES, [row])
        assert (answer.rows, answer.foreign, answer.other_types) == ((), foreign, 1 - foreign), row
    assert len(_select(LINES, [line("task/7"), {"resourceType": "Patient", "id": "1"}]).rows) == 1, "two types share no id"


def test_status_and_code_fit_in_any_case() -> None:
    statuses = ("REQUESTED", " Requested ", ["requested"])
    named = [(status, "OrderProcessingTask") for status in statuses]
    for status, code in (*named, ("requested", "ORDERPROCESSINGTASK"), ("requested", " orderprocessingtask")):
        for concept in ({"coding": [{"code": code}]}, [{"coding": {"code": code}}]):
            row = {"resourceType": "TASK", "id": "1", "status": status, "code": concept}
            assert _select(ORDERS, [row]).rows, row


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


def test_equal_copies_are_one_row() -> None:
    for one in (copy(), copy("requested", "3")):
        selection = RowSelection(LINES)
        selection.add({"entry": [{"resource": dict(one)}, {"resource": dict(one)}]})
        assert (selection.contested, selection.answer().rows) == ({}, (one,))


def test_wrong_status_alone_is_out_of_date() -> None:
    code = {"coding": [{"code": "OrderProcessingTask"}]}
    rows = [{"resourceType": "Task", "id": str(number), "status": status, "code": code} for number, status in enumerate("ab")]
    answer = _select(ORDERS, [*rows, {**rows[0], "id": "2", "status": "requested"}])
    assert ([each["id"] for each in answer.rows], answer.outdated, answer.foreign) == (["2"], {"0", "1"}, 0)


def test_identifier_is_compared_with_its_system() -> None:
    """With tolerance for how it is written."""
    row = {"resourceType": "Observation", "id": "1"}
    asked = Identifier(system="http://codes.lab.example/contract", value="v")
    criteria = SearchCriteria(kind=SearchKind.BY_IDENTIFIER, resource_type="Observation", identifier=asked)

    def fits(identifier: Any) -> bool:
        return bool(_select(criteria, [{**row, "identifier": identifier}]).rows)

    same = ("http://codes.lab.example/contract/", "https://codes.lab.example/contract", "HTTP://Codes.Lab.Example//contract")
    other = ("http://other.example/contract", "http://codes.lab.example/labels", "", None)
    assert all(fits([{"system": system, "value": "v"}]) for system in same)
    assert fits({"system": asked.system, "value": "v"})
    assert not fits([{"system": asked.system, "value": "w"}, {"value": "v"}, *({"system": each, "value": "v"} for each in other)])
    assert not fits([])


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


FORBIDDEN = {"resourceType": "OperationOutcome", "issue": [{"severity": "warning", "code": "suppressed"}]}
HINT = {"resourceType": "OperationOutcome", "issue": [{"severity": "warning", "code": "not-supported"}]}


def unnamed(**search: Any) -> dict[str, Any]:
    return {"entry": [{"fullUrl": "urn:x", **search}]}


@pytest.mark.parametrize(
    ("page", "withholds"),
    [
        *(({"total": total}, True) for total in (2, "2", [2], True, {}, "many")),
        *((page, False) for page in ({}, {"total": 1}, {"total": "1"}, {"total": None})),
        (unnamed(), True),
        (unnamed(search={"mode": 7}), True),
        *((unnamed(search={"mode": mode}), False) for mode in ("include", "INCLUDE")),
        *((unnamed(search=search), False) for search in ([{"mode": "Outcome"}], "include")),
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
