"""The daily flow as real processes: every resource that the agent sends is valid STU3, but for the deviations that are named."""

from __future__ import annotations

import io
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from lab_agent.shared import exact_json
from lab_sandbox.config import load_config
from lab_sandbox.demo.checks import CheckList, LisRecord
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.lis.simulator import local_now
from lab_sandbox.demo.processes import ProcessGroup, start_all
from lab_sandbox.demo.runner import build_account, run_daily_flow
from lab_sandbox.demo.scenario_mapping import MappingScenario
from lab_sandbox.demo.workspace import Workspace, create_workspace
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.order_bundle import LabelSequence
from tests.harness.paths import ROOT
from tests.harness.proof import in_full
from tests.harness.recording_proxy import recording_proxy
from tests.harness.sent_bodies import find_body_violations
from tests.harness.stu3_schema import is_checked

STEP_SECONDS = 120.0
"""How long each step of the laboratory may take."""


@in_full
@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("strict", [True, False], ids=["strict", "plain"])
async def test_every_body_of_the_demo_is_valid_stu3(*, strict: bool) -> None:
    workspace = create_workspace(ROOT / "config", other_ports=True, strict=strict)
    try:
        async with recording_proxy(workspace.service_url) as proxy:
            await run_flow(reached_at(workspace, proxy.url))
    finally:
        shutil.rmtree(workspace.folder, ignore_errors=True)
    found = [f"{method} {path}: {each}" for method, path, body in proxy.sent for each in find_body_violations(method, body)]
    assert found == []
    kinds = Counter(str(exact_json.loads(body).get("resourceType")) for _, path, body in proxy.sent if path.startswith("/fhir/"))
    assert {kind for kind in kinds if is_checked(kind)} == {"Observation", "DiagnosticReport", "Binary", "Task"}


def reached_at(workspace: Workspace, url: str) -> Workspace:
    """The same workspace, with the service behind this address."""
    for file in (workspace.agent_settings, workspace.service_settings):
        own = f'base_url = "{workspace.service_url}"'
        text = file.read_text()
        assert own in text
        file.write_text(text.replace(own, f'base_url = "{url}"'))
    return replace(workspace, service_config=load_config(workspace.service_settings))


async def run_flow(workspace: Workspace) -> None:
    """All that the demo does; every check of the clinic passes."""
    console, check_list = DemoConsole(Console(file=io.StringIO())), CheckList(lambda _check: None)
    async with ProcessGroup(workspace.folder, workspace.logs) as processes:
        await start_all(processes, workspace, console)
        async with open_partner_client(build_account(workspace)) as client:
            clinic = Clinic(client, LabelSequence(), local_now, "bodies")
            await run_daily_flow(clinic, LisRecord(workspace.lis), check_list, console, timeout=STEP_SECONDS)
            await MappingScenario(workspace, client, check_list, console, STEP_SECONDS).run()
    assert [check for check in check_list.checks if not check.ok] == []
