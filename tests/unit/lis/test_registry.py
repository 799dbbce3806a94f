"""Loading adapters: whatever is wrong becomes a status with a reason, and nothing is raised."""

import os
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.registry import ENTRY_POINT_GROUP, AdapterRegistry, load_adapters
from lab_agent.shared.errors import LisUnavailable

GOOD = """
from pydantic import BaseModel, ConfigDict, Field

class Adapter:
    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid")
        address: str = "x"
        level: int = 0

    idempotent = True

    def __init__(self, settings, name): ...
    async def start(self, inbox): ...
    async def stop(self): ...
    async def check(self): ...
    async def prepare(self, order): ...
    async def submit(self, order): ...
    async def was_received(self, key): ...
    async def cancel(self, order, lines, reason): ...
    async def collect(self): ...
"""


def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, table: dict[str, Any] | None = None) -> AdapterRegistry:
    """Load a table of the adapter in `source`, and one of the folder adapter beside it."""
    name = f"odd_{abs(hash(source))}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_points = [
        EntryPoint("odd", f"{name}:Adapter", ENTRY_POINT_GROUP),
        EntryPoint("folder", "lab_agent.lis.folder:FolderAdapter", ENTRY_POINT_GROUP),
    ]
    tables = {"odd": table or {}, "main": {"adapter": "folder", "orders": "/o", "results": "/r"}}
    return load_adapters(tables, "main", available=entry_points)


def reason(adapters: AdapterRegistry) -> str:
    odd, folder = adapters.statuses
    assert (odd.name, odd.is_loaded, folder.is_loaded) == ("odd", False, True)
    assert adapters.get(None) is adapters.get("main")
    with pytest.raises(LisUnavailable, match="the adapter odd is not loaded: "):
        adapters.get("odd")
    assert [name for name, _ in adapters.running()] == ["main"]
    return odd.reason or ""


@pytest.mark.parametrize("declared", ["", "    contract_version = 1\n"])
def test_valid_adapter_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str) -> None:
    adapters = load(tmp_path, monkeypatch, GOOD.replace("    idempotent", f"{declared}    idempotent"), {"address": "y"})
    assert [(status.is_loaded, status.reason) for status in adapters.statuses] == [(True, None)] * 2
    assert (adapters.statuses[0].idempotent, adapters.get("odd").idempotent) == (True, True)


@pytest.mark.parametrize(
    ("change", "to", "sentence"),
    [
        ("from pydantic", "import no_such_thing\nfrom pydantic", "ModuleNotFoundError: No module named 'no_such_thing'"),
        ("from pydantic", "raise SystemExit(1)\nfrom pydantic", "SystemExit"),
        ("from pydantic", "def (:\nfrom pydantic", "SyntaxError"),
        ("class Adapter", "class Adaptor", "AttributeError: module"),
        ("class Adapter:", "Adapter = 7\nclass Other:", "does not name a class"),
        ("class Settings(BaseModel)", "class Setings(BaseModel)", "Adapter.Settings is missing"),
        ('extra="forbid"', 'extra="allow"', "Adapter.Settings accepts unknown keys"),
        ("idempotent = True", "", "Adapter.idempotent is missing"),
        ("async def collect(self): ...", "", "Adapter.collect is missing"),
        ("async def submit", "def submit", "Adapter.submit is not async — write async def submit"),
        ("cancel(self, order, lines, reason)", "cancel(self, order)", "Adapter.cancel cannot be called with 3 arguments"),
        ("def __init__(self, settings, name): ...", "def __init__(self, settings, name): raise OSError('x')", "OSError"),
        ("def __init__(self, settings, name): ...", "def __init__(self): ...", "TypeError"),
    ],
)
def test_invalid_adapter_code_gives_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, to: str, sentence: str
) -> None:
    assert sentence in reason(load(tmp_path, monkeypatch, GOOD.replace(change, to)))


def test_all_invalid_settings_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every invalid setting of an adapter is reported by its name, and no value is shown."""
    explanation = reason(load(tmp_path, monkeypatch, GOOD, {"adress": "secret", "level": "secret"}))
    assert "lis.odd.adress: " in explanation
    assert "did you mean 'address'?" in explanation
    assert "lis.odd.level: " in explanation
    assert "secret" not in explanation


def test_unknown_or_ambiguous_adapter_name_is_told() -> None:
    adapters = load_adapters({"fodler": {}, "hl9": {}}, "fodler")
    assert "did you mean 'folder'?" in (adapters.statuses[0].reason or "")
    assert "folder" in (adapters.statuses[1].reason or "")
    with pytest.raises(LisUnavailable, match="no installed package provides an adapter fodler"):
        adapters.get()
    twice = [EntryPoint("x", "a:A", ENTRY_POINT_GROUP), EntryPoint("x", "b:B", ENTRY_POINT_GROUP)]
    (status,) = load_adapters({"x": {}}, "x", available=twice).statuses
    assert "several packages provide an adapter x: a:A, b:B" in (status.reason or "")
    with pytest.raises(LisUnavailable, match=r"there is no table \[lis.foler\] did you mean 'folder'\?"):
        load_adapters({"folder": {"orders": "/o", "results": "/r"}}, "foler").get()


@pytest.mark.parametrize(("hidden", "told"), [(["mine-1.dist-info"], True), (["mine"], False), ([], False)], ids=str)
def test_package_nobody_can_read_is_told(tmp_path: Path, monkeypatch: Any, hidden: list[str], told: bool) -> None:
    """It was installed by root with umask 077, so the agent's user finds no entry points; root itself reads everything."""
    for name in ("mine-1.dist-info", "mine"):
        (tmp_path / name).mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name not in hidden and access(path, mode))
    (status,) = load_adapters({"mine": {}}, "mine").statuses
    assert ("mine-1.dist-info" in (status.reason or "")) is told
    assert (f"chmod -R go+rX {tmp_path}" in (status.reason or "")) is told


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("2", "wrong version: .* version 2 .* newer version of the agent"),
        ("0", "newer version of the adapter"),
        ("'1'", "not a whole number"),
    ],
)
def test_other_contract_version_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, words: str) -> None:
    source = GOOD.replace("    idempotent", f"    contract_version = {declared}\n    idempotent")
    assert re.search(words, reason(load(tmp_path, monkeypatch, source)))
