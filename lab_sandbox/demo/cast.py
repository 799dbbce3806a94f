"""Which programs the demo runs, with which settings, and in which order they are brought up."""

from __future__ import annotations

import asyncio

from lab_sandbox.demo.programs import ProcessGroup, Program, RunningProgram, program_path
from lab_sandbox.demo.scenes import HAEMOLYSED_ITEM, STAGED_ITEM
from lab_sandbox.demo.screen import DemoConsole
from lab_sandbox.demo.workplace import Workspace

START_TIMEOUT = 60.0
"""Seconds that a program may take until it is ready."""
STATUS_USER, STATUS_PASSWORD = "demo", "demo-status-password"
"""Whom the status page lets in; known to a journal that ends with the demo."""


async def start_all(processes: ProcessGroup, workspace: Workspace, console: DemoConsole) -> None:
    """Starts everything; returns when all of it is ready."""
    console.heading("Starting the programs")
    early = [await processes.start(_exchange_service_program(workspace))]
    await processes.run_to_end(_database_upgrade_program(workspace), START_TIMEOUT)
    early.append(await processes.start(_lab_api_program(workspace)))
    if workspace.connection.kind == "sql":
        await processes.run_to_end(_staging_tables_program(workspace), START_TIMEOUT)
    await processes.run_to_end(_status_user_program(workspace), START_TIMEOUT, stdin_text=f"{STATUS_PASSWORD}\n")
    late = [await processes.start(one) for one in (_lis_program(workspace), _agent_program(workspace))]
    await asyncio.gather(*(_wait_until_ready(processes, one, console) for one in (*early, *late)))


async def _wait_until_ready(processes: ProcessGroup, running: RunningProgram, console: DemoConsole) -> None:
    await processes.wait_until_ready(running, START_TIMEOUT)
    console.step(f"{running.program.name} is ready")


def _exchange_service_program(workspace: Workspace) -> Program:
    command = (program_path("lab-sandbox"), "run", "--config", str(workspace.service_settings))
    return Program("exchange service", command, f"{workspace.service_url}healthz")


def _lab_api_program(workspace: Workspace) -> Program:
    command = (program_path("lab-api"), "run", "--config", str(workspace.agent_settings))
    return Program("laboratory API", command, f"{workspace.api_url}/readyz")


def _database_upgrade_program(workspace: Workspace) -> Program:
    return Program("journal", (program_path("lab-agent"), "db", "upgrade", "--config", str(workspace.agent_settings)))


def _status_user_program(workspace: Workspace) -> Program:
    command = (
        program_path("lab-agent"),
        "user",
        "add",
        STATUS_USER,
        "--role",
        "admin",
        "--config",
        str(workspace.agent_settings),
    )
    return Program("status page user", command)


def _agent_program(workspace: Workspace) -> Program:
    command = (program_path("lab-agent"), "run", "--config", str(workspace.agent_settings))
    return Program("agent", command, f"{workspace.status_url}/readyz")


def _staging_tables_program(workspace: Workspace) -> Program:
    return Program(
        "staging tables", (program_path("lab-agent"), "adapter", "sql", "ddl", "--config", str(workspace.agent_settings))
    )


def _lis_program(workspace: Workspace) -> Program:
    folders = ("--orders", str(workspace.orders), "--results", str(workspace.results), "--own", str(workspace.lis))
    habits = ("--staged", STAGED_ITEM, "--refused", HAEMOLYSED_ITEM)
    return Program(
        "stand-in LIS", (program_path("lab-sandbox"), "stand-in-lis", *folders, *habits, *workspace.connection.simulator_options)
    )
