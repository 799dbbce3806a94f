"""Two programs that take in orders, as somebody would write them in an afternoon.

`fhirpy` is a concurrent poller with the library of that name; `sequential` is a script that makes one request after the other
with httpx. Both fetch an order with all that belongs to it and write one JSON file. Neither checks, stores or remembers anything,
and neither would survive its own end.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import fhirpy
import httpx

from benchmarks.child_process import Json, announce, cpu_seconds, serve_commands

_PARALLEL_ORDERS = 8
_POLL = {"status": "requested", "code": "OrderProcessingTask"}


class FhirpyPoller:
    """Fetches orders concurrently, and what belongs to one order concurrently too."""

    def __init__(self, base_url: str, folder: Path) -> None:
        self._client = fhirpy.AsyncFHIRClient(f"{base_url}fhir", authorization="Bearer stub")
        self._folder = folder

    async def poll(self) -> None:
        """Fetch and write all requested orders."""
        tasks = await self._client.resources("Task").search(**_POLL).fetch_all()
        semaphore = asyncio.Semaphore(_PARALLEL_ORDERS)

        async def take_in(task: Any) -> None:
            async with semaphore:
                await self._take_in(task)

        await asyncio.gather(*map(take_in, tasks))

    async def _take_in(self, task: Any) -> None:
        lines = await self._client.resources("Task").search(**{"part-of": f"Task/{task['id']}"}).fetch_all()
        requests = await asyncio.gather(*(self._read(line["basedOn"][0]["reference"]) for line in lines))
        linked = {reference for request in requests for reference in _linked(request)}
        others = await asyncio.gather(*(self._read(reference) for reference in sorted(linked)))
        found = await asyncio.gather(*map(self._answers, requests))
        answers = [answer for each in found for answer in each]
        _write(self._folder, task["id"], [dict(task), *map(dict, lines), *requests, *others, *answers])

    async def _read(self, reference: str) -> Json:
        kind, _, resource_id = reference.partition("/")
        return dict(await self._client.get(kind, resource_id))

    async def _answers(self, request: Json) -> list[Json]:
        search = self._client.resources("QuestionnaireResponse").search(subject=f"ProcedureRequest/{request['id']}")
        return [dict(each) for each in await search.fetch_all()]


class SequentialPoller:
    """Makes one request after the other."""

    def __init__(self, base_url: str, folder: Path) -> None:
        self._client = httpx.Client(base_url=f"{base_url}fhir/", headers={"Authorization": "Bearer stub"})
        self._folder = folder

    async def poll(self) -> None:
        """Fetch and write all requested orders."""
        await asyncio.to_thread(self._poll)

    def _poll(self) -> None:
        for task in self._search("task", _POLL):
            lines = self._search("task", {"part-of": f"task/{task['id']}"})
            requests = [self._get(line["basedOn"][0]["reference"]) for line in lines]
            others = [self._get(reference) for reference in sorted({name for request in requests for name in _linked(request)})]
            for request in requests:
                others += self._search("questionnaireresponse", {"subject": f"procedurerequest/{request['id']}"})
            _write(self._folder, task["id"], [task, *lines, *requests, *others])

    def _search(self, kind: str, criteria: dict[str, str]) -> list[Json]:
        return [entry["resource"] for entry in self._get(kind, criteria)["entry"]]

    def _get(self, target: str, criteria: dict[str, str] | None = None) -> Json:
        answer = self._client.get(target, params=criteria)
        answer.raise_for_status()
        found: Json = answer.json()
        return found


def _linked(request: Json) -> list[str]:
    return [request["subject"]["reference"], *(each["reference"] for each in request["specimen"])]


def _write(folder: Path, order: str, resources: list[Json]) -> None:
    (folder / f"{order}.json").write_text(json.dumps(resources))


async def _run(kind: str, base_url: str, folder: Path) -> None:
    poller = FhirpyPoller(base_url, folder) if kind == "fhirpy" else SequentialPoller(base_url, folder)

    async def run_command(_: Json) -> Json:
        before = cpu_seconds()
        await poller.poll()
        return {"cpu": cpu_seconds() - before}

    announce({"ready": True})
    await serve_commands(run_command)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
