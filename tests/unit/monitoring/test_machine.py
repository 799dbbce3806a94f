"""Probes of the machine, on real files and disks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

import pytest

from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.operations.machine import (
    BackupProbe,
    DiskProbe,
    ListeningAddress,
    PortsProbe,
    SecretFilesProbe,
    first_of_each_disk,
)
from lab_agent.operations.probe_building import list_addresses, list_folders
from lab_agent.settings.secret_files import has_secret, list_secret_files
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.restoration import CREATED_AT_KEY
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore
from tests.harness.results import make_settings

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
OTHER_DISK = Path("/dev/shm")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those of pytest."""
    folder = Path(mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each in folder.iterdir():
        each.unlink()
    folder.rmdir()


# --- disks


async def test_disk_below_reserve_found_once_per_disk(tmp_path: Path) -> None:
    file = tmp_path / "lab.db"
    file.touch()
    everything = os.statvfs(tmp_path)
    reserve = everything.f_blocks * everything.f_frsize + 1
    (finding,) = await DiskProbe(lambda: (file, tmp_path, tmp_path / "missing"), reserve).look()
    assert (finding.condition, finding.subject) == (ConditionId.DISK_LOW, str(tmp_path))
    assert await DiskProbe(lambda: (tmp_path, tmp_path / "missing" / "folder"), 1).look() == ()


@pytest.mark.skipif(not OTHER_DISK.is_dir(), reason="there is no second disk")
def test_each_disk_is_named_by_its_first_folder(tmp_path: Path) -> None:
    if OTHER_DISK.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("the temporary folder is on the same disk")
    assert first_of_each_disk([tmp_path, OTHER_DISK, tmp_path.parent]) == (tmp_path, OTHER_DISK)


# --- files with secrets


@pytest.mark.parametrize(
    ("mode", "folder_mode", "found"), [(0o604, 0o755, 1), (0o640, 0o755, 0), (0o600, 0o755, 0), (0o644, 0o700, 0)]
)
async def test_secret_file_readable_by_others_found(open_folder: Path, mode: int, folder_mode: int, found: int) -> None:
    """A folder that others may not enter protects the file."""
    file = open_folder / "lab-agent.toml"
    file.touch()
    file.chmod(mode)
    os.chmod(open_folder, folder_mode)  # noqa: PTH101
    findings = await SecretFilesProbe(lambda: (file, open_folder / "missing")).look()
    assert [each.subject for each in findings] == [str(file)] * found


@pytest.mark.parametrize(
    ("table", "holds"),
    [
        ({"store": {"encryption_keys": ["x"]}}, True),
        ({"exchange": {"oauth": {"password": "x"}}}, True),
        ({"store": {"url": "postgresql://lab:pass@host/lab"}}, True),
        ({"lis": {"http": {"secret": "x", "url": "http://lis"}}}, True),
        ({"exchange": {"oauth": {"grant": "password", "client_id": "x"}}}, False),
        ({"store": {"url": "postgresql://lab@host/lab"}}, False),
        ({"lis": {"hl7v2": {"orders": {"tls": {"key": "/etc/key.pem"}}}}}, False),
        ({"api": {"token_lifetime": 600.0, "tokens": [{"name": "x", "sha256": "0" * 64}]}}, False),
    ],
)
def test_secrets_in_settings_recognised(table: object, holds: bool) -> None:
    assert has_secret(table) is holds


def test_secret_files_are_settings_and_credentials(tmp_path: Path) -> None:
    config = tmp_path / "lab-agent.toml"
    config.write_text("[store]\nencryption_keys = ['x']\n")
    for name in ("exchange.oauth.password", "certificate.pem"):
        (tmp_path / name).touch()
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert list_secret_files(config, environ) == (config, tmp_path / "exchange.oauth.password")
    config.write_text("[status]\nport = 1\n")
    assert list_secret_files(config, {}) == ()


# --- ports


@pytest.mark.parametrize(
    ("host", "ports", "is_found"),
    [
        ("127.0.0.1", (8481, 8481), True),
        ("0.0.0.0", (8481, 8481), True),
        ("10.0.0.1", (8481, 8481), False),
        ("127.0.0.1", (8481, 8482), False),
        ("127.0.0.1", (0, 0), False),
    ],
)
async def test_equal_ports_found(host: str, ports: tuple[int, int], is_found: bool) -> None:
    named = zip(("status.port", "api.port"), ("127.0.0.1", host), ports, strict=True)
    addresses = [ListeningAddress(setting=setting, host=each, port=port) for setting, each, port in named]
    assert [each.subject for each in await PortsProbe(addresses).look()] == ["api.port, status.port"] * is_found


# --- backups


@pytest.fixture
def store() -> Store:
    return InlineStore()


def probe(store: Store, folder: Path | None, hours: float = 26, unit: str | None = None) -> BackupProbe:
    return BackupProbe(folder, timedelta(hours=hours), VirtualClock(NOW), store, *([unit] if unit else []))


def write_backup(file: Path, age_hours: float) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"x")
    at = (NOW - timedelta(hours=age_hours)).timestamp()
    os.utime(file, (at, at))


@pytest.mark.parametrize(("age_hours", "found"), [(1, 0), (30, 1)])
async def test_backup_older_than_allowed_found(store: Store, tmp_path: Path, age_hours: int, found: int) -> None:
    await make_database_old(store, 1)
    for name, hours in (("today.db", age_hours), ("earlier.db", 400)):
        write_backup(tmp_path / "daily" / name, hours)
    findings = await probe(store, tmp_path).look()
    assert [(each.condition, each.since) for each in findings] == [(ConditionId.BACKUP_OLD, NOW - timedelta(hours=4))] * found


@pytest.mark.parametrize("name", ["", "missing"])
@pytest.mark.parametrize(("age_hours", "found"), [(26, 0), (26.01, 1)])
async def test_first_backup_expected_once_database_is_older(
    store: Store, tmp_path: Path, name: str, age_hours: float, found: int
) -> None:
    """An empty file is no backup; a file that is old says that whatever writes backups does not work."""
    await make_database_old(store, age_hours)
    (tmp_path / "empty.db").touch()
    os.utime(tmp_path, (0, 0))
    findings = await probe(store, tmp_path / name).look()
    assert [each.since for each in findings] == [NOW - timedelta(hours=age_hours - 26)] * found
    assert all(str(tmp_path / name) in each.detail for each in findings)
    write_backup(tmp_path / "old.db", 900)
    assert await probe(store, tmp_path).look()


async def make_database_old(store: Store, hours: float) -> None:
    made = NOW - timedelta(hours=hours)

    def work(uow: UnitOfWork) -> None:
        uow.key_values.set(CREATED_AT_KEY, made.isoformat())

    await store.transact(work)


UNIT = "lab-agent-backup.service"


def fake_systemctl(folder: Path, patch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "systemctl").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "systemctl").chmod(0o755)
    patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("ActiveState=failed\nResult=exit-code\nExecMainStatus=1\nStateChangeTimestamp=@1700000000\n", "exit-code, status 1"),
        ("ActiveState=failed\nResult=resources\nExecMainStatus=0\nStateChangeTimestamp=n/a\n", "resources"),
        ("ActiveState=inactive\nResult=success\nExecMainStatus=0\n", None),
        ("ActiveState=activating\nResult=exit-code\nExecMainStatus=1\n", None),
    ],
)
async def test_failed_unit_of_backups_found_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: str | None
) -> None:
    write_backup(tmp_path / "new.db", 0)
    fake_systemctl(tmp_path, monkeypatch, f"printf '{said}'")
    for folder in (tmp_path, None):
        details = [each.detail for each in await probe(store, folder, 9999, UNIT).look()]
        assert details == ([] if found is None else [f"{UNIT} failed: {found}"])


async def test_unit_that_systemd_does_not_tell_leaves_all(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_systemctl(tmp_path, monkeypatch, "exit 1")
    with pytest.raises(OSError, match="lab-agent-backup"):
        await probe(store, None, 24, UNIT).look()


# --- what the settings name


def test_settings_of_adapters_name_folders_and_ports(tmp_path: Path) -> None:
    for folder in ("orders", "results"):
        (tmp_path / folder).mkdir()
    hl7v2 = Hl7v2Settings.model_validate(
        {
            "orders": {"role": "client", "port": 2575},
            "results": {"role": "server", "host": "0.0.0.0", "port": 8481},
            "folder": tmp_path / "hl7",
            "duplicates": "none",
        }
    )
    settings = make_settings({})
    assert tmp_path / "hl7" in list(list_folders(settings, {"analyser": hl7v2}))
    addresses = {each.setting: each.port for each in list_addresses(settings, {"analyser": hl7v2})}
    assert addresses["lis.analyser.results.port"] == 8481
    assert "lis.analyser.orders.port" not in addresses
