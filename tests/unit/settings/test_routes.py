"""Routes of lines to laboratory systems: what fits, what contradicts, and what the catalogue does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_agent.settings.groups import LisRouteSettings
from lab_agent.settings.root import load_settings
from tests.unit.settings.test_sources import VALID, problems, written

SYSTEMS = VALID + '[lis.micro]\nadapter = "folder"\norders = "cultures"\n'


def route(**keys: object) -> str:
    lines = (f"{key} = {value!r}" for key, value in {"adapter": "micro", **keys}.items())
    return "[[lis.routes]]\n" + "\n".join(lines).replace("'", '"') + "\n"


def test_route_fits_contract_and_group_or_item() -> None:
    for keys, fits in (
        *(({"contract": "C-1"}, True), ({"contract": "C-2"}, False), ({"items": ("010",)}, True)),
        *(({"groups": ("Cultures",)}, True), ({"groups": ("Other",), "items": ("010",)}, True)),
        *(({"groups": ("Other",)}, False), ({"contract": "C-1", "items": ("011",)}, False)),
    ):
        assert LisRouteSettings(adapter="micro", **keys).fits("C-1", "010", "Cultures") is fits, keys  # type: ignore[arg-type]


def test_routes_are_read(tmp_path: Path) -> None:
    """What holds for one contract comes first, what holds for the others after it: both may name one item."""
    text = SYSTEMS + route(contract="C-1", groups=["Cultures"], items=["1"]) + route(items=["1", "2"], adapter="folder")
    assert [each.adapter for each in load_settings(written(tmp_path, text), {}).lis.routes] == ["micro", "folder"]


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        (route(items=["1"], adapter="micr"), "lis.routes.0.adapter", "did you mean 'micro'?"),
        (route(items=["1"], contract="C1"), "lis.routes.0.contract", "did you mean 'C-1'?"),
        (route(), "lis.routes.0", "names no contract, group or item"),
        (route(items=["1"]) + route(items=["2", "1"], adapter="folder"), "lis.routes.1.items", "lis.routes.0 takes it first"),
        (route(contract="C-1") + route(contract="C-1", groups=["G"]), "lis.routes.1", "is never reached"),
        (route(items=["", "1"]), "lis.routes.0.items", "'' is empty or has spaces"),
        (SYSTEMS.replace(VALID, "").replace("micro", "third"), "lis.third.orders", "is that of [lis.micro] too"),
    ],
)
def test_contradicting_routes_are_rejected(tmp_path: Path, text: str, where: str, says: str) -> None:
    found = problems(written(tmp_path, SYSTEMS + text))
    assert list(found) == [where]
    assert says in found[where]


@pytest.mark.parametrize("key", ["done", "failed"])
def test_taken_results_of_one_folder_are_not_anothers_new_ones(tmp_path: Path, key: str) -> None:
    text = f'[lis.second]\nadapter = "folder"\norders = "o2"\nresults = "r2"\n{key} = "r3/"\n'
    third = '[lis.third]\nadapter = "folder"\norders = "o3"\nresults = "r3"\n'
    assert problems(written(tmp_path, VALID + text + third)).keys() == {f"lis.second.{key}"}
    beneath = third.replace("r3", "r2/done")
    text = text.replace(f'{key} = "r3/"\n', "")
    assert problems(written(tmp_path, VALID + text + beneath)).keys() == {"lis.second.done"}
