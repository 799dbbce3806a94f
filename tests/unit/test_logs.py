"""The log: one redaction point for our lines and the libraries', in a stream and in the journal of systemd."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab_agent.settings.groups import LoggingSettings
from lab_agent.shared import logs
from lab_agent.shared import logs as journal_module
from lab_agent.shared.errors import ServiceUnavailable
from lab_agent.shared.logs import JournalHandler, encode_fields, is_journal
from tests.harness.paths import ROOT

Configure = Callable[..., io.StringIO]


@pytest.fixture
def log() -> Iterator[Configure]:
    """A configured log in a buffer; what was set up before is put back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()

    def configure(**settings: Any) -> io.StringIO:
        logs.configure(LoggingSettings(**{"format": "json", **settings}), stream)
        return stream

    yield configure
    root.handlers[:] = before
    root.setLevel(level)


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_allowed_fields_are_logged_once(log: Configure) -> None:
    log()
    stream = log()  # set up again, nothing is doubled
    logs.get_logger("lab_agent.steps").info("polled", action="poll.done", orders=3, state="seen", reason="r" * 5000)
    (line,) = read(stream)
    assert (line["event"], line["action"], line["orders"], line["state"]) == ("polled", "poll.done", 3, "seen")
    assert (line["level"], line["logger"], line["timestamp"][-1]) == ("info", "lab_agent.steps", "Z")
    assert len(line["reason"]) == 501


def test_other_fields_and_opaque_types_are_dropped_and_named(log: Configure) -> None:
    stream = log()
    logger = logs.get_logger("x")
    logger.info("fetched", action="fetch", patient="Ivanova", birth_date="1980-01-01", payload={"a": 1})
    logger.info("x", action="x", reason={"name": "Ivanova"}, order=object(), items=["L1", {"name": "Ivanova"}])
    unlisted, opaque = read(stream)
    assert unlisted["dropped"] == ["birth_date", "patient", "payload"]
    assert (opaque["dropped"], opaque["items"]) == (["order", "reason"], ["L1"])
    assert not [each for each in ("Ivanova", "1980") if each in stream.getvalue()]


def test_exceptions_show_type_and_our_messages_only(log: Configure) -> None:
    stream = log()
    logger, library = logs.get_logger("x"), logging.getLogger("some.library")
    for error in (ServiceUnavailable("the service is away"), ValueError("Ivanova 1980-01-01")):
        try:
            raise error
        except (ServiceUnavailable, ValueError):
            logger.exception("failed", action="fetch")
            library.exception("job failed")
    logger.warning("failed", action="x", error=KeyError("Ivanova"))
    ours = "ServiceUnavailable: the service is away"
    assert [line["error"] for line in read(stream)] == [ours, ours, "ValueError", "ValueError", "KeyError"]
    assert not [each for each in ("Ivanova", "1980", "Traceback") if each in stream.getvalue()]


def test_urls_and_headers_lose_secrets(log: Configure) -> None:
    """URLs lose their query and password, headers their token."""
    stream = log()
    address = "GET https://host/fhir/patient?name=Ivanova failed"
    logs.get_logger("x").warning("x", action="x", reason=address, path="postgresql://u:hunter2@h/db")
    logs.get_logger("x").warning("x", action="x", reason="sent Authorization: Bearer abcdefghijklmnop")
    assert not [each for each in ("Ivanova", "hunter2", "abcdefghijklmnop") if each in stream.getvalue()]
    assert "https://host/fhir/patient?…" in stream.getvalue()


def test_library_message_shows_template_without_data(log: Configure) -> None:
    stream = log()
    library = logging.getLogger("some.library")
    library.warning("request to %s failed", "https://host/?name=Ivanova")
    library.warning("got {'family': 'Ivanova'}")
    library.warning("x", extra={"patient_name": "Ivanova"})
    assert [line["event"] for line in read(stream)] == ["request to %s failed", "(not shown)", "x"]
    assert read(stream)[0]["logger"] == "some.library"
    assert "Ivanova" not in stream.getvalue()


def test_level_is_applied_and_quiet_libraries_warn_only(log: Configure) -> None:
    stream = log(level="warning")
    logs.get_logger("x").info("x", action="x")
    logs.get_logger("x").warning("y", action="y")
    log(level="debug")
    logging.getLogger("apscheduler").info("tick")
    logging.getLogger("apscheduler").warning("missed")
    assert [line["event"] for line in read(stream)] == ["y", "missed"]


def test_console_is_plain_without_terminal_and_escapes_controls(log: Configure) -> None:
    stream = log(format="console")
    logs.get_logger("x").info("polled", action="poll.done", orders=3)
    logs.get_logger("x").warning("held", action="x", reason="a\x1b]0;t\x07\u202eb", error=ServiceUnavailable("\x9bc"))
    shown = stream.getvalue()
    assert "polled" in shown
    assert "orders=3" in shown
    assert "\\u001b" in shown
    assert not set("\x1b\x07\x9b\u202e") & set(shown)


def log_calls(source: str) -> list[ast.Call]:
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in levels]
    return [call for call in named if any(keyword.arg == "action" for keyword in call.keywords)]


@pytest.mark.slow
def test_fields_of_every_log_call_are_on_the_allow_list() -> None:
    """So that none is dropped in daily life. A field that can identify a patient must not be on it."""
    assert len(log_calls("log.info('x', action='y', patient=1)\nlog.info('plain')")) == 1
    unknown = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {keyword.arg}"
        for program in ("lab_agent", "lab_api")
        for path in sorted((ROOT / program).rglob("*.py"))
        for call in log_calls(path.read_text(encoding="utf-8"))
        for keyword in call.keywords
        if keyword.arg and keyword.arg not in logs.FIELDS
    ]
    assert unknown == []


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


def test_lines_have_their_fields_and_those_of_no_other(journal: socket.socket, configured: None) -> None:
    logs.get_logger("lab_agent.test").warning("order held", action="order_held", order="A-1", rules=["r1", "r2"], name="Anna")
    found = read_fields(journal)
    expected = {"PRIORITY": ["4"], "LAB_ACTION": ["order_held"], "LAB_ORDER": ["A-1"], "LAB_RULES": ["r1", "r2"]}
    assert {name: found[name] for name in expected} == expected
    assert (found["LAB_DROPPED"], "order held" in found["MESSAGE"][0], "Anna" in str(found)) == (["name"], True, False)
    logging.getLogger("library").warning("second")
    found = read_fields(journal)
    assert ("LAB_ORDER" in found, found["LAB_LOGGER"]) == (False, ["library"])


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


def test_journal_is_recognised_by_its_file(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as file:
        found = os.fstat(file.fileno())
        for shift in (0, 1):
            environment = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + shift}"}
            assert is_journal(file.fileno(), environment) is (shift == 0)
        assert not is_journal(file.fileno(), {})
