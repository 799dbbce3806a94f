"""Probes of the machine, on real files and disks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.lis.hl7v2.settings import Hl7v2Settings
from lab_agent.machine_probes import list_addresses, list_folders
from lab_agent.monitoring.machine import (
    BackupProbe,
    DiskProbe,
    ListeningAddress,
    PortsProbe,
    SecretFilesProbe,
    first_of_each_disk,
    is_readable_by_others,
)
from lab_agent.ports.event_repositories import CREATED_AT_KEY
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.settings.secret_files import has_secret, list_secret_files
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import VirtualClock
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
    assert "MB of" in finding.detail


async def test_disk_with_room_is_no_finding(tmp_path: Path) -> None:
    assert await DiskProbe(lambda: (tmp_path, tmp_path / "missing" / "folder"), 1).look() == ()


@pytest.mark.skipif(not OTHER_DISK.is_dir(), reason="there is no second disk")
def test_each_disk_is_named_by_its_first_folder(tmp_path: Path) -> None:
    if OTHER_DISK.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("the temporary folder is on the same disk")
    assert first_of_each_disk([tmp_path, OTHER_DISK, tmp_path.parent]) == (tmp_path, OTHER_DISK)


# --- files with secrets


@pytest.mark.parametrize(("mode", "found"), [(0o604, 1), (0o640, 0), (0o600, 0)])
async def test_secret_file_readable_by_others_found(open_folder: Path, mode: int, found: int) -> None:
    file = open_folder / "lab-agent.toml"
    file.touch()
    file.chmod(mode)
    findings = await SecretFilesProbe(lambda: (file, open_folder / "missing")).look()
    assert [each.subject for each in findings] == [str(file)] * found


def test_folder_that_others_may_not_enter_protects_the_file(open_folder: Path) -> None:
    file = open_folder / "lab-agent.toml"
    file.touch()
    file.chmod(0o644)
    assert is_readable_by_others(file)
    open_folder.chmod(0o700)
    assert not is_readable_by_others(file)


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
    ("hosts", "ports", "found"),
    [
        (("127.0.0.1", "127.0.0.1"), (8481, 8481), ["api.port, status.port"]),
        (("127.0.0.1", "0.0.0.0"), (8481, 8481), ["api.port, status.port"]),
        (("127.0.0.1", "10.0.0.1"), (8481, 8481), []),
        (("127.0.0.1", "127.0.0.1"), (8481, 8482), []),
        (("127.0.0.1", "127.0.0.1"), (0, 0), []),
    ],
)
async def test_equal_ports_found(hosts: tuple[str, str], ports: tuple[int, int], found: list[str]) -> None:
    names = ("status.port", "api.port")
    addresses = [
        ListeningAddress(setting=name, host=host, port=port) for name, host, port in zip(names, hosts, ports, strict=True)
    ]
    assert [each.subject for each in await PortsProbe(addresses).look()] == found


# --- backups


@pytest.mark.parametrize(("age_hours", "found"), [(1, 0), (30, 1)])
async def test_backup_older_than_allowed_found(tmp_path: Path, age_hours: int, found: int) -> None:
    for name, hours in (("today.db", age_hours), ("earlier.db", 400)):
        file = tmp_path / "daily" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x")
        at = (NOW - timedelta(hours=hours)).timestamp()
        os.utime(file, (at, at))
    findings = await BackupProbe(tmp_path, timedelta(hours=26), VirtualClock(NOW), MemoryStore()).look()
    assert [each.since for each in findings] == [NOW - timedelta(hours=4)] * found


@pytest.mark.parametrize("name", ["", "missing"])
async def test_backups_that_are_not_there_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.db").touch()
    (finding,) = await BackupProbe(tmp_path / name, timedelta(hours=26), VirtualClock(NOW), MemoryStore()).look()
    assert (finding.condition, str(tmp_path / name) in finding.detail) == (ConditionId.BACKUP_OLD, True)


@pytest.mark.parametrize("name", ["", "missing"])
@pytest.mark.parametrize(("age_hours", "found"), [(0, 0), (26, 0), (26.01, 1), (900, 1)])
async def test_first_backup_expected_once_database_is_older(tmp_path: Path, name: str, age_hours: float, found: int) -> None:
    store = await made_before(age_hours)
    os.utime(tmp_path, (0, 0))
    findings = await BackupProbe(tmp_path / name, timedelta(hours=26), VirtualClock(NOW), store).look()
    assert [each.since for each in findings] == [NOW - timedelta(hours=age_hours - 26)] * found


async def test_old_backup_of_new_database_found(tmp_path: Path) -> None:
    """A file that is old says that whatever writes backups does not work."""
    (tmp_path / "old.db").write_bytes(b"x")
    os.utime(tmp_path / "old.db", (0, 0))
    assert await BackupProbe(tmp_path, timedelta(hours=26), VirtualClock(NOW), await made_before(1)).look()


async def made_before(hours: float) -> MemoryStore:
    store, made = MemoryStore(), NOW - timedelta(hours=hours)

    def work(uow: UnitOfWork) -> None:
        uow.key_values.set(CREATED_AT_KEY, made.isoformat())
        uow.commit()

    await store.run(work)
    return store


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("ActiveState=failed\nResult=exit-code\nExecMainStatus=1\nStateChangeTimestamp=@1700000000\n", "exit-code, status 1"),
        ("ActiveState=failed\nResult=resources\nExecMainStatus=0\nStateChangeTimestamp=n/a\n", "resources"),
        ("ActiveState=inactive\nResult=success\nExecMainStatus=0\n", None),
        ("ActiveState=activating\nResult=exit-code\nExecMainStatus=1\n", None),
    ],
)
@pytest.mark.parametrize("has_folder", [False, True])
async def test_failed_unit_of_backups_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: str | None, has_folder: bool
) -> None:
    (tmp_path / "new.db").write_bytes(b"x")
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\nprintf '{said}'\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    probe = BackupProbe(
        tmp_path if has_folder else None, timedelta(days=9999), VirtualClock(NOW), MemoryStore(), "lab-agent-backup.service"
    )
    details = [each.detail for each in await probe.look()]
    assert details == ([] if found is None else [f"lab-agent-backup.service failed: {found}"])


async def test_unit_that_systemd_does_not_tell_leaves_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systemctl").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OSError, match="lab-agent-backup"):
        await BackupProbe(None, timedelta(days=1), VirtualClock(NOW), MemoryStore(), "lab-agent-backup.service").look()


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
