"""The four endpoints that a laboratory publishes (interface: Laboratory-side endpoints), each for a known client only."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Request, Response

from lab_agent.catalogue import basket, preanalytics, questionnaire
from lab_agent.catalogue.basket import Basket
from lab_agent.catalogue.labels import LabelSource
from lab_agent.catalogue.model import Contract, unknown_contract_error
from lab_agent.settings.api import ApiSettings
from lab_api import schemas
from lab_api.auth import Client, Clients
from lab_api.errors import ApiError, OutageReporter
from lab_api.rate_limit import TokenBuckets
from lab_api.response_cache import CurrentCatalogue, PreparedResponses, conditional_response, json_response, read_json

T = TypeVar("T")
router = APIRouter()

_MAX_INLINE_ITEMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The parts that the endpoints work with."""

    settings: ApiSettings
    current_catalogue: CurrentCatalogue
    clients: Clients
    labels: LabelSource
    rate_limit: TokenBuckets
    outages: OutageReporter = field(default_factory=OutageReporter)


async def get_context(request: Request) -> ApiContext:
    """The parts, as `create_app` was given them."""
    context: ApiContext = request.app.state.api
    return context


Api = Annotated[ApiContext, Depends(get_context)]


async def authenticate(request: Request, api: Api) -> Client:
    """Who calls. Raises `ApiError`."""
    client = await api.clients.authenticate(request.headers.get("authorization", ""))
    request.state.client = client.name
    return client


async def current_responses(api: Api) -> PreparedResponses:
    """What is served now: one version for the whole request, even if it is replaced in the meantime."""
    return api.current_catalogue.responses


Caller = Annotated[Client, Depends(authenticate)]
Responses = Annotated[PreparedResponses, Depends(current_responses)]


async def find_contract(request: Request, api: Api, client: Caller, responses: Responses) -> Contract:
    """The contract of the query, counted against its rate limit. Raises `ApiError` and `UnknownContractError`."""
    _reject_repeated_parameters(request)
    code = request.query_params.get("contract", "").strip()
    if not code:
        raise ApiError(400, "required", "contract: is missing — add ?contract=<contract code>")
    contract = client.visible_contracts(responses.catalogue.contracts).get(code)
    if contract is None:
        raise unknown_contract_error(code)
    api.rate_limit.consume(code)
    return contract


async def read_basket(request: Request, api: Api, client: Caller, responses: Responses) -> Basket:
    """The basket of the body, counted against its contract's rate limit. Raises `ApiError` and `BasketError`."""
    _reject_repeated_parameters(request)
    body = await read_json(request, api.settings.max_body)
    visible = client.visible_contracts(responses.catalogue.contracts)
    if isinstance(body, Mapping) and (code := str(body.get("contract")).strip()) in visible:
        api.rate_limit.consume(code)
    items = body.get("analyticsrequests") if isinstance(body, Mapping) else None
    size = len(items) if isinstance(items, list) else 0
    return await _compute(size, lambda: basket.read_basket(body, visible, api.settings.max_basket))


RequestedContract = Annotated[Contract, Depends(find_contract)]
RequestedBasket = Annotated[Basket, Depends(read_basket)]


def _reject_repeated_parameters(request: Request) -> None:
    """Of two values one would be used and the other silently dropped."""
    given = Counter(name for name, _ in request.query_params.multi_items())
    if repeated := sorted(name[:50] for name, times in given.items() if times > 1):
        raise ApiError(400, "invalid", f"{', '.join(repeated[:5])}: is given more than once — send each parameter once")


async def _compute(items: int, work: Callable[[], T]) -> T:
    """Do work that grows with the basket; for a large one in a thread, so that nobody else waits for it."""
    return work() if items <= _MAX_INLINE_ITEMS else await asyncio.to_thread(work)


@router.head("/nomenclature", include_in_schema=False)
@router.get("/nomenclature", **schemas.NOMENCLATURE)
async def nomenclature(request: Request, api: Api, responses: Responses, contract: RequestedContract) -> Response:
    """Every item of a contract. The response may be cached for as long as Cache-Control says."""
    own, default = contract.cache_lifetime_seconds, int(api.settings.cache_lifetime)
    lifetime = default if own is None else own
    return conditional_response(request, responses.nomenclature(contract), f"private, max-age={lifetime}")


@router.head("/eta", include_in_schema=False)
@router.get("/eta", **schemas.ETA)
async def eta(request: Request, api: Api, responses: Responses, contract: RequestedContract) -> Response:
    """The turnaround of every item of a contract. Revalidate it with each use; an unchanged list costs a 304."""
    return conditional_response(request, responses.eta(contract, api.current_catalogue.now()), "private, no-cache")


@router.post("/questionnaire", **schemas.QUESTIONNAIRE)
async def read_questionnaire(request: Request, responses: Responses, requested: RequestedBasket) -> Response:
    """The questions of a whole basket."""
    items = [line.item for line in requested.lines]
    return await _compute(
        len(items), lambda: json_response(request, questionnaire.build_questionnaire(responses.catalogue, items).as_json())
    )


@router.post("/preanalytics", **schemas.PREANALYTICS)
async def read_preanalytics(request: Request, api: Api, responses: Responses, requested: RequestedBasket) -> Response:
    """The tubes of a whole basket."""
    size = len(requested.lines)
    plan = await _compute(size, lambda: preanalytics.calculate(responses.catalogue, requested.lines))
    with api.outages.report_outage("labels", requested.contract.code):
        labels = await api.labels.labels(requested, plan.tubes, responses.catalogue.version)
    first, second = [each.first for each in labels], [each.second for each in labels]
    as_json = partial(plan.as_json, first, include_transport=requested.include_transport_containers, second_labels=second)
    return await _compute(size, lambda: json_response(request, as_json()))
