"""What becomes of an adapter whose files are read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, model_validator

from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.reloading import AdapterReloader, ReloadOutcome
from lab_agent.shared.errors import LisUnavailable


class FileSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    file: Path
    text: str = ""

    @model_validator(mode="after")
    def _read(self) -> FileSettings:
        text = self.file.read_text()
        if text == "invalid":
            raise ValueError("the file is invalid")
        if text == "odd":
            raise KeyError("secret")
        self.text = text
        return self


class Plain:
    Settings: ClassVar[type[BaseModel]] = FileSettings
    idempotent: ClassVar[bool] = False


class Reloadable(Plain):
    texts: ClassVar[list[str]] = []

    async def reload(self, settings: Any) -> None:
        if settings.text == "unavailable":
            raise LisUnavailable("not now")
        self.texts.append(settings.text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "map"
    path.write_text("first")
    return path


def reloader(adapter: Any, file: Path) -> AdapterReloader:
    table = {"file": str(file)}
    return AdapterReloader("lis", GuardedAdapter(adapter, "lis", timeout=5), table, FileSettings.model_validate(table))


def write(file: Path, text: str) -> None:
    file.write_text(text)


async def test_changed_file_is_taken_over_once(file: Path) -> None:
    adapter = Reloadable()
    one = reloader(adapter, file)
    assert (await one.reload()).outcome is ReloadOutcome.UNCHANGED
    write(file, "second")
    assert (await one.reload()).outcome is ReloadOutcome.RELOADED
    assert (await one.reload()).outcome is ReloadOutcome.UNCHANGED
    assert adapter.texts == ["second"]


@pytest.mark.parametrize(("text", "reason"), [("invalid", "file is invalid"), ("odd", "KeyError"), ("unavailable", "not now")])
async def test_what_is_wrong_leaves_former_file_in_use(file: Path, text: str, reason: str) -> None:
    one = reloader(Reloadable(), file)
    write(file, text)
    result = await one.reload()
    assert result.outcome is ReloadOutcome.INVALID
    assert reason in str(result.reason)
    assert "secret" not in str(result.reason)
    write(file, "first")
    assert (await one.reload()).outcome is ReloadOutcome.UNCHANGED


async def test_adapter_without_reload_needs_restart(file: Path) -> None:
    one = reloader(Plain(), file)
    assert (await one.reload()).outcome is ReloadOutcome.UNCHANGED
    write(file, "second")
    for _ in range(2):
        assert (await one.reload()).outcome is ReloadOutcome.NEEDS_RESTART
