"""The order bundle, field by field, as in the tables of the interface document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import Basket, BasketItem
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_bundle import (
    LabelSequence,
    OrderContent,
    build_order_bundle,
    collection_times,
)
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def tube(*guids: str, code: int = 10, method: str = "Venepuncture") -> Json:
    return {
        "label": None,
        "code": code,
        "collection": {"quantity": 2, "method": method},
        "processing": [],
        "container": [{"description": "", "type": "SST5"}],
        "guids": list(guids),
        "supportingInfo": f"specimen={code}",
    }


def bundle(account: PartnerAccount, specimens: list[Json], *guids: str, answers: Iterable[Json] = ()) -> Json:
    """An order of one test for each guid."""
    items = tuple(BasketItem(id=guid, caption=f"Test {guid}", guid=guid, multiple_specimen=False) for guid in guids)
    content = OrderContent(
        account=account,
        plan=OrderPlan(seed="s", basket=Basket("C-100", items)),
        requisition="R-1",
        patient="patient/p1",
        contract="c1",
        specimens=specimens,
        answers=list(answers),
        ordered_at=NOW,
    )
    return build_order_bundle(content, LabelSequence(), seeded_random("b"))


def resources_of(created: Json, kind: str) -> list[Json]:
    return [entry["resource"] for entry in created["entry"] if entry["resource"]["resourceType"] == kind]


def grants(resource: Json, guid: str) -> set[str]:
    return {one["system"] for one in resource["meta"]["security"] if one["code"] == guid}


def test_bundle_is_collection_with_local_urls(account: PartnerAccount):
    created = bundle(account, [tube("g1", "g2")], "g1", "g2")
    assert created["type"] == "collection"
    addresses = [entry["fullUrl"] for entry in created["entry"]]
    assert len(set(addresses)) == len(addresses)
    assert all(re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", address) for address in addresses)
    order, *lines = resources_of(created, "Task")
    coding = {"system": "http://service.test:8480/terminology/task_type", "code": "OrderProcessingTask"}
    assert order["code"] == {"coding": [coding]}
    by_resource = {id(entry["resource"]): entry["fullUrl"] for entry in created["entry"]}
    requests = [by_resource[id(one)] for one in resources_of(created, "ProcedureRequest")]
    assert [one["basedOn"] for one in lines] == [[{"reference": request}] for request in requests]
    assert all(one["partOf"] == [{"reference": by_resource[id(order)]}] for one in lines)
    assert {one["status"] for one in resources_of(created, "Task")} == {"requested"}


def test_laboratory_reads_all_updates_tasks_only(account: PartnerAccount):
    created = bundle(account, [tube("g1")], "g1", answers=[{"linkId": "q", "text": "?", "answer": [{"valueInteger": 0}]}])
    for entry in created["entry"]:
        kind = entry["resource"]["resourceType"]
        assert grants(entry["resource"], LABORATORY_GUID) == ({"read", "updatebody"} if kind == "Task" else {"read"})
        assert "read" in grants(entry["resource"], CLINIC_GUID)


def test_tolerance_samples_aligned_last_before_order():
    methods = ["before the load", "60 minutes after the load", "120 minutes after the load"]
    times = collection_times([tube("g", method=method) for method in methods] + [tube("h", code=11)], NOW)
    assert [time - times[0] for time in times] == [timedelta(0), timedelta(hours=1), timedelta(hours=2), timedelta(0)]
    assert times[2] < NOW
    times = collection_times([tube("g", method=method) for method in ("first", "second", "second")], NOW)
    assert times[0] < times[1] == times[2] < NOW, "without minutes, as they come"
