"""An order made from our own answers is never refused: baskets go through the catalogue's arithmetic and come back as orders."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab_agent.catalogue.basket import Basket, BasketLine, read_basket
from lab_agent.catalogue.model import Catalogue, Container, Contract, Item, QuestionType, Requirement, SpecimenOption, TimePoint
from lab_agent.catalogue.preanalytics import calculate
from lab_agent.catalogue.questionnaire import build_questionnaire
from lab_agent.catalogue.turnaround import Turnaround
from lab_agent.rules.catalogue_history import CatalogueHistory

SERVICE = "https://exchange.example/api/"
LAB = "https://lab.example/codes"
START = datetime(2026, 3, 2, 8, tzinfo=timezone(timedelta(hours=3)))


@st.composite
def baskets(draw: st.DrawFn, contract: Contract) -> list[dict[str, Any]]:
    """Some tests of a contract, each with a choice of biomaterial where it has one."""
    ids = draw(st.lists(st.sampled_from(sorted(contract.items)), min_size=1, max_size=6, unique=True))
    return [{"id": each, "guid": f"g{n}", **draw(choices(contract.items[each]))} for n, each in enumerate(ids)]


@st.composite
def choices(draw: st.DrawFn, item: Item) -> dict[str, Any]:
    if not item.options:
        return {}
    option = draw(st.sampled_from(item.options)).option
    wish = {"specimen_code": str(option.specimen_code), "bodysite_code": option.bodysite_code}
    return {**wish, "container_type": option.container_type}


VESSELS = {
    "A": Container("A", "A", "a tube", Decimal(3), Decimal("0.5"), "ml"),
    "B": Container("B", "B", "a jar"),
}
POINTS = ((), (), (0, 60, 120), (0, 120), (60,))


@st.composite
def requirements(draw: st.DrawFn, item: str, code: int) -> Requirement:
    """One way to take a type: each type of one test may have time points of its own, or none."""
    vessel = VESSELS[draw(st.sampled_from("AB"))]
    site = draw(st.sampled_from((None, "S")))
    return Requirement(
        item,
        SpecimenOption("", code, "", site, "", vessel.type, vessel.name),
        vessel,
        draw(st.sampled_from((Decimal("0.2"), Decimal("1.3"), Decimal("6.1")))),
        draw(st.sampled_from("mn")),
        own_tube=draw(st.booleans()),
        time_points=tuple(TimePoint(minutes, f"M{minutes}") for minutes in draw(st.sampled_from(POINTS))),
    )


@st.composite
def items(draw: st.DrawFn, item: str) -> Item:
    """A test with types to choose from and required ones; one type may be taken from two body sites."""
    codes = draw(st.lists(st.sampled_from((1, 1, 2)), max_size=3))
    options = [draw(requirements(item, code)) for code in codes]
    required = [draw(requirements(item, code)) for code in draw(st.lists(st.sampled_from((4, 5)), max_size=2, unique=True))]
    return Item(
        item,
        item,
        Decimal(1),
        Turnaround(Decimal(1)),
        multiple_specimen=draw(st.booleans()),
        options=tuple({(each.option.specimen_code, each.option.bodysite_code): each for each in options}.values()),
        required=tuple(required),
    )


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    """A catalogue of a few tests, none of them from the sample."""
    offered = {key: draw(items(key)) for key in ("i0", "i1", "i2")}
    return Catalogue("v", {"C-100": Contract("C-100", "C", offered)}, VESSELS, {})


def _order(catalogue: Catalogue, basket: Basket) -> dict[str, Any]:
    answer = calculate(catalogue, basket.lines)
    body = answer.as_json(
        [f"3000{n:04}" for n in range(len(answer.tubes))], include_transport=basket.include_transport_containers
    )
    specimens = {f"s{n}": _specimen(each, basket) for n, each in enumerate(body["specimens"])}
    alone = all(line.item.old_order_pattern for line in basket.lines)
    lines = {f"pr{n}": _request(line, body["specimens"], with_old_order=alone) for n, line in enumerate(basket.lines)}
    return {
        "base_url": SERVICE,
        "order_task": {
            "id": "t",
            "status": "requested",
            "code": {"coding": [{"system": SERVICE + "terminology/task_type", "code": "OrderProcessingTask"}]},
        },
        "line_tasks": [
            {"id": f"t-{name}", "basedOn": [{"reference": f"procedurerequest/{name}"}], "partOf": [{"reference": "task/t"}]}
            for name in lines
        ],
        "resources": {
            **{f"ProcedureRequest/{name}": request for name, request in lines.items()},
            **{f"Specimen/{name}": specimen for name, specimen in specimens.items()},
            "Patient/p1": {"gender": "female", "birthDate": "1990-12-10"},
        },
        "questionnaire_responses": [_answers(catalogue, basket)],
    }


def _request(line: BasketLine, specimens: list[dict[str, Any]], *, with_old_order: bool) -> dict[str, Any]:
    used = [n for n, each in enumerate(specimens) if set(each["guids"]) & set(line.guids)]
    old = {"identifier": {"system": LAB + "/mis", "value": "12345-AB1CD-12345678"}}
    return {
        "status": "active",
        "requisition": {"system": "urn:clinic", "value": "1"},
        "supportingInfo": [{"identifier": {"system": LAB + "/contract", "value": "C-100"}}],
        "code": {"coding": [{"system": SERVICE + "terminology/nomenclature", "code": line.item.id}]},
        "subject": {"reference": "patient/p1"},
        "occurrenceDateTime": START.isoformat(),
        "specimen": [{"reference": f"specimen/s{n}"} for n in used],
        "basedOn": [old] if with_old_order else [],
    }


def _specimen(tube: dict[str, Any], basket: Basket) -> dict[str, Any]:
    minutes = [int(part[5:]) for part in tube["supportingInfo"].split(",") if part.startswith("time=")]
    return {
        "type": {"coding": [{"system": SERVICE + "terminology/specimen-type", "code": str(tube["code"])}]},
        "subject": {"reference": "patient/p1"},
        "collection": {
            "collectedDateTime": (START + timedelta(minutes=minutes[0] if minutes else 0)).isoformat(),
            "method": {"coding": [{"system": SERVICE + "terminology/treatment_protocol", "code": tube["collection"]["method"]}]},
        },
        "container": [
            {
                "identifier": _identifiers(tube, basket, first=n == 0),
                "type": {"coding": [{"system": SERVICE + "terminology/specimen_type", "code": container["type"]}]},
                "specimenQuantity": {"value": tube["collection"]["quantity"]},
            }
            for n, container in enumerate(tube["container"])
        ],
        "extension": [{"url": SERVICE + "extra/supportingInfo", "valueString": tube["supportingInfo"]}],
    }


def _identifiers(tube: dict[str, Any], basket: Basket, *, first: bool) -> list[dict[str, Any]]:
    shapes = [
        str(line.item.second_label_pattern)
        for line in basket.lines
        if line.item.second_label_pattern and set(line.guids) & set(tube["guids"])
    ]
    second = [{"system": "https://lab.example/second-labels", "value": shape} for shape in shapes]
    return [{"system": LAB + "/labels", "value": tube["label"]}, *second] if first else []


def _answers(catalogue: Catalogue, basket: Basket) -> dict[str, Any]:
    nodes = build_questionnaire(catalogue, [line.item for line in basket.lines]).questions()
    items = [
        {
            "linkId": node.question.link_id,
            "answer": [
                {"valueCoding": {"system": node.question.options[0].system, "code": node.question.options[0].code}}
                if node.question.type is QuestionType.CHOICE
                else {"valueInteger": 0}
            ],
        }
        for node in nodes
        if node.required
    ]
    return {
        "id": "q",
        "status": "completed",
        "source": {"reference": "patient/p1"},
        "subject": {"reference": "procedurerequest/pr0"},
        "item": items,
    }


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), transport=st.booleans())
def test_order_from_our_basket_response_is_accepted(
    data: st.DataObject, transport: bool, catalogue: Catalogue, assess_wire: Any, facts: Any
) -> None:
    """An order made from our own basket responses is accepted without any finding."""
    wanted = data.draw(baskets(catalogue.contract("C-100")))
    body = {"contract": "C-100", "analyticsrequests": wanted, "includetransportcontainer": transport}
    basket = read_basket(body, catalogue.contracts, 50)
    judgement = assess_wire(_order(catalogue, basket), facts=replace(facts, own_guid=None))
    assert [finding.message for finding in judgement.findings()] == []
    assert len(judgement.accepted_lines) == len(basket.lines)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), catalogue=catalogues())
def test_order_from_random_catalogue_response_is_accepted(
    data: st.DataObject, catalogue: Catalogue, assess_wire: Any, facts: Any
) -> None:
    """An order made from the basket responses of any catalogue is accepted, too."""
    wanted = data.draw(baskets(catalogue.contract("C-100")))
    basket = read_basket({"contract": "C-100", "analyticsrequests": wanted}, catalogue.contracts, 50)
    order = _order(catalogue, basket)
    judgement = assess_wire(order, facts=replace(facts, own_guid=None), catalogue=CatalogueHistory.from_catalogue(catalogue))
    assert [finding.message for finding in judgement.findings()] == []
