"""What goes wrong at the laboratory systems and at the laboratory's API."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx

from lab_agent.shared.conditions.model import ConditionId
from tests.harness.clock import DEADLINE
from tests.harness.paths import ROOT
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory, wait_for

ONE_TO_HAND_OVER = {"affected": ["1 order to hand over"]}


@incident(ConditionId.LIS_UNAVAILABLE, "folder")
def folder_of_results_is_gone(lab: Laboratory) -> Iterator[None]:
    away = lab.results.rename(lab.results.with_name("away"))
    yield
    away.rename(lab.results)


@incident(ConditionId.LIS_UNAVAILABLE, "folder", **ONE_TO_HAND_OVER)  # covers jobs.lis_unavailable
def folder_of_orders_is_gone(lab: Laboratory) -> Iterator[None]:
    away = lab.orders.rename(lab.orders.with_name("away"))
    lab.place_order()
    yield
    away.rename(lab.orders)


@incident(ConditionId.LIS_NOT_LOADED, "folder", **ONE_TO_HAND_OVER)
def adapter_is_not_loaded(lab: Laboratory) -> Iterator[None]:
    lab.change_setting("lis.folder", settel=1)
    lab.place_order()
    yield
    lab.replace_setting("settel = 1\n", "")
    lab.restart_agent()


@incident(ConditionId.LIS_REMOVED, "folder", affected=["lines without a result"])
def table_of_a_laboratory_system_is_removed(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.wait_until_logged("order_handed_over")
    changes = (("[lis.folder]", '[lis.other]\nadapter = "folder"'), ('default = "folder"', 'default = "other"'))
    for former, other in changes:
        lab.replace_setting(former, other)
    lab.restart_agent()
    yield
    for former, other in changes:
        lab.replace_setting(other, former)
    lab.restart_agent()


@incident(ConditionId.LIS_PAUSED, "folder", **ONE_TO_HAND_OVER, without=["log"], alone=True)
def laboratory_system_is_paused(lab: Laboratory) -> Iterator[None]:
    """By the command, beside the agent as it runs: the log that has it is the one of the command."""
    lab.run("adapter", "pause", "folder", "--reason", "a new server").check_returncode()
    lab.place_order()
    yield
    lab.run("adapter", "resume", "folder", "--reason", "it runs").check_returncode()


def change_catalogue(lab: Laboratory, folder: str) -> Path:
    """Make a catalogue in this folder of the laboratory that differs by the name of a contract."""
    target = lab.workspace.folder / folder
    shutil.copytree(ROOT / "config" / "catalogue", target, dirs_exist_ok=True)
    (target / "contracts.csv").write_text("contract,name\nC-100,Ours\nC-200,B\n", encoding="utf-8")
    return target


def import_catalogue(lab: Laboratory, folder: Path) -> None:
    lab.run("catalogue", "import", str(folder), "--yes").check_returncode()


@incident(ConditionId.CATALOGUE_REPLACED, alone=True)
def folder_replaces_the_catalogue(lab: Laboratory) -> Iterator[None]:
    folder = change_catalogue(lab, "config/catalogue")
    lab.reload()
    yield
    import_catalogue(lab, folder)


@incident(ConditionId.CATALOGUE_FOLDER_UNUSED, alone=True)
def changed_folder_has_no_effect(lab: Laboratory) -> Iterator[None]:
    import_catalogue(lab, change_catalogue(lab, "own"))
    lab.reload()
    yield
    import_catalogue(lab, lab.workspace.folder / "config" / "catalogue")


@incident(ConditionId.CATALOGUE_SAMPLE, alone=True)
def sample_is_in_force(lab: Laboratory) -> Iterator[None]:
    import_catalogue(lab, change_catalogue(lab, "own"))
    lab.change_setting("status", environment="production")
    yield
    lab.change_setting("status", environment="stage")


@incident(ConditionId.API_NOT_ANSWERING)
def api_is_stopped(lab: Laboratory) -> Iterator[None]:
    lab.stop("api")
    yield
    lab.start("api")


@incident(ConditionId.API_NOT_ANSWERING)
def api_is_frozen(lab: Laboratory) -> Iterator[None]:
    lab.freeze("api")
    yield
    lab.thaw("api")


@incident(ConditionId.API_NOT_PUBLIC)
def api_does_not_answer_at_its_public_address(lab: Laboratory) -> Iterator[None]:
    # An earlier incident may have stopped the API altogether, which is this one, too.
    wait_for(lambda: not any(each.condition is ConditionId.API_NOT_PUBLIC for each in lab.alerts()[0]), "it answers there")
    lab.change_setting("api", public_url="http://127.0.0.1:1")
    yield
    lab.change_setting("api", public_url=lab.workspace.api_url)


@incident(ConditionId.API_CALLERS_REFUSED, "wrong_credentials", affected=["requests"], ends=False)
def caller_uses_a_wrong_token(lab: Laboratory) -> Iterator[None]:
    address, wrong = f"{lab.workspace.api_url}/nomenclature?contract=C-100", {"Authorization": "Bearer wrong"}
    for _ in range(30):
        assert httpx.get(address, headers=wrong, timeout=DEADLINE).status_code == 401
    yield
