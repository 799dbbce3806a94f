"""The wheel and the sdist are whole: built without a network, installed apart from this checkout, and used as the docs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab_agent.shared.shipped_files import SHIPPED_FOLDERS, shipped_files_folder
from tests.harness.paths import ROOT
from tools.version import RELEASE, build_version

INIT = """init --no-ask --base-url https://exchange.example/api --lab-codes-url https://codes.example --laboratory our-guid
  --second-labels-system https://codes.example/second --grant password --auth-url https://auth.example --client-id client
  --username login --password secret --contract C-100 --contract C-200"""


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "LAB_"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Installation:
    """The wheel in an environment of its own, the sdist that it was built from, and an empty working folder."""

    sdist: Path
    purelib: Path
    programs: Path
    work: Path

    def lab_agent(self, words: str) -> str:
        return run(self.programs / "lab-agent", *words.split(), cwd=self.work)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("wheel")
    sdist = _build(folder, ROOT, "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    wheel = _build(folder, folder / sdist.name.removesuffix(".tar.gz"), "wheel")
    venv.create(folder / "env", with_pip=False)
    purelib = folder / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    _show_dependencies(purelib, folder / "dependencies")
    install = ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    run(folder / "env" / "bin" / "python", *install, cwd=folder)
    (folder / "work").mkdir()
    return Installation(sdist, purelib, folder / "env" / "bin", folder / "work")


def _build(folder: Path, source: Path, kind: str) -> Path:
    """Calls the build backend as a frontend does without isolation."""
    code = f"import hatchling.build as b, sys; print(b.build_{kind}(sys.argv[1]))"
    return folder / run(sys.executable, "-c", code, folder, cwd=source).splitlines()[-1]


def _show_dependencies(purelib: Path, shown: Path) -> None:
    """Lets the environment see the packages of this one, but for this project: it is installed here from the checkout."""
    shown.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(("lab_", "_lab_", "_editable", "__editable__")) and each.suffix != ".pth":
            (shown / each.name).symlink_to(each)
    (purelib / "dependencies.pth").write_text(f"{shown}\n")


@pytest.mark.slow
def test_version_names_release_and_commit(installation: Installation) -> None:
    """Also of a wheel that was built from the source archive, where there is no repository."""
    commit = run("git", "rev-parse", "--short=10", "HEAD", cwd=ROOT).strip()
    version = installation.lab_agent("--version").strip()
    assert re.fullmatch(rf"{re.escape(RELEASE)}\+\d{{14}}\.g{commit}(\.changed\.d\w{{8}})?", version)


def test_every_build_is_another_and_later_version(tmp_path: Path) -> None:
    built = [build_version(tmp_path)]
    git = ("git", "-c", "user.name=Somebody", "-c", "user.email=somebody@lab.example", "-c", "init.defaultBranch=main")
    run(*git, "init", "--quiet", cwd=tmp_path)
    for day in ("2026-01-31T23:30:00-01:00", "2026-02-01T02:00:00+00:00"):  # the second is later, in UTC as well
        (tmp_path / "file").write_text(day)
        run(*git, "add", "file", cwd=tmp_path)
        run("env", f"GIT_COMMITTER_DATE={day}", *git, "commit", "--quiet", "--message", "Change", cwd=tmp_path)
        built.append(build_version(tmp_path))
        for change in ("one", "another"):
            (tmp_path / "file").write_text(change)
            built.append(build_version(tmp_path))
    assert built[0] == RELEASE
    assert [each.split("+")[1][:15] for each in built[1:]] == ["20260201003000."] * 3 + ["20260201020000."] * 3
    assert len(set(built)) == len(built)


def test_build_without_repository_is_told_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_BUILD", "20260201003000.g0123456789")
    assert build_version(tmp_path) == f"{RELEASE}+20260201003000.g0123456789"
    (newest, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest == RELEASE
    assert shipped_files_folder() == ROOT, "a checkout finds its own files"


@pytest.mark.slow
def test_wheel_and_sdist_have_all_files(installation: Installation) -> None:
    share = installation.purelib / "lab_agent" / "share"
    assert Path(installation.lab_agent("files").strip()) == share, "the installed program is the wheel's"
    tracked = run("git", "ls-files", *SHIPPED_FOLDERS, cwd=ROOT).split()
    assert {each.partition("/")[0] for each in tracked} == {each.partition("/")[0] for each in SHIPPED_FOLDERS}
    with tarfile.open(installation.sdist) as archive:
        packed = {member.partition("/")[2] for member in archive.getnames()}
    assert set(tracked) <= packed
    assert [each for each in tracked if not (share / each).is_file()] == []


@pytest.mark.slow
def test_documented_first_steps_work(installation: Installation) -> None:
    """README: init, db upgrade, check. What the settings name is there."""
    installation.lab_agent(INIT)
    installation.lab_agent("db upgrade --config lab-agent.toml")
    assert "WRONG" not in installation.lab_agent("check --offline --config lab-agent.toml")
    settings = tomllib.loads((installation.work / "lab-agent.toml").read_text())
    named = [settings["api"]["catalogue"], settings["results"]["mappings"], *settings["lis"]["folder"].values()]
    assert [name for name in named if not (installation.work / name).exists()] == []
