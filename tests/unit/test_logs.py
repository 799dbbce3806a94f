"""The log: one redaction point for our lines and the libraries'."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab_agent import logs
from lab_agent.errors import ServiceUnavailable
from lab_agent.settings.groups import LoggingSettings
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
