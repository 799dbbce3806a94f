"""The log: one redaction point for our lines and the libraries'."""

import io
import json
import logging

import pytest

from lab_agent import logs
from lab_agent.errors import ServiceUnavailable
from lab_agent.settings.groups import LoggingSettings


@pytest.fixture
def log():
    """A configured log in a buffer; what was set up before is put back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()

    def configure(**settings) -> io.StringIO:
        logs.configure(LoggingSettings(**{"format": "json", **settings}), stream)
        return stream

    yield configure
    root.handlers[:] = before
    root.setLevel(level)


def read(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_allowed_fields_are_logged(log):
    stream = log()
    logs.get_logger("lab_agent.steps").info("polled", action="poll.done", orders=3, state="seen")
    (line,) = read(stream)
    assert line["event"] == "polled"
    assert (line["action"], line["orders"], line["state"], line["level"]) == ("poll.done", 3, "seen", "info")
    assert line["logger"] == "lab_agent.steps"
    assert line["timestamp"].endswith("Z")


def test_unlisted_field_is_dropped_and_named(log):
    stream = log()
    logs.get_logger("x").info("fetched", action="fetch", patient="Ivanova", birth_date="1980-01-01", payload={"a": 1})
    (line,) = read(stream)
    assert line["dropped"] == ["birth_date", "patient", "payload"]
    assert "Ivanova" not in stream.getvalue()
    assert "1980" not in stream.getvalue()


def test_listed_field_of_opaque_type_is_dropped(log):
    """A listed field of a type that may contain other data is dropped."""
    stream = log()
    logs.get_logger("x").info("x", action="x", reason={"name": "Ivanova"}, order=object(), items=["L1", {"name": "Ivanova"}])
    (line,) = read(stream)
    assert line["dropped"] == ["order", "reason"]
    assert line["items"] == ["L1"]
    assert "Ivanova" not in stream.getvalue()


def test_exception_shows_type_and_our_message_only(log):
    stream = log()
    logger = logs.get_logger("x")
    for error in (ServiceUnavailable("the service is away"), ValueError("Ivanova 1980-01-01")):
        try:
            raise error
        except (ServiceUnavailable, ValueError):
            logger.exception("failed", action="fetch")
    ours, other = read(stream)
    assert ours["error"] == "ServiceUnavailable: the service is away"
    assert other["error"] == "ValueError"
    assert "Ivanova" not in stream.getvalue()
    assert "Traceback" not in stream.getvalue()


def test_exception_given_as_field_is_redacted_too(log):
    stream = log()
    logs.get_logger("x").warning("failed", action="x", error=KeyError("Ivanova"))
    assert read(stream)[0]["error"] == "KeyError"


def test_urls_and_headers_lose_secrets(log):
    """URLs lose their query and password, headers their token."""
    stream = log()
    logs.get_logger("x").warning(
        "x", action="x", reason="GET https://host/fhir/patient?name=Ivanova failed", path="postgresql://u:hunter2@h/db"
    )
    logs.get_logger("x").warning("x", action="x", reason="sent Authorization: Bearer abcdefghijklmnop")
    assert "Ivanova" not in stream.getvalue()
    assert "hunter2" not in stream.getvalue()
    assert "abcdefghijklmnop" not in stream.getvalue()
    assert "https://host/fhir/patient?…" in stream.getvalue()


def test_library_message_shows_template_without_arguments(log):
    stream = log()
    logging.getLogger("some.library").warning("request to %s failed", "https://host/?name=Ivanova")
    logging.getLogger("some.library").warning("got {'family': 'Ivanova'}")
    first, second = read(stream)
    assert first["event"] == "request to %s failed"
    assert first["logger"] == "some.library"
    assert second["event"] == "(not shown)"
    assert "Ivanova" not in stream.getvalue()


def test_library_exception_shows_type_only(log):
    stream = log()
    try:
        int("Ivanova")
    except ValueError:
        logging.getLogger("some.library").exception("job failed")
    (line,) = read(stream)
    assert line["error"] == "ValueError"
    assert "Ivanova" not in stream.getvalue()


def test_extra_fields_of_library_are_dropped(log):
    stream = log()
    logging.getLogger("some.library").warning("x", extra={"patient_name": "Ivanova"})
    assert "Ivanova" not in stream.getvalue()


def test_quiet_libraries_log_warnings_only(log):
    stream = log(level="debug")
    logging.getLogger("apscheduler").info("tick")
    logging.getLogger("apscheduler").warning("missed")
    assert [line["event"] for line in read(stream)] == ["missed"]


def test_long_text_is_shortened(log):
    stream = log()
    logs.get_logger("x").warning("x", action="x", reason="r" * 5000)
    assert len(read(stream)[0]["reason"]) == 501


def test_console_format_is_readable_and_plain_without_terminal(log):
    """The console format is readable, and has no colours where it is no terminal."""
    stream = log(format="console")
    logs.get_logger("x").info("polled", action="poll.done", orders=3)
    text = stream.getvalue()
    assert "polled" in text
    assert "orders=3" in text
    assert "\x1b" not in text


def test_log_level_is_applied(log):
    stream = log(level="warning")
    logs.get_logger("x").info("x", action="x")
    logs.get_logger("x").warning("y", action="y")
    assert [line["event"] for line in read(stream)] == ["y"]


def test_repeated_setup_does_not_duplicate_lines(log):
    log()
    stream = log()
    logs.get_logger("x").info("once", action="x")
    assert len(read(stream)) == 1


def test_control_characters_become_escapes(log):
    stream = log(format="console")
    logs.get_logger("x").warning("held", action="x", reason="a\x1b]0;t\x07\u202eb", error=ServiceUnavailable("\x9bc"))
    shown = stream.getvalue()
    assert not set("\x1b\x07\x9b\u202e") & set(shown)
    assert "\\u001b" in shown
