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
from lab_agent.catalogue.labels import LabelSource
from lab_agent.catalogue.model import Catalogue, Contract, unknown_contract_error
from lab_agent.settings.api import ApiSettings
from lab_api import schemas
from lab_api.auth import Client, Clients
from lab_api.errors import ApiError, OutageReporter
from lab_api.rate_limit import TokenBuckets
from lab_api.response_cache import CurrentCatalogue, conditional_response, json_response, read_json

T = TypeVar("T")
_MAX_INLINE_ITEMS = 10


class Endpoints:
    """Nomenclature, eta, questionnaire and preanalytics, each for a known client only."""

    def __init__(
        self,
        current_catalogue: CurrentCatalogue,
        clients: Clients,
        labels: LabelSource,
        rate_limit: TokenBuckets,
        settings: ApiSettings,
    ) -> None:
        self._rate_limit = rate_limit
        self._current_catalogue = current_catalogue
        self._clients = clients
        self._labels = labels
        self._settings = settings
        self._outages = OutageReporter()

    def routes(self) -> APIRouter:
        """The routes, under the prefix."""
        routes = APIRouter(prefix=self._settings.prefix)
        routes.add_api_route("/nomenclature", self.nomenclature, methods=["GET"], **schemas.NOMENCLATURE)
        routes.add_api_route("/eta", self.eta, methods=["GET"], **schemas.ETA)
        routes.add_api_route("/questionnaire", self.questionnaire, methods=["POST"], **schemas.QUESTIONNAIRE)
        routes.add_api_route("/preanalytics", self.preanalytics, methods=["POST"], **schemas.PREANALYTICS)
        return routes

    async def nomenclature(self, request: Request) -> Response:
        """Every item of a contract. It may be kept for as long as Cache-Control says."""
        client = await self._authenticate(request)
        served = self._current_catalogue.responses
        contract = self._find_contract(request, client, served.catalogue.contracts)
        lifetime = (
            contract.cache_lifetime_seconds if contract.cache_lifetime_seconds is not None else int(self._settings.cache_lifetime)
        )
        return conditional_response(request, served.nomenclature(contract), f"private, max-age={lifetime}")

    async def eta(self, request: Request) -> Response:
        """The turnaround of every item of a contract. It is asked for each time, and is cheap when nothing changed."""
        client = await self._authenticate(request)
        served = self._current_catalogue.responses
        contract = self._find_contract(request, client, served.catalogue.contracts)
        return conditional_response(request, served.eta(contract, self._current_catalogue.now()), "private, no-cache")

    async def questionnaire(self, request: Request) -> Response:
        """The questions of a whole basket."""
        catalogue, asked = await self._read_basket(request)
        items = [line.item for line in asked.lines]
        return await _compute(
            len(items), lambda: json_response(request, questionnaire.build_questionnaire(catalogue, items).as_json())
        )

    async def preanalytics(self, request: Request) -> Response:
        """The tubes of a whole basket."""
        catalogue, asked = await self._read_basket(request)
        plan = await _compute(len(asked.lines), lambda: preanalytics.calculate(catalogue, asked.lines))
        with self._outages.report_outage("labels", asked.contract.code):
            labels = await self._labels.labels(asked, plan.tubes, catalogue.version)
        first, second = [each.first for each in labels], [each.second for each in labels]
        say = partial(plan.as_json, first, include_transport=asked.include_transport_containers, second_labels=second)
        return await _compute(len(asked.lines), lambda: json_response(request, say()))

    async def _authenticate(self, request: Request) -> Client:
        client = await self._clients.authenticate(request.headers.get("authorization", ""))
        request.state.client = client.name
        _reject_repeated_parameters(request)
        return client

    async def _read_basket(self, request: Request) -> tuple[Catalogue, Basket]:
        client = await self._authenticate(request)
        body = await read_json(request, self._settings.max_body)
        catalogue = self._current_catalogue.responses.catalogue
        visible = client.visible_contracts(catalogue.contracts)
        if isinstance(body, Mapping) and (code := str(body.get("contract")).strip()) in visible:
            self._rate_limit.consume(code)
        items = body.get("analyticsrequests") if isinstance(body, Mapping) else None
        size = len(items) if isinstance(items, list) else 0
        return catalogue, await _compute(size, lambda: basket.read_basket(body, visible, self._settings.max_basket))

    def _find_contract(self, request: Request, client: Client, contracts: Mapping[str, Contract]) -> Contract:
        code = request.query_params.get("contract", "").strip()
        if not code:
            raise ApiError(400, "required", "contract: is missing — add ?contract=<contract code>")
        found = client.visible_contracts(contracts).get(code)
        if found is None:
            raise unknown_contract_error(code)
        self._rate_limit.consume(code)
        return found


async def _compute(items: int, work: Callable[[], T]) -> T:
    """Work that grows with the basket; a large one is worked out in a thread, so that nobody else waits for it."""
    return work() if items <= _MAX_INLINE_ITEMS else await asyncio.to_thread(work)


def _reject_repeated_parameters(request: Request) -> None:
    """Of two values one would be answered and the other silently dropped."""
    given = Counter(name for name, _ in request.query_params.multi_items())
    if doubled := sorted(name[:50] for name, times in given.items() if times > 1):
        raise ApiError(400, "invalid", f"{', '.join(doubled[:5])}: is given more than once — send each parameter once")
