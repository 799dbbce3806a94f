"""The page for adapter authors is true: its example passes the suite, its JSON is read, its imports and settings exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab_agent.lis.folder import FolderSettings
from lab_agent.lis.folder.settings import ALL_FIELDS, CsvSettings
from lab_agent.lis.lab_messages import AccessionUpdate, LabRejection, LabReport
from lab_agent.lis.registry import ADAPTER_METHODS
from lab_agent.lis.serialization import load_message, load_order
from lab_agent.lis.testing import AdapterContract
from tests.harness.paths import ROOT

PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
def test_docs_example_passes_contract_suite(tmp_path: Path) -> None:
    for block in blocks("python"):
        (tmp_path / block.split("\n", 1)[0].removeprefix("# ")).write_text(block, encoding="utf-8")
    command = ["-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "--rootdir", ".", "."]
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    tests = sum(1 for name in dir(AdapterContract) if name.startswith("test_"))
    assert f"{tests - 2} passed, 2 skipped" in done.stdout, done.stdout + done.stderr


def test_docs_json_examples_load() -> None:
    order, report, rejection, receipt = (block.encode() for block in blocks("json"))
    assert load_order(order).lines
    read = load_message(report)
    assert isinstance(read, LabReport)
    assert str(read.observations[0].value_quantity.value) == "134.0"  # type: ignore[union-attr]
    assert isinstance(load_message(rejection), LabRejection)
    assert isinstance(load_message(receipt), AccessionUpdate)


def test_docs_tables_are_complete() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert set(FolderSettings.model_fields) | set(CsvSettings.model_fields) | set(ALL_FIELDS) <= named
    for method in ADAPTER_METHODS:
        assert f"| `{method}(" in PAGE
    defaults = dict(re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", PAGE, flags=re.MULTILINE))
    fields = {**CsvSettings.model_fields, **FolderSettings.model_fields}
    assert {name: fields[name].default for name in defaults} == {
        name: float(text.replace(",", "")) for name, text in defaults.items()
    }
    assert defaults
