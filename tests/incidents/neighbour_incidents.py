"""What goes wrong at the laboratory systems and at the laboratory's API."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx

from lab_agent.conditions.ids import ConditionId
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory, wait_for


@incident(ConditionId.LIS_UNAVAILABLE, "folder")
def folder_of_results_is_gone(lab: Laboratory) -> Iterator[None]:
    away = lab.results.rename(lab.results.with_name("away"))
    yield
    away.rename(lab.results)


@incident(ConditionId.LIS_UNAVAILABLE, "folder", affected=["1 order to hand over"])  # covers jobs.lis_unavailable
def folder_of_orders_is_gone(lab: Laboratory) -> Iterator[None]:
    away = lab.orders.rename(lab.orders.with_name("away"))
    lab.place_order()
    yield
    away.rename(lab.orders)


@incident(ConditionId.LIS_NOT_LOADED, "folder", affected=["1 order to hand over"])
def adapter_is_not_loaded(lab: Laboratory) -> Iterator[None]:
    lab.set("lis.folder", settel=1)
    lab.restart_agent()
    lab.place_order()
    yield
    lab.replace_setting("settel = 1\n", "")
    lab.restart_agent()


@incident(ConditionId.LIS_REMOVED, "folder", affected=["lines without a result"])
def table_of_a_laboratory_system_is_removed(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.wait_until_logged("order_handed_over")
    lab.replace_setting("[lis.folder]", '[lis.other]\nadapter = "folder"')
    lab.replace_setting('default = "folder"', 'default = "other"')
    lab.restart_agent()
    yield
    lab.replace_setting('[lis.other]\nadapter = "folder"', "[lis.folder]")
    lab.replace_setting('default = "other"', 'default = "folder"')
    lab.restart_agent()


@incident(ConditionId.LIS_PAUSED, "folder", affected=["1 order to hand over"], without=["log"], alone=True)
def laboratory_system_is_paused(lab: Laboratory) -> Iterator[None]:
    """By the command, beside the agent as it runs: the log that has it is the one of the command."""
    lab.run("adapter", "pause", "folder", "--reason", "a new server").check_returncode()
    lab.place_order()
    yield
    lab.run("adapter", "resume", "folder", "--reason", "it runs").check_returncode()


def change_catalogue(lab: Laboratory, folder: str, name: str) -> Path:
    """Make a catalogue in this folder of the laboratory that differs by the name of a contract."""
    target = lab.workspace.folder / folder
    shutil.copytree(ROOT / "config" / "catalogue", target, dirs_exist_ok=True)
    (target / "contracts.csv").write_text(f"contract,name\nC-100,{name}\nC-200,B\n", encoding="utf-8")
    return target


@incident(ConditionId.CATALOGUE_REPLACED, alone=True)
def folder_replaces_the_catalogue(lab: Laboratory) -> Iterator[None]:
    folder = change_catalogue(lab, "config/catalogue", "Changed")
    lab.reload()
    yield
    lab.run("catalogue", "import", str(folder), "--yes").check_returncode()


@incident(ConditionId.CATALOGUE_FOLDER_UNUSED, alone=True)
def changed_folder_has_no_effect(lab: Laboratory) -> Iterator[None]:
    lab.run("catalogue", "import", str(change_catalogue(lab, "own", "Ours")), "--yes").check_returncode()
    lab.reload()
    yield
    lab.run("catalogue", "import", str(lab.workspace.folder / "config" / "catalogue"), "--yes").check_returncode()


@incident(ConditionId.CATALOGUE_SAMPLE, alone=True)
def sample_is_in_force(lab: Laboratory) -> Iterator[None]:
    lab.run("catalogue", "import", str(change_catalogue(lab, "own", "Ours")), "--yes").check_returncode()
    lab.set("status", environment="production")
    lab.restart_agent()
    yield
    lab.set("status", environment="stage")
    lab.restart_agent()


@incident(ConditionId.API_NOT_ANSWERING)
def api_is_stopped(lab: Laboratory) -> Iterator[None]:
    lab.stop("api")
    yield
    lab.start_api()


@incident(ConditionId.API_NOT_ANSWERING)
def api_is_frozen(lab: Laboratory) -> Iterator[None]:
    lab.freeze("api")
    yield
    lab.thaw("api")


@incident(ConditionId.API_NOT_PUBLIC)
def api_does_not_answer_at_its_public_address(lab: Laboratory) -> Iterator[None]:
    # An earlier incident may have stopped the API altogether, which is this one, too.
    wait_for(lambda: not any(each.condition is ConditionId.API_NOT_PUBLIC for each in lab.alerts()[0]), "it answers there")
    lab.set("api", public_url="http://127.0.0.1:1")
    lab.restart_agent()
    yield
    lab.set("api", public_url=lab.workspace.api_url)
    lab.restart_agent()


@incident(ConditionId.API_CALLERS_REFUSED, "wrong_credentials", affected=["requests"], ends=False)
def caller_uses_a_wrong_token(lab: Laboratory) -> Iterator[None]:
    for _ in range(30):
        answer = httpx.get(
            f"{lab.workspace.api_url}/nomenclature",
            headers={"Authorization": "Bearer wrong"},
            params={"contract": "C-100"},
            timeout=DEADLINE,
        )
        assert answer.status_code == 401
    yield
