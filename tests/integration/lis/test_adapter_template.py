"""`lab-agent adapter new`: the project installs in a fresh environment, offline, and passes the contract suite there."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from lab_agent.lis.adapter_template import create_project
from lab_agent.lis.testing import AdapterContract
from lab_agent.shared.errors import SettingsError
from tests.harness.paths import ROOT


def run(*command: object, cwd: Path) -> str:
    """Run a command as a person would in a shell that knows nothing of these tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "LAB_"))}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A fresh environment that finds the packages of this one, and installs into itself."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    ours = {sysconfig.get_path("purelib"), str(ROOT)}
    (site / "this-environment.pth").write_text("\n".join(sorted(ours)) + "\n", encoding="utf-8")
    return python


@pytest.mark.slow
def test_new_project_installs_and_passes_contract_suite(tmp_path: Path, python: Path) -> None:
    files = create_project("my-lis", tmp_path)
    assert not any("«" in path.read_text(encoding="utf-8") for path in files)
    where = tmp_path / "my-lis"
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    run(python, "-m", "pip", "install", "-q", *offline, ".", cwd=where)
    found = run(
        python,
        "-c",
        "from lab_agent.lis.registry import load_adapters; import pathlib\n"
        "made = load_adapters({'my-lis': {'url': 'http://127.0.0.1:9'}}, 'my-lis')\n"
        "(status,) = made.statuses; print(status.is_loaded, status.source, made.get())",
        cwd=tmp_path,
    )
    assert found.startswith("True lab-adapter-my-lis"), found
    tests = sum(1 for name in dir(AdapterContract) if name.startswith("test_"))
    said = run(python, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", cwd=where)
    assert f"{tests} passed" in said


@pytest.mark.parametrize("name", ["", "My-Lis", "../away", "1lis", "a--b", "class", "a b", "x" * 41, "lis/", "there"])
def test_new_project_invalid_or_existing_name_rejected(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(SettingsError):
        create_project(name, tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["there"]
