"""The folder adapter keeps the contract, by itself and behind the guard."""

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab_agent.lis.folder import FolderAdapter, FolderSettings
from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.laboratory_system import Lis
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import AdapterContract, Bench, LisState


@dataclass
class FolderBench:
    """A LIS that takes each order file as soon as it is looked at."""

    folder: Path
    guarded: bool = False
    taken: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.settings: dict[str, Any] = {name: str(self.folder / name) for name in ("orders", "results")}
        for name in ("orders", "results"):
            (self.folder / name).mkdir()
        self.settings["settle"] = 0

    def adapter(self) -> Lis:
        adapter = FolderAdapter(FolderSettings.model_validate(self.settings), "folder")
        return GuardedAdapter(adapter, "folder", timeout=30) if self.guarded else adapter

    def take(self) -> None:
        for path in (self.folder / "orders").glob("*.json"):
            if path.name.startswith("."):
                continue
            tree = json.loads(path.read_bytes())
            path.unlink()
            if tree.get("kind") == "cancel":
                self.told |= {entry["line"] for entry in tree["lines"]}
            else:
                self.taken.append(tree["key"])

    async def orders(self) -> Sequence[str]:
        self.take()
        return self.taken

    async def cancelled_lines(self) -> Sequence[str]:
        self.take()
        return sorted(self.told)

    async def publish(self, message: LabMessage) -> None:
        path = self.folder / "results" / "result.json"
        if path.exists():
            path = path.with_name(f"result-{secrets.token_hex(4)}.json")
        path.with_suffix(".tmp").write_bytes(dump_message(message))
        os.replace(path.with_suffix(".tmp"), path)  # noqa: PTH105

    async def unacknowledged_count(self) -> int:
        names = [path.name for path in (self.folder / "results").iterdir()]
        return sum(name.endswith(".json") or name.startswith(".claimed") for name in names)

    async def publish_bad(self) -> None:
        (self.folder / "results" / f"bad-{secrets.token_hex(4)}.json").write_bytes(b'{"kind": "report", "status": "finished"}')

    async def bad_results_kept(self) -> int:
        return len(list((self.folder / "results" / "failed").glob("*.json")))

    async def set_state(self, state: LisState) -> None:
        """A share that is not mounted; a folder neither refuses nor answers."""
        if state not in {LisState.WORKING, LisState.UNREACHABLE}:
            raise NotImplementedError
        here, away = (self.folder / "orders", self.folder / "orders-away")
        if state is LisState.UNREACHABLE:
            here.rename(away)
        elif away.exists():
            away.rename(here)

    async def close(self) -> None:
        assert not list((self.folder / "orders").glob(".*.tmp"))


class TestFolder(AdapterContract):
    async def bench(self, folder: Path) -> Bench:
        return FolderBench(folder)


@pytest.mark.slow
class TestGuardedFolder(AdapterContract):
    test_the_class_is_an_adapter = None  # type: ignore[assignment]  # the guard is made by us, not by an entry point

    async def bench(self, folder: Path) -> Bench:
        return FolderBench(folder, guarded=True)
