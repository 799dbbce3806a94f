"""Which programs the demo runs, with which settings, and in which order they are brought up."""

from __future__ import annotations

import asyncio

from lab_sandbox.demo.programs import Program, Running, Troupe, beside
from lab_sandbox.demo.scenes import HAEMOLYSED, STAGED
from lab_sandbox.demo.screen import Screen
from lab_sandbox.demo.workplace import Workplace

READY = 60.0
"""Seconds that a program may take until it is ready."""
USER, PASSWORD = "demo", "demo-status-password"
"""Whom the status page lets in; known to a journal that ends with the demo."""


async def bring_up(troupe: Troupe, place: Workplace, screen: Screen) -> None:
    """Starts everything; returns when all of it is ready."""
    screen.heading("Starting the programs")
    early = [await troupe.start(_service(place))]
    await troupe.once(_journal(place), READY)
    early.append(await troupe.start(_api(place)))
    if place.way.kind == "sql":
        await troupe.once(_staging_tables(place), READY)
    await troupe.once(_user(place), READY, given=f"{PASSWORD}\n")
    late = [await troupe.start(one) for one in (_lis(place), _agent(place))]
    await asyncio.gather(*(_ready(troupe, one, screen) for one in (*early, *late)))


async def _ready(troupe: Troupe, one: Running, screen: Screen) -> None:
    await troupe.ready(one, READY)
    screen.step(f"{one.program.name} is ready")


def _service(place: Workplace) -> Program:
    command = (beside("lab-sandbox"), "run", "--config", str(place.service_settings))
    return Program("exchange service", command, f"{place.service_url}healthz")


def _api(place: Workplace) -> Program:
    command = (beside("lab-api"), "run", "--config", str(place.agent_settings))
    return Program("laboratory API", command, f"{place.api_url}/readyz")


def _journal(place: Workplace) -> Program:
    return Program("journal", (beside("lab-agent"), "db", "upgrade", "--config", str(place.agent_settings)))


def _user(place: Workplace) -> Program:
    command = (beside("lab-agent"), "user", "add", USER, "--role", "admin", "--config", str(place.agent_settings))
    return Program("status page user", command)


def _agent(place: Workplace) -> Program:
    command = (beside("lab-agent"), "run", "--config", str(place.agent_settings))
    return Program("agent", command, f"{place.status_url}/readyz")


def _staging_tables(place: Workplace) -> Program:
    return Program("staging tables", (beside("lab-agent"), "adapter", "sql", "ddl", "--config", str(place.agent_settings)))


def _lis(place: Workplace) -> Program:
    folders = ("--orders", str(place.orders), "--results", str(place.results), "--own", str(place.lis))
    habits = ("--staged", STAGED, "--refused", HAEMOLYSED)
    return Program("stand-in LIS", (beside("lab-sandbox"), "stand-in-lis", *folders, *habits, *place.way.options))
