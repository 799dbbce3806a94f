"""The page on connecting a laboratory system is true: its message, tried by its commands, gives the output that it shows."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lab_agent.cli.app import app
from lab_agent.lis.folder import FolderSettings
from lab_agent.lis.hl7v2 import Hl7v2Settings
from tests.harness.paths import ROOT

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "connect-a-lis.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def try_captured(folder: Path, *more: str, adapter: str = "hl7v2", answers: str = "") -> Result:
    files = ("--map", str(folder / ("lis.toml" if adapter == "hl7v2" else f"{adapter}.toml")), "--tables", str(folder / "tables"))
    return CliRunner().invoke(app, ["adapter", adapter, "try", str(folder / "captured"), *files, *more], input=answers)


def shown(result: Result) -> str:
    """The output with the place of the files as the page has it."""
    return re.sub(r"/\S*/((?:lis|folder)\.toml|codes\.csv)", r"\1", result.output)


def test_worked_hour_gives_what_the_page_shows(tmp_path: Path) -> None:
    (message,) = blocks("hl7")
    (tmp_path / "captured").mkdir()
    (tmp_path / "captured" / "first.hl7").write_text(message, encoding="utf-8")
    first_segment, map_lines, setting_lines, code_rows, meaning, values = blocks("text")[:6]
    zone = ("--set", "time_zone=Europe/Berlin", "--write")

    first = try_captured(tmp_path)
    assert first.exit_code == 1
    for block in (first_segment, map_lines, setting_lines):
        assert block in shown(first)

    assert try_captured(tmp_path, *zone, answers="y\n").exit_code == 1
    second = try_captured(tmp_path, *zone, answers="2823-3\n5196-1\ny\n")
    assert code_rows in shown(second)

    last = try_captured(tmp_path, *zone[:2])
    assert last.exit_code == 3, last.output  # the unit has no code
    assert meaning in last.output
    assert values in last.output


def test_first_look_at_csv_needs_no_settings(tmp_path: Path) -> None:
    """By the command and the settings of the page, up to a value that would be delivered."""
    (file,) = blocks("csv")
    (tmp_path / "captured").mkdir()
    (tmp_path / "captured" / "first.csv").write_text(file, encoding="cp1252")
    (command,) = [line for line in PAGE.splitlines() if "folder try captured --map" in line]
    given = command.split("--tables tables ")[1].split()
    no_columns, value = blocks("text")[6:]

    first = try_captured(tmp_path, *given, adapter="folder")
    assert first.exit_code == 1
    assert no_columns in shown(first)

    named = tomllib.loads(blocks("toml")[1])["lis"]["folder"]["csv"]
    asked = [named["columns"][name] for name in re.findall(r"^    csv\.columns\.(\w+): ", first.output, flags=re.MULTILINE)]
    answers = "\n".join([*asked, "y", named["code_system"], "y", "2823-3", "y", ""])
    written = try_captured(tmp_path, *given, "--write", adapter="folder", answers=answers)
    assert written.exit_code == 3, written.output
    last = try_captured(tmp_path, *given, adapter="folder")
    assert last.exit_code == 3, last.output
    assert value in last.output


def test_settings_of_the_page_are_valid() -> None:
    hl7, files = (tomllib.loads(block)["lis"] for block in blocks("toml"))
    assert Hl7v2Settings.model_validate({**hl7["hl7v2"], "mapping": None}).duplicates == "msh10"
    columns = FolderSettings.model_validate(files["folder"]).csv
    assert columns is not None
    (header,) = blocks("csv")
    assert {*header.splitlines()[0].split(";")} >= set(files["folder"]["csv"]["columns"].values())
