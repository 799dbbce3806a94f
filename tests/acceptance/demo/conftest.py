"""The daily flow of the demo in one process, with a minimal laboratory in place of the agent.

A test can corrupt what the laboratory uploads: the checks of the demo must notice.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.settings.root import load_settings
from lab_api.app import create_app as create_api
from lab_api.response_cache import CurrentCatalogue
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, RuleSettings, SandboxConfig
from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.lis.messages import SimulatorBehaviour
from lab_sandbox.demo.lis.simulator import LisSimulator, SimulatorFolders
from lab_sandbox.demo.runner import run_daily_flow
from lab_sandbox.demo.scenarios import HAEMOLYSED_ITEM, STAGED_ITEM
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic, reference_id
from lab_sandbox.partner.errors import Json, decode, encode
from lab_sandbox.partner.order_bundle import LabelSequence
from tests.harness.paths import CATALOGUE, ROOT

BASE = "http://service.test:8480/"
READABLE = {"security": [{"system": "read", "code": CLINIC_GUID}]}
UNDERSCORE_LETTER = re.compile(r"_([a-z])")


def now() -> datetime:
    return datetime.now(UTC)


def account(login: str, guid: str, client: str) -> PartnerAccount:
    return PartnerAccount(
        base_url=BASE,
        auth_url=BASE.rstrip("/"),
        login=login,
        password=f"demo-{login}-password",
        client_id=client,
        client_secret=f"demo-{login}-secret",
        redirect_uri="http://127.0.0.1:8484/callback",
        guid=guid,
        laboratory=LABORATORY_GUID,
        contract="C-100",
        lab_codes_url="http://codes.lab.example",
        second_labels_system="http://codes.lab.example/second-labels",
    )


def to_camel_case(value: Any) -> Any:
    if isinstance(value, dict):
        return {UNDERSCORE_LETTER.sub(lambda found: found[1].upper(), name): to_camel_case(one) for name, one in value.items()}
    return [to_camel_case(one) for one in value] if isinstance(value, list) else value


@dataclass
class MinimalLaboratory:
    """Polls, cancels lines with unknown codes, writes order files and uploads result files. Not an example to follow."""

    client: PartnerClient
    folders: SimulatorFolders
    known_items: set[str]
    corrupt: Callable[[Json], Json] = lambda resource: resource
    orders: dict[str, Json] = field(default_factory=dict)
    uploaded: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def run_once(self) -> None:
        for task in await self.client.search("task", {"status": "requested", "code": "OrderProcessingTask"}):
            if task["id"] not in self.orders:
                await self._accept_order(task["id"])
        for file in sorted(self.folders.results.glob("*.json"), key=lambda one: (one.stat().st_mtime_ns, one.name)):
            await self._process_result(decode(file.read_bytes()))
            file.unlink()

    async def _accept_order(self, order: str) -> None:
        tasks = await self.client.search("task", {"part-of": f"task/{order}"})
        requests = {one["id"]: await self.client.read(one["basedOn"][0]["reference"]) for one in tasks}
        lines, specimens = [], {}
        for task, request in requests.items():
            item = request["code"]["coding"][0]["code"]
            if item not in self.known_items:
                await self._end_task(task, "cancelled", f"{item} is not in this contract; refresh the nomenclature")
                continue
            ids = [reference_id(one["reference"]) for one in request["specimen"]]
            specimens.update({one: await self.client.read(f"specimen/{one}") for one in ids})
            named = {"key": task, "item": item, "text": request["code"]["text"], "identifiers": request["identifier"]}
            lines.append({**named, "specimens": ids, "request": request["id"]})
        first = next(iter(requests.values()))
        collected = {one: specimen["collection"]["collectedDateTime"] for one, specimen in specimens.items()}
        self.orders[order] = {
            "key": f"R{len(self.orders)}",
            "task": order,
            "requisition": first["requisition"],
            "subject": first["subject"],
            "ordered_at": first["occurrenceDateTime"],
            "lines": lines,
            "specimens": [{"id": one, "collected_at": time} for one, time in collected.items()],
        }
        (self.folders.orders / f"R{len(self.orders) - 1}.json").write_bytes(encode(self.orders[order]))

    async def _process_result(self, message: Json) -> None:
        order = next(one for one in self.orders.values() if one["key"] == message["order"])
        if message["kind"] == "rejection":
            await self._end_task(
                message["not_performed"][0]["line"], "cancelled", f"{message['not_performed'][0]['reason']}; collect again"
            )
        else:
            await self._upload_report(order, message)
        statuses = {(await self.client.read(f"task/{line['key']}"))["status"] for line in order["lines"]}
        if "requested" not in statuses:
            await self._end_task(order["task"], "completed")

    async def _upload_report(self, order: Json, message: Json) -> None:
        lines = [line for line in order["lines"] if line["key"] in message.get("lines", [one["key"] for one in order["lines"]])]
        if "lines" not in message:
            lines = [line for line in lines if line["item"] != HAEMOLYSED_ITEM]
        results = [await self._upload_observation(order, message, one) for one in message.get("observations", ())]
        report = {
            "resourceType": "DiagnosticReport",
            "status": message["status"],
            "code": {"coding": [{"system": f"{BASE}terminology/nomenclature", "code": lines[0]["item"]}]},
            "subject": order["subject"],
            "effectiveDateTime": message["effective"],
            "issued": message["issued"],
            "basedOn": [{"reference": f"procedurerequest/{line['request']}"} for line in lines],
            "result": [{"reference": f"observation/{one}"} for one in results],
            "presentedForm": [{"url": await self._upload_document(one)} for one in message.get("documents", ())],
        }
        await self._upsert(message["report_id"], report)
        if message["status"] == "final" and message.get("completes") is None:
            for line in lines:
                await self._end_task(line["key"], "completed")

    async def _upload_observation(self, order: Json, message: Json, reported: Json) -> str:
        values = {name: one for name, one in reported.items() if name.startswith("value_")}
        resource = {
            "resourceType": "Observation",
            "status": reported["status"],
            "code": {"coding": [reported["code"]]},
            "subject": order["subject"],
            **to_camel_case(values),
        }
        if "value_attachment" in reported:
            attached = reported["value_attachment"]
            url = await self._upload_document(attached)
            resource["valueAttachment"] = {"contentType": attached["content_type"], "title": attached["title"], "url": url}
        if "reference_ranges" in reported:
            resource["referenceRange"] = to_camel_case(reported["reference_ranges"])
        return await self._upsert(f"{message['report_id']}/{reported['id']}", resource)

    async def _upload_document(self, document: Json) -> str:
        file = self.folders.results / document.get("file", "")
        content = document.get("content") or base64.b64encode(file.read_bytes()).decode()
        binary = self.corrupt({"resourceType": "Binary", "meta": READABLE, "contentType": "application/pdf", "content": content})
        return f"fhir/Binary/{(await self._create('POST', 'Binary', binary))['id']}"

    async def _upsert(self, name: str, resource: Json) -> str:
        resource = self.corrupt({**resource, "meta": READABLE})
        id_, before = self.uploaded.get(name, ("", ""))
        if before == repr(resource):
            return id_
        if id_:
            current = await self.client.read(f"{resource['resourceType']}/{id_}")
            await self.client.update({**resource, "id": id_}, f'W/"{current["meta"]["versionId"]}"')
        else:
            id_ = (await self._create("POST", resource["resourceType"], resource))["id"]
        self.uploaded[name] = (id_, repr(resource))
        return id_

    async def _create(self, method: str, kind: str, resource: Json) -> Json:
        fhir = {"Content-Type": "application/fhir+json"}
        answer = await self.client._send(method, f"fhir/{kind}", content=encode(resource), headers=fhir)
        return dict(decode(answer.content))

    async def _end_task(self, task: str, status: str, reason: str | None = None) -> None:
        current = await self.client.read(f"task/{task}")
        if current["status"] != "requested":
            return
        changed = self.corrupt({**current, "status": status, **({"output": [{"valueString": reason}]} if reason else {})})
        await self.client.update(changed, f'W/"{current["meta"]["versionId"]}"')


@dataclass
class DemoWorld:
    """Runs the daily flow; every upload passes through `corrupt`."""

    transport: httpx.ASGITransport
    folder: Path
    known_items: set[str]

    async def run_flow(
        self, corrupt: Callable[[Json], Json] = lambda resource: resource, timeout: float = 20.0
    ) -> tuple[CheckList, Json]:
        check_list = CheckList(lambda _check: None)
        folders = SimulatorFolders(self.folder / "orders", self.folder / "results", self.folder / "own")
        folders.create()
        lis = LisSimulator(folders, SimulatorBehaviour(frozenset({STAGED_ITEM}), frozenset({HAEMOLYSED_ITEM})), 3600, now)
        async with (
            open_partner_client(account("clinic", CLINIC_GUID, "clinic-app"), grant="code", transport=self.transport) as partner,
            open_partner_client(account("laboratory", LABORATORY_GUID, "lab-agent"), transport=self.transport) as laboratory,
            _run_in_background(lis, MinimalLaboratory(laboratory, folders, self.known_items, corrupt)),
        ):
            console = DemoConsole(Console(file=io.StringIO()))
            clinic = Clinic(partner, LabelSequence(), now, "T1")
            return check_list, await run_daily_flow(clinic, LisRecord(folders.state), check_list, console, timeout)


@contextlib.asynccontextmanager
async def _run_in_background(lis: LisSimulator, laboratory: MinimalLaboratory) -> AsyncIterator[None]:
    async def work() -> None:
        while True:
            await laboratory.run_once()
            lis.run_once()
            await asyncio.sleep(0.01)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def world(tmp_path: Path) -> DemoWorld:
    settings = load_settings(ROOT / "config" / "sandbox.toml", {})
    catalogue = CurrentCatalogue(load_catalogue(CATALOGUE), now)
    api = httpx.ASGITransport(create_api(settings.api, catalogue))
    # A reason that is missing is to fail its check, so the service takes such a Task.
    service = create_app(SandboxConfig(base_url=BASE, rules=RuleSettings(off=("task-reason",))), transport=api)
    known = set(catalogue.responses.catalogue.contracts["C-100"].items)
    return DemoWorld(httpx.ASGITransport(service), tmp_path, known)
