"""The demo's world in one process, with a laboratory's side as small as it can be in the place of the agent.

It exists so that the story can be told and *spoilt*: `spoil` changes what is uploaded, and the story must notice.
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

from lab_agent.catalogue.load import load as load_catalogue
from lab_agent.settings.root import load_settings
from lab_api.app import create_app as create_api
from lab_api.served import Shelf
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, LABORATORY_GUID, SandboxConfig
from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.lis.messages import Habits
from lab_sandbox.demo.lis.stand_in import Folders, StandIn
from lab_sandbox.demo.record import Record
from lab_sandbox.demo.scenes import HAEMOLYSED, STAGED
from lab_sandbox.demo.screen import Screen
from lab_sandbox.demo.story import tell
from lab_sandbox.partner.account import Account
from lab_sandbox.partner.client import PartnerClient, partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.labels import Labels
from lab_sandbox.partner.placed import id_of
from lab_sandbox.partner.plain_json import Json, decode, encode

ROOT = Path(__file__).parents[2]
BASE = "http://service.test:8480/"
READABLE = {"security": [{"system": "read", "code": CLINIC_GUID}]}
CAMEL = re.compile(r"_([a-z])")


def now() -> datetime:
    return datetime.now(UTC)


def account(login: str, guid: str, client: str) -> Account:
    return Account(
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


def camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {CAMEL.sub(lambda found: found[1].upper(), name): camel(one) for name, one in value.items()}
    return [camel(one) for one in value] if isinstance(value, list) else value


@dataclass
class SmallLaboratory:
    """Polls, cancels lines with unknown codes, writes order files, uploads result files. Not a model for anybody."""

    client: PartnerClient
    folders: Folders
    known: set[str]
    spoil: Callable[[Json], Json] = lambda resource: resource
    orders: dict[str, Json] = field(default_factory=dict)
    uploaded: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def turn(self) -> None:
        for task in await self.client.search("task", {"status": "requested", "code": "OrderProcessingTask"}):
            if task["id"] not in self.orders:
                await self._take(task["id"])
        for file in sorted(self.folders.results.glob("*.json"), key=lambda one: (one.stat().st_mtime_ns, one.name)):
            await self._upload(decode(file.read_bytes()))
            file.unlink()

    async def _take(self, order: str) -> None:
        tasks = await self.client.search("task", {"part-of": f"task/{order}"})
        requests = {one["id"]: await self.client.read(one["basedOn"][0]["reference"]) for one in tasks}
        lines, specimens = [], {}
        for task, request in requests.items():
            item = request["code"]["coding"][0]["code"]
            if item not in self.known:
                await self._end(task, "cancelled", f"{item} is no test of this contract; refresh the nomenclature")
                continue
            ids = [id_of(one["reference"]) for one in request["specimen"]]
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

    async def _upload(self, message: Json) -> None:
        order = next(one for one in self.orders.values() if one["key"] == message["order"])
        if message["kind"] == "refusal":
            await self._end(
                message["not_performed"][0]["line"], "cancelled", f"{message['not_performed'][0]['reason']}; collect again"
            )
        else:
            await self._report(order, message)
        statuses = {(await self.client.read(f"task/{line['key']}"))["status"] for line in order["lines"]}
        if "requested" not in statuses:
            await self._end(order["task"], "completed")

    async def _report(self, order: Json, message: Json) -> None:
        lines = [line for line in order["lines"] if line["key"] in message.get("lines", [one["key"] for one in order["lines"]])]
        if "lines" not in message:
            lines = [line for line in lines if line["item"] != HAEMOLYSED]
        results = [await self._observation(order, message, one) for one in message.get("observations", ())]
        report = {
            "resourceType": "DiagnosticReport",
            "status": message["status"],
            "code": {"coding": [{"system": f"{BASE}terminology/nomenclature", "code": lines[0]["item"]}]},
            "subject": order["subject"],
            "effectiveDateTime": message["effective"],
            "issued": message["issued"],
            "basedOn": [{"reference": f"procedurerequest/{line['request']}"} for line in lines],
            "result": [{"reference": f"observation/{one}"} for one in results],
            "presentedForm": [{"url": await self._document(one)} for one in message.get("documents", ())],
        }
        await self._put(message["report_id"], report)
        if message["status"] == "final" and message.get("completes") is None:
            for line in lines:
                await self._end(line["key"], "completed")

    async def _observation(self, order: Json, message: Json, reported: Json) -> str:
        values = {name: one for name, one in reported.items() if name.startswith("value_")}
        resource = {
            "resourceType": "Observation",
            "status": reported["status"],
            "code": {"coding": [reported["code"]]},
            "subject": order["subject"],
            **camel(values),
        }
        if "value_attachment" in reported:
            attached = reported["value_attachment"]
            url = await self._document(attached)
            resource["valueAttachment"] = {"contentType": attached["content_type"], "title": attached["title"], "url": url}
        if "reference_ranges" in reported:
            resource["referenceRange"] = camel(reported["reference_ranges"])
        return await self._put(f"{message['report_id']}/{reported['id']}", resource)

    async def _document(self, document: Json) -> str:
        beside = self.folders.results / document.get("file", "")
        content = document.get("content") or base64.b64encode(beside.read_bytes()).decode()
        binary = self.spoil({"resourceType": "Binary", "meta": READABLE, "contentType": "application/pdf", "content": content})
        return f"fhir/Binary/{(await self._send('POST', 'Binary', binary))['id']}"

    async def _put(self, name: str, resource: Json) -> str:
        resource = self.spoil({**resource, "meta": READABLE})
        id_, before = self.uploaded.get(name, ("", ""))
        if before == repr(resource):
            return id_
        if id_:
            current = await self.client.read(f"{resource['resourceType']}/{id_}")
            await self.client.update({**resource, "id": id_}, f'W/"{current["meta"]["versionId"]}"')
        else:
            id_ = (await self._send("POST", resource["resourceType"], resource))["id"]
        self.uploaded[name] = (id_, repr(resource))
        return id_

    async def _send(self, method: str, kind: str, resource: Json) -> Json:
        made: Json = await self.client._post(f"fhir/{kind}", resource)
        return made

    async def _end(self, task: str, status: str, reason: str | None = None) -> None:
        current = await self.client.read(f"task/{task}")
        if current["status"] != "requested":
            return
        changed = self.spoil({**current, "status": status, **({"output": [{"valueString": reason}]} if reason else {})})
        await self.client.update(changed, f'W/"{current["meta"]["versionId"]}"')


@dataclass
class World:
    """A stage for the story; `tell` plays it with every upload passed through `spoil`."""

    transport: httpx.ASGITransport
    folder: Path
    known: set[str]

    async def tell(
        self, spoil: Callable[[Json], Json] = lambda resource: resource, patience: float = 20.0
    ) -> tuple[Ledger, Json]:
        ledger = Ledger(lambda _check: None)
        folders = Folders(self.folder / "orders", self.folder / "results", self.folder / "own")
        folders.make()
        lis = StandIn(folders, Habits(frozenset({STAGED}), frozenset({HAEMOLYSED})), 3600, now)
        async with (
            partner_client(account("clinic", CLINIC_GUID, "clinic-app"), grant="code", transport=self.transport) as partner,
            partner_client(account("laboratory", LABORATORY_GUID, "lab-agent"), transport=self.transport) as laboratory,
            _working(lis, SmallLaboratory(laboratory, folders, self.known, spoil)),
        ):
            screen = Screen(Console(file=io.StringIO()))
            clinic = Clinic(partner, Labels(), now, "T1")
            return ledger, await tell(clinic, Record(folders.own), ledger, screen, patience)


@contextlib.asynccontextmanager
async def _working(lis: StandIn, laboratory: SmallLaboratory) -> AsyncIterator[None]:
    async def work() -> None:
        while True:
            await laboratory.turn()
            lis.turn()
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
def world(tmp_path: Path) -> World:
    settings = load_settings(ROOT / "config" / "sandbox.toml", {})
    shelf = Shelf(load_catalogue(ROOT / "config" / "catalogue"), now)
    api = httpx.ASGITransport(create_api(settings.api, shelf))
    service = create_app(SandboxConfig(base_url=BASE), transport=api)
    known = set(shelf.served.catalogue.contracts["C-100"].items)
    return World(httpx.ASGITransport(service), tmp_path, known)
