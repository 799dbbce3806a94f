"""The four endpoints that a laboratory publishes (interface: Laboratory-side endpoints)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from lab_agent.catalogue import basket, preanalytics, questionnaire
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.items import Catalogue, Contract, unknown_contract
from lab_agent.catalogue.labels import LabelSource
from lab_agent.settings.api import ApiSettings
from lab_api import openapi
from lab_api.auth import Client, Clients
from lab_api.bodies import answer, cached, read_json
from lab_api.outages import Outages
from lab_api.pace import Pace
from lab_api.problems import Refused
from lab_api.served import Shelf

T = TypeVar("T")
_FEW = 10


class Endpoints:
    """Nomenclature, eta, questionnaire and preanalytics, each for a known client only."""

    def __init__(self, shelf: Shelf, clients: Clients, labels: LabelSource, pace: Pace, settings: ApiSettings) -> None:
        self._pace = pace
        self._shelf = shelf
        self._clients = clients
        self._labels = labels
        self._settings = settings
        self._outages = Outages()

    def routes(self) -> APIRouter:
        """The routes, under the prefix."""
        routes = APIRouter(prefix=self._settings.prefix)
        routes.add_api_route("/nomenclature", self.nomenclature, methods=["GET"], **openapi.NOMENCLATURE)
        routes.add_api_route("/eta", self.eta, methods=["GET"], **openapi.ETA)
        routes.add_api_route("/questionnaire", self.questionnaire, methods=["POST"], **openapi.QUESTIONNAIRE)
        routes.add_api_route("/preanalytics", self.preanalytics, methods=["POST"], **openapi.PREANALYTICS)
        return routes

    async def nomenclature(self, request: Request) -> Response:
        """Every item of a contract. It may be kept for as long as Cache-Control says."""
        client = await self._client(request)
        served = self._shelf.served
        contract = self._contract(request, client, served.catalogue.contracts)
        lifetime = contract.cache_lifetime if contract.cache_lifetime is not None else int(self._settings.cache_lifetime)
        return cached(request, served.nomenclature(contract), f"private, max-age={lifetime}")

    async def eta(self, request: Request) -> Response:
        """The turnaround of every item of a contract. It is asked for each time, and is cheap when nothing changed."""
        client = await self._client(request)
        served = self._shelf.served
        contract = self._contract(request, client, served.catalogue.contracts)
        return cached(request, served.eta(contract, self._shelf.now()), "private, no-cache")

    async def questionnaire(self, request: Request) -> Response:
        """The questions of a whole basket."""
        catalogue, asked = await self._basket(request)
        items = [line.item for line in asked.lines]
        return await _worked_out(len(items), lambda: answer(request, questionnaire.fold(catalogue, items).as_json()))

    async def preanalytics(self, request: Request) -> Response:
        """The tubes of a whole basket."""
        catalogue, asked = await self._basket(request)
        plan = await _worked_out(len(asked.lines), lambda: preanalytics.calculate(catalogue, asked.lines))
        with self._outages.watch("labels", asked.contract.code):
            labels = await self._labels.labels(asked, plan.tubes, catalogue.version)
        first, second = [each.first for each in labels], [each.second for each in labels]
        say = partial(plan.as_json, first, transport=asked.transport, second=second)
        return await _worked_out(len(asked.lines), lambda: answer(request, say()))

    async def _client(self, request: Request) -> Client:
        client = await self._clients.authenticate(request.headers.get("authorization", ""))
        request.state.client = client.name
        _refuse_doubled(request)
        return client

    async def _basket(self, request: Request) -> tuple[Catalogue, Basket]:
        client = await self._client(request)
        body = await read_json(request, self._settings.max_body)
        catalogue = self._shelf.served.catalogue
        visible = client.visible(catalogue.contracts)
        if isinstance(body, Mapping) and (code := str(body.get("contract")).strip()) in visible:
            self._pace.take(code)
        items = body.get("analyticsrequests") if isinstance(body, Mapping) else None
        size = len(items) if isinstance(items, list) else 0
        return catalogue, await _worked_out(size, lambda: basket.read(body, visible, self._settings.max_basket))

    def _contract(self, request: Request, client: Client, contracts: Mapping[str, Contract]) -> Contract:
        code = request.query_params.get("contract", "").strip()
        if not code:
            raise Refused(400, "required", "contract: is missing — add ?contract=<contract code>")
        found = client.visible(contracts).get(code)
        if found is None:
            raise unknown_contract(code)
        self._pace.take(code)
        return found


async def _worked_out(items: int, work: Callable[[], T]) -> T:
    """Work that grows with the basket; a large one is worked out in a thread, so that nobody else waits for it."""
    return work() if items <= _FEW else await asyncio.to_thread(work)


def _refuse_doubled(request: Request) -> None:
    """Of two values one would be answered and the other silently dropped."""
    given = Counter(name for name, _ in request.query_params.multi_items())
    if doubled := sorted(name[:50] for name, times in given.items() if times > 1):
        raise Refused(400, "invalid", f"{', '.join(doubled[:5])}: is given more than once — send each parameter once")
