"""The account of a clinic at a stage: complete, and never one where real patients are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_sandbox.config import SandboxConfig
from lab_sandbox.partner.account_file import read_account, sandbox_account
from lab_sandbox.partner.errors import PartnerError

FIELDS = {
    "auth_url": "https://login.stage.example/",
    "login": "clinic",
    "password": "p",
    "client_id": "c",
    "client_secret": "s",
    "guid": "g",
    "laboratory": "l",
    "contract": "C-100",
    "lab_codes_url": "https://codes.example",
    "second_labels_system": "https://codes.example/second",
}


def write(folder: Path, base_url: str, **more: str) -> Path:
    lines = [f"{name} = {value!r}" for name, value in {"base_url": base_url, **FIELDS, **more}.items()]
    file = folder / "clinic.toml"
    file.write_text("\n".join(lines))
    return file


def test_account_is_read_of_a_test_environment_only(tmp_path: Path) -> None:
    file = write(tmp_path, "https://stage.example/api")
    file.write_text(f"{file.read_text()}\ntest_environment = true\n")
    account = read_account(file)
    assert (account.base_url, account.auth_url) == ("https://stage.example/api/", "https://login.stage.example")
    with pytest.raises(PartnerError, match="set test_environment = true"):
        read_account(write(tmp_path, "https://production.example/"))
    assert read_account(write(tmp_path, "http://127.0.0.1:8480")).base_url == "http://127.0.0.1:8480/"
    with pytest.raises(PartnerError, match=r"clinic\.toml: pasword: extra"):
        read_account(write(tmp_path, "http://127.0.0.1/", pasword="x"))


def test_account_of_the_sandbox_is_that_of_its_contract() -> None:
    assert sandbox_account(SandboxConfig(), "C-200").contract == "C-200"
    with pytest.raises(PartnerError, match="no contract C-300, only C-100, C-200"):
        sandbox_account(SandboxConfig(), "C-300")
