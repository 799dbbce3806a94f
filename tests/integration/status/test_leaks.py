"""Law 7, whatever field a name is written into: each field of each answer, message and form holds a word of its own.

The fields are those of the resources, messages and forms themselves, and what FHIR STU3 allows beside them, so that a new one is
covered by itself. No word may be in a log, a metric, an alert, a notification, a support bundle or a page, nor in the
database as it is.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sqlite3
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.cli.support_bundle import support_bundle
from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.guard import GuardedInbox
from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.serialization import message_schema
from lab_agent.operations.accounts import Role
from lab_agent.operations.attention_alerts import AttentionAlerts
from lab_agent.operations.notification.message import Change, Item, Message
from lab_agent.operations.notification.planning import Situation
from lab_agent.operations.notification.text import to_text
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.settings.groups import LoggingSettings
from lab_agent.shared import exact_json, logs
from lab_agent.status.app import create_app
from lab_agent.store.audit_records import AuditAction
from lab_sandbox.references import Ref
from tests.harness.canaries import Canaries, Crawl, page_routes, route_of
from tests.harness.hl7_wire import dialled, framed
from tests.harness.orders import OrderTemplate, procedure_requests, templates
from tests.harness.world import SimulatedAgent, World
from tests.integration.cli.conftest import KEY, SETTINGS
from tests.integration.status.conftest import BASE, PASSWORD, StatusPages, form_token

NUMBERS = {
    *("ProcedureRequest.basedOn.identifier", "ProcedureRequest.identifier.value", "ProcedureRequest.requisition.value"),
    *("ProcedureRequest.supportingInfo.identifier.value", "Specimen.container.identifier.value"),
    *(f"{kind}.meta.security.code" for kind in ("Task", "ProcedureRequest", "Specimen", "QuestionnaireResponse")),
    *(f"LabReport.{name}" for name in ("report_id", "order", "lines", "completes", "items", "accession", "barcode")),
    *("LabReport.not_performed.line", "LabReport.not_performed.item"),
    *("MSH-10", "OBR-2", "OBR-3", "OBR-4", "OBR-26", "OBR-29", "SPM-2"),
}
"""By what orders, tubes, contracts, counterparties and results are named, and found."""
CODES = {
    *("Task.code.coding.code", "Task.input.type.coding.code", "Task.input.valueBoolean", "ProcedureRequest.code.coding.code"),
    *("ProcedureRequest.code.text", "ProcedureRequest.status", "ProcedureRequest.occurrenceDateTime"),
    *("Specimen.type.coding.code", "Specimen.collection.method.coding.code", "Specimen.container.type.coding.code"),
    *("Specimen.collection.collectedDateTime", "Specimen.container.specimenQuantity.value", "QuestionnaireResponse.status"),
}
"""What is ordered, in codes and times: what is wrong with them is told to clinic and operator."""
VALUES = {
    *("linkId", "text", "item.linkId", "item.text", "item.item.linkId", "item.item.text"),
    *("item.item.answer.valueCoding.code", "item.item.answer.valueCoding.system", "item.item.answer.valueString"),
}
MEDICAL = {
    *(f"QuestionnaireResponse.item.{each}" for each in VALUES),
    *(f"ReportedObservation.{name}" for name in ("value_string", "value_codeable_concept.text", "note", "method.text")),
    *(f"ReportedObservation.value_codeable_concept.coding.{name}" for name in ("system", "code", "display")),
    *("LabReport.not_performed.reason", "NTE-3", *(f"OBX-{number}" for number in (3, 4, 5, 6, 7, 8, 17, 21))),
}
"""What was answered, and what was found."""
SYSTEMS = {re.sub(r"\.(value|code)$", ".system", each) for each in NUMBERS | CODES}
NOT_AWAY = NUMBERS | CODES | SYSTEMS | MEDICAL
"""What the database holds in plain, and a page of an order or result shows; nothing of it leaves the machine."""
NOTED = {
    "page /orders/{key}": ("OperationOutcome", AuditAction.SERVICE_WORDS_SHOWN),
    "page /refused/{key}": ("file name", AuditAction.SENDER_NAME_SHOWN),
}
"""What a page shows besides, and the record of that look."""
AWAY = ("log", "metrics", "alerts", "notification", "bundle")
LINK = re.compile(r'(?:href|src|action)="(/[^"#]*)')
FORM = re.compile(r'<form[^>]*action="(/[^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
FIELD = re.compile(r'name="([^"]+)"')


@dataclass
class Tampering:
    """What becomes of the service's answers on their way to the agent: words in the fields of resources, or in a failure."""

    canaries: Canaries
    bodies: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    failures: dict[tuple[str, str], Callable[[], httpx.Response]] = field(default_factory=dict)
    """By method and end of the address."""

    def attach(self, agent: SimulatedAgent) -> None:
        transport: Any = agent._http._transport
        handle = transport.handle_async_request

        async def changed(request: httpx.Request) -> httpx.Response:
            name = str(request.url).rpartition("/fhir/")[2].casefold()
            if fail := self.failures.get((request.method, name)):
                return fail()
            answer: httpx.Response = await handle(request)
            body = json.loads(await answer.aread())
            for each in body.get("entry", ()):
                each["resource"] = self._changed(each["resource"])
            return self._answer(answer.status_code, self._changed(body), answer.headers)

        transport.handle_async_request = changed

    def fail(self, status: int, code: str) -> httpx.Response:
        """A failure with a word in each field of its OperationOutcome; `code` is that of FHIR's list, or empty."""
        kind = f"OperationOutcome {status}"
        outcome = {"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "invalid", "diagnostics": "x"}]}
        issue = {
            **self.canaries.sink(f"{kind}.issue"),
            **{name: self.canaries.new(f"{kind}.issue.{name}") for name in ("severity", "code", "diagnostics")},
            **{name: [self.canaries.new(f"{kind}.issue.{name}")] for name in ("location", "expression")},
            "details": self.canaries.sink(f"{kind}.issue.details"),
        }
        known = {"severity": "error", "code": code} if code else {}
        full = self.canaries.everywhere_else({**outcome, "issue": [{**issue, **known}]}, as_text=False)
        return self._answer(status, full, {})

    def _answer(self, status: int, body: Any, headers: Mapping[str, str]) -> httpx.Response:
        more = {name: self.canaries.new(f"header {name}") for name in ("X-Patient", "Warning", "Server", "Via", "Set-Cookie")}
        kept = {key: value for key, value in headers.items() if key.lower() != "content-length"}
        phrase = {"reason_phrase": self.canaries.new("reason phrase").encode()}
        return httpx.Response(status, headers={**kept, **more}, json=body, extensions=phrase)

    def _changed(self, body: dict[str, Any]) -> dict[str, Any]:
        changed = self.bodies.get((str(body.get("resourceType")), str(body.get("id"))))
        if changed is None:
            return body
        is_status_word = bool(self.canaries.find(json.dumps(changed.get("status"))))
        return changed if is_status_word or "status" not in body else {**changed, "status": body["status"]}


@contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """The log as a program writes it, with all levels."""
    root = logging.getLogger()
    handlers, level, stream = root.handlers[:], root.level, io.StringIO()
    logs.configure(LoggingSettings(level="debug", format="json"), stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def known_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is sealed with the key of the settings file."""
    monkeypatch.setattr("tests.integration.status.conftest.new_key", lambda: KEY)


@pytest.fixture
def world(known_key: None, pages: StatusPages) -> World:
    world = World("leaks", store=pages.context.store, hold_retry=60, unreadable_after=30)
    pages.context = replace(pages.context, clock=world.clock)
    return world


def resources_of(world: World, task: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The resources of an order, by type and id."""
    found = {("Task", task): world.get_task(task)}
    waiting = [found["Task", task], *world.line_tasks(task)]
    while waiting:
        body = waiting.pop()
        found[body["resourceType"], body["id"]] = body
        for name in set(re.findall(r'"reference": "([^"]+)"', json.dumps(body))):
            kind, _, key = name.rpartition("/")
            kind = kind.rpartition("/")[2].lower()
            full = {"procedurerequest": "ProcedureRequest", "patient": "Patient", "specimen": "Specimen"}.get(kind)
            if full and (full, key) not in found and (kept := world.service.resources.find(Ref(full, key))):
                waiting.append(json.loads(kept.body))
    for answers in world.service.store.find("QuestionnaireResponse", [], lambda _: True, limit=1000):
        body = json.loads(answers.body)
        if body["subject"]["reference"].rpartition("/")[2] in {key for _, key in found}:
            found["QuestionnaireResponse", body["id"]] = body
    return found


FAILURES = ((400, "invalid"), (422, ""), (500, ""))


def resources_with_answers(world: World) -> OrderTemplate:
    """An order with answers, of one line."""
    found = templates(world.clock.now().replace(minute=0, second=0))
    fitting = (each for each in found if "QuestionnaireResponse" in str(each.bundle))
    return min(fitting, key=lambda each: len(procedure_requests(each.bundle)))


def spoil_orders(world: World, canaries: Canaries, tampering: Tampering) -> None:
    """Place an order for each place of a word: all that may be beside its fields, and each of its fields."""
    template = resources_with_answers(world)
    for as_text in (False, True):
        for key, body in resources_of(world, world.place_order(template, relabel=True)).items():
            tampering.bodies[key] = canaries.everywhere_else(body, as_text)
    first = resources_of(world, world.place_order(template, relabel=True))
    for kind, path in dict.fromkeys((kind, path) for (kind, _), body in first.items() for path in canaries.leaves(body)):
        bodies = resources_of(world, world.place_order(template, relabel=True))
        key = next(each for each, body in bodies.items() if each[0] == kind and path in canaries.leaves(body))
        tampering.bodies[key] = canaries.put(bodies[key], path, kind)
    for status, code in FAILURES:
        for kind in ("ProcedureRequest", "Specimen", "Patient", "Task"):
            bodies = resources_of(world, world.place_order(template, relabel=True))
            key = next(each for each in bodies if each[0] == kind)
            tampering.failures["GET", f"{kind}/{key[1]}".casefold()] = partial(tampering.fail, status, code)
        task = world.place_order(template, relabel=True, spoil=0)
        line = world.line_tasks(task)[0]["id"]
        tampering.failures["PUT", f"task/{line}"] = partial(tampering.fail, status, code)
        order = world.place_order(template, relabel=True)
        tampering.failures["GET", f"task?part-of=task/{order}"] = partial(tampering.fail, status, code)


def result_files(canaries: Canaries, order: LabOrder) -> Iterator[bytes]:
    """A report for each field that a message may have, of itself and of its observations, with a word in each text of it."""
    definitions = message_schema()["$defs"]
    now = order.lines[0].ordered_at.isoformat()
    observation = {"id": "x", "code": {"system": "http://loinc.org", "code": "718-7"}}
    report = {"order": order.key, "lines": [order.lines[0].key], "status": "final", "effective": now, "issued": now}

    def sample(schema: Mapping[str, Any], place: str) -> Any:
        schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for choice in ("anyOf", "oneOf"):
            if choice in schema and "properties" not in schema:
                return sample(schema[choice][0], place)
        if "properties" in schema:
            return {name: sample(each, f"{place}.{name}") for name, each in schema["properties"].items()}
        if schema.get("type") == "array":
            return [sample(schema.get("items", {}), place)]
        return schema.get("const") or next(iter(schema.get("enum", ())), canaries.new(place))

    for name, schema in definitions["LabReport"]["properties"].items():
        changed = {"report_id": f"field-{name}", **report, "observations": [{**observation, "value_string": "none"}]}
        yield exact_json.dumps({**changed, name: sample(schema, f"LabReport.{name}")})
    for name, schema in definitions["ReportedObservation"]["properties"].items():
        changed = {**observation, name: sample(schema, f"ReportedObservation.{name}")}
        yield exact_json.dumps({"report_id": f"observation-{name}", **report, "observations": [changed]})


def hl7_messages(canaries: Canaries, order: LabOrder) -> Iterator[bytes]:
    """A message for each field of its segments, with a word in it."""
    now = f"{order.lines[0].ordered_at:%Y%m%d%H%M%S%z}"
    segments = [
        ["MSH", "^~\\&", "LIS", "LAB", "AGENT", "", now, "", "ORU^R01^ORU_R01", "M", "P", "2.5.1", *[""] * 10],
        ["PID", "1", "", "P-7", "", "Family^Given", "", "19610412", "F", *[""] * 30],
        ["PV1", "1", "O", *[""] * 18],
        ["ORC", "RE", order.lines[0].key, *[""] * 22],
        ["OBR", "1", order.lines[0].key, "A-1", "GLU^Glucose^L", "", "", now, *[""] * 14, now, "", "", "F", *[""] * 22],
        ["OBX", "1", "NM", "2345-7^Glucose^LN", "", "5.1", "mmol/l", "3.9-6.1", "", "", "", "F", *[""] * 12],
        ["NTE", "1", "L", "", ""],
        ["SPM", "1", "", "", "BLD", *[""] * 20],
    ]
    for segment, fields in enumerate(segments):
        for number in range(2 if fields[0] == "MSH" else 1, len(fields)):
            place = f"{fields[0]}-{number + (fields[0] == 'MSH')}"
            words = [*fields[:number], canaries.new(place), *fields[number + 1 :]]
            lines = ["|".join(words if each == segment else others) for each, others in enumerate(segments)]
            lines[0] = lines[0].replace("|M|", f"|{place}|")
            yield "\r".join(lines).encode() + b"\r"


async def send_results(world: World, canaries: Canaries, folder: Path) -> None:
    """The laboratory systems send what they have by both doors."""
    order = world.lis.submitted[0]
    places = {name: folder / name for name in ("orders", "results")}
    for each in (folder, *places.values()):
        each.mkdir()
    adapter = FolderAdapter(FolderSettings.model_validate({**places, "settle": 0}), "folder")
    await adapter.start(GuardedInbox(StoreInbox(world.store, world.clock, "folder"), "folder"))
    for number, content in enumerate(result_files(canaries, order)):
        (places["results"] / f"{number}.json").write_bytes(content)
    (places["results"] / f"{canaries.new('file name')}.json").write_bytes(b"{")
    await adapter.collect()
    await adapter.stop()
    listening = {"role": "server", "port": 0}
    given = {"orders": listening, "results": listening, "folder": folder / "own", "duplicates": "msh10"}
    hl7 = Hl7v2Adapter(Hl7v2Settings.model_validate(given), "hl7v2")
    await hl7.start(GuardedInbox(StoreInbox(world.store, world.clock, "folder"), "hl7v2"))
    for content in hl7_messages(canaries, order):
        async with dialled(hl7.ports[1]) as wire:
            await wire.send(framed(content.decode()))
            await wire.frame()
    await hl7.stop()


@dataclass
class Sinks:
    """Where the words were found: places by the name of what was looked at."""

    canaries: Canaries
    found: dict[str, set[str]] = field(default_factory=dict)

    def look(self, name: str, content: str | bytes) -> None:
        if places := self.canaries.find(content):
            self.found.setdefault(name, set()).update(places)

    def allowed(self, name: str) -> set[str]:
        """Places of words that may be found there."""
        if name in AWAY:
            return set()
        noted = NOTED.get(name, ("", None))[0]
        return NOT_AWAY | {each for each in self.canaries.places.values() if noted and each.startswith(noted)}

    def look_at_database(self, file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
            for (table,) in tables.fetchall():
                rows = connection.execute(f'SELECT * FROM "{table}"')
                columns = [each[0] for each in rows.description]
                for row in rows:
                    for column, value in zip(columns, row, strict=True):
                        if isinstance(value, str | bytes):
                            self.look(f"{table}.{column}", value)


async def crawl(pages: StatusPages, sinks: Sinks, own: Iterable[str]) -> dict[str, set[str]]:
    """Read the pages of an operator, with `own`, and of an administrator; the forms there, with the names of their fields."""
    forms: dict[str, set[str]] = {}
    for role in (Role.OPERATOR, Role.ADMIN):
        client = await pages.signed_in_client(role)
        reading = Crawl(client)  # type: ignore[arg-type]  # what it reads is read here
        waiting = [each for each in page_routes() if "{" not in each and reading.is_wanted(each)]
        waiting += own if role is Role.OPERATOR else ()
        while waiting:
            address = waiting.pop(0)
            if address in reading.statuses:
                continue
            answer = await client.get(address)
            reading.statuses[address] = answer.status_code
            sinks.look(f"page {route_of(address)}", f"{address} {answer.headers} {answer.text}")
            waiting += [each for each in map(unescape, LINK.findall(answer.text)) if reading.is_wanted(each)]
            for action, form in FORM.findall(answer.text):
                forms.setdefault(unescape(action), set()).update(FIELD.findall(form))
    return forms


async def fill_forms(pages: StatusPages, canaries: Canaries, forms: Mapping[str, set[str]]) -> None:
    """Send each form with a word in each of its fields, as an administrator; a form that ends the session comes last."""
    transport = httpx.ASGITransport(create_app(pages.context), raise_app_exceptions=False, client=("127.0.0.1", 123))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        await client.post("/sign-in", data={canaries.new("form /sign-in name"): "x", "name": canaries.new("form /sign-in user")})
        await client.post("/sign-in", data={"name": Role.ADMIN.value, "password": PASSWORD})
        token = form_token((await client.get("/")).text)
        for action in sorted(forms, key=lambda each: (each.startswith("/sign-"), each)):
            words = {name: canaries.new(f"form {action} {name}") for name in forms[action] - {"csrf_token"}}
            await client.post(action, data={**words, "csrf_token": token})


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_no_word_leaks(world: World, pages: StatusPages, tmp_path: Path) -> None:
    canaries = Canaries()
    tampering, sinks = Tampering(canaries=canaries), Sinks(canaries)
    spoil_orders(world, canaries, tampering)
    agent = world.agent()
    tampering.attach(agent)
    with captured_log() as log:
        await agent.poll.run()
        await world.drain(agent, rounds=400, until=timedelta(minutes=2))
        await send_results(world, canaries, tmp_path / "lis")
        await world.drain(agent, rounds=400, until=timedelta(minutes=2))
        await AttentionAlerts(world.store, world.clock, timedelta(0)).run()
        orders = [world.order_key_of(task) for task in world.placed]
        forms = await crawl(pages, sinks, [f"/orders/{key}" for key in orders])
        sinks.look_at_database(tmp_path / "lab.db")
        await fill_forms(pages, canaries, forms)
    sinks.look("log", log.getvalue())
    alerts = await world.store.transact(lambda uow: uow.alerts.all_open())
    told = Situation.of(alerts, None).told
    items = tuple(Item(change=Change.STARTED, condition=each) for each in told)
    message = Message(id="1", laboratory="lab", at=world.clock.now(), items=items)
    agent.components.metrics.update_conditions(told)
    sinks.look("alerts", repr(alerts))
    sinks.look("notification", f"{message} {to_text(message)}")
    sinks.look("metrics", agent.components.metrics.render())
    (tmp_path / "agent.log").write_text(log.getvalue())
    (tmp_path / "lab-agent.toml").write_text(SETTINGS.replace("sqlite:///lab.db", f"sqlite:///{tmp_path}/lab.db"))
    bundle = tmp_path / "bundle.tar.gz"
    await asyncio.to_thread(support_bundle, tmp_path / "lab-agent.toml", bundle, tmp_path / "agent.log")
    with tarfile.open(bundle) as archive:
        for each in archive.getmembers():
            content = archive.extractfile(each)
            assert content is not None
            sinks.look("bundle", content.read())
    assert len(forms) > 10
    assert len(world.lis.submitted) > 50
    assert {name: places - sinks.allowed(name) for name, places in sinks.found.items() if places - sinks.allowed(name)} == {}
    assert {each.action for each in await pages.records()} >= {action for _, action in NOTED.values()}
