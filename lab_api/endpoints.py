"""The four endpoints that a laboratory publishes (interface: Laboratory-side endpoints), each for a known client only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.types import ASGIApp

from lab_agent.catalogue import basket, preanalytics, questionnaire
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.labels import LabelSource
from lab_agent.catalogue.model import Catalogue, Contract, unknown_contract_error
from lab_agent.catalogue.tubes import Preanalytics
from lab_agent.settings.api import ApiSettings
from lab_api.auth import Client, Clients
from lab_api.errors import ApiError, OutageReporter
from lab_api.rate_limit import TokenBuckets
from lab_api.request_body import read_json
from lab_api.response_cache import CurrentCatalogue, PreparedResponses, conditional_response, json_response

T = TypeVar("T")

_MAX_INLINE_ITEMS = 10
"""The largest basket that is worked on in the event loop: the search for the fewest tubes of more may take too long for it."""
_MAX_INLINE_TUBES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The parts that the endpoints work with, and one handler for each endpoint."""

    settings: ApiSettings
    current_catalogue: CurrentCatalogue
    clients: Clients
    labels: LabelSource
    rate_limit: TokenBuckets
    outages: OutageReporter = field(default_factory=OutageReporter)

    async def nomenclature(self, request: Request) -> ASGIApp:
        """Every item of a contract. The response may be cached for as long as Cache-Control says."""
        contract, responses = await self._find_contract(request)
        own, default = contract.cache_lifetime_seconds, int(self.settings.cache_lifetime)
        lifetime = default if own is None else own
        return conditional_response(request, await responses.nomenclature(contract), f"private, max-age={lifetime}")

    async def eta(self, request: Request) -> ASGIApp:
        """The turnaround of every item of a contract. Revalidate it with each use; an unchanged list costs a 304."""
        contract, responses = await self._find_contract(request)
        body = await responses.eta(contract, self.current_catalogue.now())
        return conditional_response(request, body, "private, no-cache")

    async def questionnaire(self, request: Request) -> ASGIApp:
        """The questions of a whole basket."""

        def merge(catalogue: Catalogue, requested: Basket) -> ASGIApp:
            items = [line.item for line in requested.lines]
            return json_response(request, questionnaire.build_questionnaire(catalogue, items).as_json())

        response, _, _ = await self._read_basket(request, merge)
        return response

    async def preanalytics(self, request: Request) -> ASGIApp:
        """The tubes of a whole basket."""

        def calculate(catalogue: Catalogue, requested: Basket) -> Preanalytics:
            return preanalytics.calculate(catalogue, requested.lines)

        plan, requested, catalogue = await self._read_basket(request, calculate)
        with self.outages.report_outage("labels", requested.contract.code):
            labels = await self.labels.labels(requested, plan.tubes, catalogue.version)
        first, second = [each.first for each in labels], [each.second for each in labels]
        as_json = partial(plan.as_json, first, include_transport=requested.include_transport_containers, second_labels=second)
        if len(plan.tubes) <= _MAX_INLINE_TUBES:
            return json_response(request, as_json())
        return await asyncio.to_thread(lambda: json_response(request, as_json()))

    async def _authenticate(self, request: Request) -> tuple[Client, PreparedResponses]:
        """Who calls, and what is served now: one version for the whole request. Raises `ApiError`."""
        client = await self.clients.authenticate(
            request.headers.get("authorization", ""), request.client.host if request.client else ""
        )
        request.state.client = client.name
        return client, self.current_catalogue.responses

    async def _find_contract(self, request: Request) -> tuple[Contract, PreparedResponses]:
        """The contract of the query, counted against its rate limit. Raises `ApiError` and `UnknownContractError`."""
        client, responses = await self._authenticate(request)
        _reject_repeated_parameters(request)
        code = request.query_params.get("contract", "").strip()
        if not code:
            raise ApiError(400, "required", "contract: is missing — add ?contract=<contract code>")
        contract = client.visible_contracts(responses.catalogue.contracts).get(code)
        if contract is None:
            raise unknown_contract_error(code)
        self.rate_limit.consume(code)
        return contract, responses

    async def _read_basket(self, request: Request, work: Callable[[Catalogue, Basket], T]) -> tuple[T, Basket, Catalogue]:
        """The basket of the body, counted against its contract's rate limit, and what `work` makes of it.

        A large basket is read and worked on in a thread, so that nobody else waits for it. Raises `ApiError` and `BasketError`.
        """
        client, responses = await self._authenticate(request)
        _reject_repeated_parameters(request)
        body = await read_json(request, self.settings.max_body)
        visible = client.visible_contracts(responses.catalogue.contracts)
        if isinstance(body, Mapping) and (code := str(body.get("contract")).strip()) in visible:
            self.rate_limit.consume(code)
        items = body.get("analyticsrequests") if isinstance(body, Mapping) else None
        size = len(items) if isinstance(items, list) else 0

        def read() -> tuple[T, Basket, Catalogue]:
            requested = basket.read_basket(body, visible, self.settings.max_basket)
            return work(responses.catalogue, requested), requested, responses.catalogue

        return read() if size <= _MAX_INLINE_ITEMS else await asyncio.to_thread(read)


def _reject_repeated_parameters(request: Request) -> None:
    """Of two values one would be used and the other silently dropped."""
    if not request.scope["query_string"]:
        return
    given = request.query_params.multi_items()
    if len(given) < 2:
        return
    times = Counter(name for name, _ in given)
    if repeated := sorted(name[:50] for name, count in times.items() if count > 1):
        raise ApiError(400, "invalid", f"{', '.join(repeated[:5])}: is given more than once — send each parameter once")
