"""The parts of one running service, made from its configuration in one place."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from lab_sandbox.accounts import Accounts
from lab_sandbox.basket_proxy import BasketProxy
from lab_sandbox.config import SandboxConfig
from lab_sandbox.faults.plan import FaultPlan, FaultScheduler, load_plan
from lab_sandbox.nomenclature_cache import NomenclatureCache
from lab_sandbox.oauth import TokenEndpoint
from lab_sandbox.order_creation import OrderService
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import ResourceStore
from lab_sandbox.resources import Clock, ResourceService
from lab_sandbox.token_store import TokenStore


@dataclass(frozen=True)
class Service:
    """Everything that the routes need."""

    config: SandboxConfig
    store: ResourceStore
    resources: ResourceService
    orders: OrderService
    nomenclature_cache: NomenclatureCache
    tokens: TokenStore
    accounts: Accounts
    token_endpoint: TokenEndpoint
    basket_proxy: BasketProxy
    faults: FaultScheduler


def utc_now() -> datetime:
    """The time with its offset."""
    return datetime.now(UTC)


def build_service(config: SandboxConfig, clock: Clock = utc_now, transport: httpx.AsyncBaseTransport | None = None) -> Service:
    """Opens the shelf, puts the contracts on it and connects the parts; `transport` stands in for the laboratories' network."""
    shelf = ResourceStore(Path(config.data) if config.data else None, config.rules.history_limit)
    resources = ResourceService(shelf, config, clock)
    _seed_contracts(resources, config)
    offers = NomenclatureCache(config)
    tokens = TokenStore(config.tokens, clock)
    accounts = Accounts(config, tokens)
    plan = load_plan(Path(config.faults)) if config.faults else FaultPlan()
    return Service(
        config=config,
        store=shelf,
        resources=resources,
        orders=OrderService(resources, shelf, config, offers),
        nomenclature_cache=offers,
        tokens=tokens,
        accounts=accounts,
        token_endpoint=TokenEndpoint(accounts, tokens),
        basket_proxy=BasketProxy(config, transport),
        faults=FaultScheduler(plan),
    )


def _seed_contracts(resources: ResourceService, config: SandboxConfig) -> None:
    """Each contract as a resource that both sides may read; its fields beyond the identifier are not shown in the interface."""
    for contract in config.contracts:
        owner = config.counterparty(contract.partner)
        if owner is None or resources.find(Ref("Contract", contract.resource_id())):
            continue
        body = {"status": "executed", "identifier": [{"system": config.lab_system("contract"), "value": contract.code}]}
        grants = {("read", contract.laboratory), ("read", contract.partner)}
        resources.create("Contract", body, owner, grants, contract.resource_id())
