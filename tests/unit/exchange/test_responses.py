import json
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent import errors
from lab_agent.errors import OutcomeIssue
from lab_agent.exchange.responses import (
    RequestContext,
    RequestKind,
    describe_text,
    parse_issues,
    parse_object,
    response_error,
)
from lab_agent.http_dates import parse_retry_after

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
READ = RequestContext(kind=RequestKind.READ, description="GET Task")
SEARCH = RequestContext(kind=RequestKind.SEARCH, description="searching Task")
WRITE = RequestContext(kind=RequestKind.WRITE, description="POST Task")
PUT = RequestContext(kind=RequestKind.WRITE, description="PUT Task", if_match=True)
CONDITIONAL = RequestContext(kind=RequestKind.WRITE, description="POST Observation", if_none_exist=True)
OUTCOME = b'{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid","diagnostics":"Smith"},7]}'


@pytest.mark.parametrize(
    ("asked", "status", "headers", "expected"),
    [
        (READ, 403, {}, errors.ResourceNotReadable),
        (READ, 404, {}, errors.ResourceNotReadable),
        (READ, 410, {}, errors.ResourceNotReadable),
        (READ, 400, {}, errors.ResourceNotReadable),
        (READ, 418, {}, errors.ResourceNotReadable),
        (READ, 501, {}, errors.ResourceNotReadable),
        (READ, 500, {}, errors.ServiceUnavailable),
        (READ, 503, {}, errors.ServiceUnavailable),
        (READ, 408, {}, errors.ServiceUnavailable),
        (READ, 302, {}, errors.ServiceUnavailable),
        (SEARCH, 400, {}, errors.SearchNotSupported),
        (SEARCH, 404, {}, errors.SearchNotSupported),
        (SEARCH, 405, {}, errors.SearchNotSupported),
        (SEARCH, 501, {}, errors.SearchNotSupported),
        (SEARCH, 422, {}, errors.SearchNotSupported),
        (SEARCH, 301, {}, errors.ServiceUnavailable),
        (SEARCH, 403, {}, errors.ServiceRejected),
        (SEARCH, 502, {}, errors.ServiceUnavailable),
        (PUT, 409, {}, errors.StaleVersion),
        (PUT, 412, {}, errors.StaleVersion),
        (CONDITIONAL, 412, {}, errors.MultipleMatches),
        (CONDITIONAL, 409, {}, errors.ServiceRejected),
        (WRITE, 412, {}, errors.ServiceRejected),
        (WRITE, 409, {}, errors.ServiceRejected),
        (WRITE, 404, {}, errors.ServiceRejected),
        (WRITE, 500, {}, errors.OutcomeUnknown),
        (WRITE, 502, {}, errors.OutcomeUnknown),
        (WRITE, 503, {}, errors.OutcomeUnknown),
        (WRITE, 504, {}, errors.OutcomeUnknown),
        (WRITE, 408, {}, errors.OutcomeUnknown),
        (WRITE, 503, {"retry-after": "7"}, errors.ServiceUnavailable),
        (WRITE, 429, {}, errors.ServiceUnavailable),
        (WRITE, 423, {}, errors.ServiceUnavailable),
        (PUT, 423, {}, errors.ServiceUnavailable),
        (CONDITIONAL, 423, {}, errors.ServiceUnavailable),
        (READ, 423, {}, errors.ServiceUnavailable),
        (SEARCH, 423, {}, errors.ServiceUnavailable),
        (WRITE, 501, {}, errors.ServiceRejected),
        (WRITE, 307, {}, errors.ServiceUnavailable),
        (WRITE, 302, {}, errors.OutcomeUnknown),
        (WRITE, 401, {}, errors.AuthenticationRequired),
        (READ, 401, {}, errors.AuthenticationRequired),
    ],
)
def test_status_classified_with_its_request(asked: RequestContext, status: int, headers: dict[str, str], expected: type) -> None:
    assert type(response_error(asked, status, headers, b"<html>", now=NOW)) is expected


@pytest.mark.parametrize("status", [200, 201, 204])
def test_success_status_is_no_failure(status: int) -> None:
    assert response_error(WRITE, status, {}, b"", now=NOW) is None


def test_wait_of_locked_resource_is_not_for_all() -> None:
    """Retry-After would hold back every request, and a lock is on one resource."""
    found = response_error(PUT, 423, {"retry-after": "7"}, b"", now=NOW)
    assert isinstance(found, errors.ServiceUnavailable)
    assert found.retry_after is None


@pytest.mark.parametrize(
    ("issues", "is_doubtful"),
    [
        ([{"severity": "warning", "code": "invalid"}], True),
        ([{"severity": "information"}, {"severity": "Warning"}], True),
        ({"severity": "INFORMATION"}, True),
        ([{"severity": "warning"}, {"severity": "error"}], False),
        ([{"severity": "fatal"}], False),
        ([{"code": "invalid"}], False),
        ([], False),
    ],
)
def test_rejection_without_error_is_doubtful(issues: Any, is_doubtful: bool) -> None:
    body = json.dumps({"resourceType": "OperationOutcome", "issue": issues}).encode()
    found = response_error(PUT, 422, {}, body, now=NOW)
    assert isinstance(found, errors.ServiceRejected)
    assert found.is_doubtful is is_doubtful


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<!DOCTYPE html><p>sign in", "an HTML page"),
        (b"\xef\xbb\xbf\n <HTML>", "an HTML page"),
        (b"<!-- proxy --><html>", "an HTML page"),
        (b'<?xml version="1.0"?><html xmlns="x">', "an HTML page"),
        (b'<?xml version="1.0"?><Bundle xmlns="http://hl7.org/fhir"/>', "XML"),
        (b"<Task/>", "XML"),
        (b" ", "nothing"),
        (b"{", "something that is not valid JSON"),
    ],
)
def test_body_that_is_no_json_is_named(body: bytes, expected: str) -> None:
    assert describe_text(body) == expected
    for asked in (READ, SEARCH, WRITE):
        with pytest.raises(errors.Failure, match=expected):
            parse_object(asked, body)


@pytest.mark.parametrize("asked", [READ, SEARCH, WRITE])
@pytest.mark.parametrize("status", [302, 403, 422, 502])
def test_error_with_page_names_the_page(asked: RequestContext, status: int) -> None:
    assert "an HTML page" in str(response_error(asked, status, {}, b"<html>Anna", now=NOW))


def test_issues_kept_and_diagnostics_left_out() -> None:
    """Issues are kept, and their diagnostics stay out of the sentence."""
    found = response_error(WRITE, 422, {}, OUTCOME, now=NOW)
    assert isinstance(found, errors.ServiceRejected)
    assert found.status == 422
    assert found.issues == (OutcomeIssue("error", "invalid", "Smith"),)
    assert str(found) == "POST Task was answered with 422 (invalid content)"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 3 ", 3.0),
        ("99999999999999999999", 3600.0),
        ("Tue, 01 Mar 2050 12:00:30 GMT", 3600.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 12:00:30 -0000", 30.0),
        ("120, 120", 120.0),
        ("30.0", 30.0),
        ("0000000000120", 120.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("٣", None),
        (None, None),
    ],
)
def test_retry_after_parsed_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


def test_retry_after_attached_to_failure() -> None:
    found = response_error(READ, 503, {"retry-after": "Sun, 01 Mar 2026 12:01:00 GMT"}, b"", now=NOW)
    assert isinstance(found, errors.ServiceUnavailable)
    assert found.retry_after == 60.0


@pytest.mark.parametrize(
    ("asked", "status", "may_pass"),
    [(READ, 400, True), (READ, 403, False), (READ, 404, False), (SEARCH, 403, True), (SEARCH, 422, True), (WRITE, 400, False)],
)
def test_rejection_may_pass_unless_about_us(asked: RequestContext, status: int, may_pass: bool) -> None:
    """What a proxy may have answered is asked again; what is about the resource or what we wrote is not."""
    found = response_error(asked, status, {}, b"", now=NOW)
    assert isinstance(found, errors.ServiceRejected)
    assert found.may_pass is may_pass


@pytest.mark.parametrize("body", [b"<html>please sign in</html>", b'{"cut": ', b"", b"[]", b"\xff\xfe"])
@pytest.mark.parametrize(("asked", "expected"), [(WRITE, errors.InvalidResponse), (SEARCH, errors.ServiceUnavailable)])
def test_success_without_json_object_is_invalid(asked: RequestContext, expected: type[Exception], body: bytes) -> None:
    with pytest.raises(expected):
        parse_object(asked, body)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<html>maintenance</html>", errors.ServiceUnavailable),
        (b"", errors.ServiceUnavailable),
        (b'{"name": NaN}', errors.InvalidResponse),
        (b'{"name": "\\ud83d"}', errors.InvalidResponse),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, errors.InvalidResponse),
    ],
)
def test_invalid_json_spoils_its_resource_and_page_service(body: bytes, expected: type[Exception]) -> None:
    """A page in place of a resource says that the service is away; invalid JSON says so of that resource alone."""
    with pytest.raises(expected):
        parse_object(READ, body)


def test_byte_order_mark_accepted() -> None:
    assert parse_object(READ, b"\xef\xbb\xbf{}") == {}


@pytest.mark.parametrize(
    "body", [b"", b"nonsense", b"[]", b'{"resourceType":"Task"}', b'{"resourceType":"OperationOutcome","issue":"x"}']
)
def test_no_issues_without_operation_outcome(body: bytes) -> None:
    assert parse_issues(body) == ()


def test_retry_after_date_meant_by_service_clock() -> None:
    """The service's clock is five minutes ahead: it asks to wait half a minute, not five and a half."""
    headers = {"retry-after": "Sun, 01 Mar 2026 12:05:30 GMT", "date": "Sun, 01 Mar 2026 12:05:00 GMT"}
    found = response_error(READ, 503, headers, b"", now=NOW)
    assert isinstance(found, errors.ServiceUnavailable)
    assert found.retry_after == 30.0
    assert "until 2026-03-01 12:00:30 UTC" in str(found)


def test_details_text_stands_for_missing_diagnostics() -> None:
    body = b'{"resourceType":"OperationOutcome","issue":[{"code":"invalid","details":{"text":"Smith"}}]}'
    assert parse_issues(body) == (OutcomeIssue("error", "invalid", "Smith"),)


@pytest.mark.parametrize(("asked", "status"), [(READ, 500), (WRITE, 500), (WRITE, 429), (WRITE, 401)])
def test_issues_kept_with_every_failure(asked: RequestContext, status: int) -> None:
    found = response_error(asked, status, {}, OUTCOME, now=NOW)
    assert found is not None
    assert found.issues == (OutcomeIssue("error", "invalid", "Smith"),)


@pytest.mark.parametrize(
    ("issue", "code", "sealed"),
    [
        ({"severity": "error", "code": "Anna Sample"}, "", "(Anna Sample)"),
        ({"severity": "Anna Sample", "code": "invalid"}, "invalid", "(Anna Sample)"),
        ({"code": ["Anna Sample"], "diagnostics": "text"}, "", "text (['Anna Sample'])"),
        ({"code": "Anna.Sample@1970", "details": {"text": "text"}}, "", "text (Anna.Sample@1970)"),
        ({"code": "invalid", "details": {"coding": [{"code": "Anna", "display": "Sample"}, "x"]}}, "invalid", "(Anna, Sample)"),
        ({"code": "throttled", "details": {"coding": {"code": "Anna"}}}, "throttled", "(Anna)"),
        ({"code": "THROTTLED", "severity": "Error"}, "throttled", ""),
        ({"code": ["throttled"], "details": [{"text": "text"}]}, "throttled", "text"),
    ],
)
def test_codes_of_no_list_are_sealed(issue: dict[str, Any], code: str, sealed: str) -> None:
    """Only codes of FHIR's lists are told; a name in place of one is sealed with the service's other words."""
    body = json.dumps({"resourceType": "OperationOutcome", "issue": [issue]}).encode()
    for status in (403, 422, 503):
        found = response_error(WRITE, status, {}, body, now=NOW)
        assert found is not None
        assert found.issues == (OutcomeIssue("error", code, sealed),)
        assert not any(word in str(found) for word in ("Anna", "Sample"))


def test_page_of_a_proxy_is_quoted_and_marked() -> None:
    page = b"<html>Anna Sample: bad gateway</html>" + b"x" * 5000
    error = response_error(SEARCH, 502, {}, page, now=NOW)
    assert error is not None
    (issue,) = error.issues
    assert issue.code == "that is no OperationOutcome"
    assert issue.diagnostics.startswith("<html>Anna")
    assert len(issue.diagnostics) == 2048
    assert "Anna" not in str(error)
