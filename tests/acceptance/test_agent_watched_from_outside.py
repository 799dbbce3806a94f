"""A real agent that is stopped, stands still or is killed: `check` and `status` say which, since when, and what to do."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass
from typing import Any

import pytest

from lab_sandbox.demo.processes import program_path
from tests.harness.clock import wait_until
from tests.harness.installation import ProcessHarness


@dataclass
class Said:
    """What a command said of the agent."""

    code: int
    told: dict[str, Any]
    workers: list[Any]


async def ask(harness: ProcessHarness, *words: str) -> Said:
    command = (program_path("lab-agent"), *words, "--json", "--config", str(harness.workspace.agent_settings))
    process = await asyncio.create_subprocess_exec(
        *command, cwd=harness.workspace.folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode in {0, 1, 2}, err.decode()
    said = json.loads(out)
    operation = said.get("operation", said)
    conditions = said["conditions"] if "operation" in said else operation["conditions"]
    about_agent = {each["condition"]: each for each in conditions if each["condition"].startswith("agent.")}
    return Said(process.returncode, about_agent, operation["workers"])


async def wait_until_told(harness: ProcessHarness, condition: str | None, *, living: bool) -> Said:
    said: list[Said] = []

    async def told() -> bool:
        said.append(await ask(harness, "status"))
        return bool(said[-1].workers) is living and (condition is None or condition in said[-1].told)

    await wait_until(told, f"{condition or 'a worker that lives'}")
    return said[-1]


@pytest.mark.proof
async def test_stopped_frozen_and_killed_agent_are_told_apart(harness: ProcessHarness) -> None:
    settings = harness.workspace.agent_settings
    settings.write_text(settings.read_text() + "\n[monitoring]\nheartbeat_interval = 1\n")
    agent = await harness.start_agent()
    assert (await wait_until_told(harness, None, living=True)).told == {}

    agent.process.send_signal(signal.SIGSTOP)
    frozen = await wait_until_told(harness, "agent.frozen", living=False)
    agent.process.send_signal(signal.SIGCONT)
    assert (frozen.code, set(frozen.told)) == (2, {"agent.frozen"})
    assert frozen.told["agent.frozen"]["command"] == "systemctl restart lab-agent"
    went_on = await wait_until_told(harness, "agent.stood_still", living=True)
    assert (went_on.code, set(went_on.told)) == (0, {"agent.stood_still"})
    assert went_on.told["agent.stood_still"]["since"] < went_on.workers[0]["stalled_at"]

    assert await agent.stop() == 0
    stopped = await ask(harness, "check")
    assert stopped.code == 2
    assert "SIGTERM" in stopped.told["agent.not_running"]["cause"]

    killed = await harness.start_agent()
    await wait_until_told(harness, None, living=True)
    killed.process.kill()
    gone = await wait_until_told(harness, "agent.not_running", living=False)
    assert "SIGTERM" not in gone.told["agent.not_running"]["cause"]
