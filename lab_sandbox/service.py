"""The parts of one running service, made from its configuration in one place."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx

from lab_sandbox.accounts import Accounts
from lab_sandbox.config import SandboxConfig
from lab_sandbox.faults.desk import FaultDesk
from lab_sandbox.faults.rule import FaultPlan, load_faults
from lab_sandbox.forward import Forwarder
from lab_sandbox.grants import Grants
from lab_sandbox.offers import Offers
from lab_sandbox.order import Orders
from lab_sandbox.references import Ref
from lab_sandbox.resources import Clock, Resources
from lab_sandbox.shelf import Shelf
from lab_sandbox.tokens import TokenOffice


@dataclass(frozen=True)
class Service:
    """Everything that the routes need."""

    config: SandboxConfig
    shelf: Shelf
    resources: Resources
    orders: Orders
    offers: Offers
    tokens: TokenOffice
    accounts: Accounts
    grants: Grants
    forwarder: Forwarder
    faults: FaultDesk


def utc_now() -> datetime:
    """The time with its offset."""
    return datetime.now(UTC)


def build_service(config: SandboxConfig, clock: Clock = utc_now, transport: httpx.AsyncBaseTransport | None = None) -> Service:
    """Opens the shelf, puts the contracts on it and connects the parts; `transport` stands in for the laboratories' network."""
    shelf = Shelf(Path(config.data) if config.data else None, config.rules.history_limit)
    resources = Resources(shelf, config, clock)
    _seed_contracts(resources, config)
    offers = Offers(config)
    tokens = TokenOffice(config.tokens, clock)
    accounts = Accounts(config, tokens)
    plan = load_faults(Path(config.faults)) if config.faults else FaultPlan()
    return Service(
        config=config,
        shelf=shelf,
        resources=resources,
        orders=Orders(resources, shelf, config, offers),
        offers=offers,
        tokens=tokens,
        accounts=accounts,
        grants=Grants(accounts, tokens),
        forwarder=Forwarder(config, transport),
        faults=FaultDesk(plan),
    )


def _seed_contracts(resources: Resources, config: SandboxConfig) -> None:
    """Each contract as a resource that both sides may read; its fields beyond the identifier are not shown in the interface."""
    for contract in config.contracts:
        owner = config.counterparty(contract.partner)
        if owner is None or resources.peek(Ref("Contract", contract.resource_id())):
            continue
        body = {"status": "executed", "identifier": [{"system": config.lab_system("contract"), "value": contract.code}]}
        grants = {("read", contract.laboratory), ("read", contract.partner)}
        resources.create("Contract", body, owner, grants, contract.resource_id())
