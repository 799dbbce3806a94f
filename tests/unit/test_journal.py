"""Lines in systemd's journal: their fields, and what happens where it does not take one."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_agent import journal as journal_module
from lab_agent import logs
from lab_agent.journal import JournalHandler, encode_fields, is_journal
from lab_agent.settings.groups import LoggingSettings


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "journal"))
        listening.settimeout(10)
        yield listening


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log as it is where systemd has started the program."""
    old = logging.getLogger().handlers[:]
    monkeypatch.setattr(logs, "is_journal", lambda _: True)
    monkeypatch.setattr(journal_module, "SOCKET", str(tmp_path / "journal"))
    logs.configure(LoggingSettings())
    yield
    for handler in logging.getLogger().handlers[:]:
        logging.getLogger().removeHandler(handler)
        handler.close()
    for handler in old:
        logging.getLogger().addHandler(handler)


def read_fields(journal: socket.socket) -> dict[str, list[str]]:
    """As the journal reads them."""
    found: dict[str, list[str]] = {}
    rest = journal.recv(1 << 16)
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size + 1 :]
        found.setdefault(name.decode(), []).append(value.decode())
    return found


def test_line_has_its_fields(journal: socket.socket, configured: None) -> None:
    logs.get_logger("lab_agent.test").warning("order held", action="order_held", order="A-1", rules=["r1", "r2"], name="Anna")
    found = read_fields(journal)
    assert found["PRIORITY"] == ["4"]
    assert found["LAB_ACTION"] == ["order_held"]
    assert found["LAB_ORDER"] == ["A-1"]
    assert found["LAB_RULES"] == ["r1", "r2"]
    assert found["LAB_DROPPED"] == ["name"]
    assert "order held" in found["MESSAGE"][0]
    assert "Anna" not in str(found)


def test_line_of_a_library_has_the_fields_of_no_other(journal: socket.socket, configured: None) -> None:
    logs.get_logger("lab_agent.test").info("first", order="A-1")
    read_fields(journal)
    logging.getLogger("library").warning("second")
    found = read_fields(journal)
    assert "LAB_ORDER" not in found
    assert found["LAB_LOGGER"] == ["library"]


def test_text_of_several_lines_is_whole() -> None:
    encoded = encode_fields("two\nlines", logging.ERROR, {"reason": "a\nb", "count": 2, "order": None})
    assert b"MESSAGE\n" + (9).to_bytes(8, "little") + b"two\nlines\n" in encoded
    assert b"LAB_REASON\n" + (3).to_bytes(8, "little") + b"a\nb\n" in encoded
    assert encoded.endswith(b"LAB_COUNT=2\n")


def test_line_goes_to_standard_error_without_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(journal_module, "SOCKET", str(tmp_path / "nobody"))
    handler = JournalHandler()
    handler.handle(logging.LogRecord("name", logging.INFO, "", 0, "said all the same", (), None))
    handler.close()
    assert "said all the same" in capsys.readouterr().err


@pytest.mark.parametrize("shift", [0, 1])
def test_journal_is_recognised_by_its_file(tmp_path: Path, shift: int) -> None:
    with (tmp_path / "stream").open("w") as file:
        found = os.fstat(file.fileno())
        environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + shift}"}
        assert is_journal(file.fileno(), environment) is (shift == 0)
        assert not is_journal(file.fileno(), {})
