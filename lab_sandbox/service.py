"""The components of one running service, built from its settings."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from lab_sandbox.accounts import Accounts
from lab_sandbox.basket_proxy import BasketProxy
from lab_sandbox.config import SandboxConfig
from lab_sandbox.faults.plan import FaultPlan, FaultScheduler, load_plan
from lab_sandbox.nomenclature_cache import NomenclatureCache
from lab_sandbox.notifications import NotificationSender
from lab_sandbox.oauth import TokenEndpoint
from lab_sandbox.order_creation import OrderService
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import ResourceStore
from lab_sandbox.resources import Clock, ResourceService
from lab_sandbox.search_results import SearchResults
from lab_sandbox.token_store import TokenStore


@dataclass(frozen=True)
class Service:
    """The components that the routes use."""

    config: SandboxConfig
    store: ResourceStore
    resources: ResourceService
    orders: OrderService
    search_results: SearchResults
    nomenclature_cache: NomenclatureCache
    tokens: TokenStore
    accounts: Accounts
    token_endpoint: TokenEndpoint
    basket_proxy: BasketProxy
    notifications: NotificationSender
    faults: FaultScheduler


def utc_now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def build_service(config: SandboxConfig, clock: Clock = utc_now, transport: httpx.AsyncBaseTransport | None = None) -> Service:
    """Opens the store, adds the contracts and builds the components; `transport` replaces the network to the others."""
    store = ResourceStore(Path(config.data) if config.data else None, config.rules.history_limit)
    notifications = NotificationSender(store, config, transport)
    resources = ResourceService(store, config, clock, notifications)
    _seed_contracts(resources, config)
    nomenclature_cache = NomenclatureCache(config)
    tokens = TokenStore(config.tokens, clock)
    accounts = Accounts(config, tokens)
    plan = load_plan(Path(config.faults)) if config.faults else FaultPlan()
    return Service(
        config=config,
        store=store,
        resources=resources,
        orders=OrderService(resources, store, config, nomenclature_cache),
        search_results=SearchResults(store, resources, config),
        nomenclature_cache=nomenclature_cache,
        tokens=tokens,
        accounts=accounts,
        token_endpoint=TokenEndpoint(accounts, tokens),
        basket_proxy=BasketProxy(config, transport),
        notifications=notifications,
        faults=FaultScheduler(plan),
    )


def _seed_contracts(resources: ResourceService, config: SandboxConfig) -> None:
    """Stores each contract as a resource that both parties may read; the interface defines only its identifier."""
    for contract in config.contracts:
        owner = config.counterparty(contract.partner)
        if owner is None or resources.find(Ref("Contract", contract.resource_id())):
            continue
        body = {"status": "executed", "identifier": [{"system": config.lab_system("contract"), "value": contract.code}]}
        grants = {("read", contract.laboratory), ("read", contract.partner)}
        resources.create("Contract", body, owner, grants, contract.resource_id())
