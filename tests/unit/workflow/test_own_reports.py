from __future__ import annotations

from typing import Any

import pytest

from lab_agent.exchange.service import SavedResource
from lab_agent.results.own_reports import OwnReports, find_report
from lab_agent.shared.ids import OrderKey, ResourceId, work_order_key
from lab_agent.shared.values import Identifier
from tests.harness.databases import InlineStore

BASE = "https://exchange.example/api/"


class Service:
    """A service with one report of ours."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    async def find(self, kind: str, identifier: Identifier) -> tuple[SavedResource, ...]:
        return (SavedResource(resource_type=kind, id=ResourceId("1"), version="1", body=self.report),)


@pytest.mark.parametrize(
    ("reference", "request_id", "is_about"),
    [
        ("procedurerequest/1", "1", True),
        (f"{BASE}fhir/ProcedureRequest/1/_history/2", "1", True),
        ("procedurerequest/a b", "a b", True),
        ("procedurerequest/a%20b", "a b", True),
        ("procedurerequest/a b", "a%20b", True),
        ("procedurerequest/a%20b", "a%20b", True),
        ("procedurerequest/2", "1", False),
        ("procedurerequest/a%20b", "ab", False),
        ("https://elsewhere.example/procedurerequest/1", "1", False),
        ("procedurerequest/1", None, False),
    ],
)
async def test_report_is_found_by_its_request(reference: str, request_id: str | None, is_about: bool) -> None:
    """In any spelling of its reference and of its status, if it is a final one."""
    store = InlineStore()
    for status, is_final in (("final", True), ("FINAL", True), ("preliminary", False)):
        report = {"resourceType": "DiagnosticReport", "status": status, "basedOn": {"reference": reference}}
        own = OwnReports(Service(report), store, "urn:orders", BASE)  # type: ignore[arg-type]
        reported = await own.find_reported([work_order_key(OrderKey("R1"), "folder")])
        found = find_report(reported, None if request_id is None else ResourceId(request_id))
        assert found == (report if is_about and is_final else None)
