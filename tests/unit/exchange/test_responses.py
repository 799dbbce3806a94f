import json
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.exchange.responses import (
    RequestContext,
    RequestKind,
    describe_text,
    parse_issues,
    parse_object,
    response_error,
)
from lab_agent.shared import errors
from lab_agent.shared.errors import OutcomeIssue
from lab_agent.shared.http_dates import parse_retry_after

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
READ = RequestContext(kind=RequestKind.READ, description="GET Task")
SEARCH = RequestContext(kind=RequestKind.SEARCH, description="searching Task")
WRITE = RequestContext(kind=RequestKind.WRITE, description="POST Task")
PUT = RequestContext(kind=RequestKind.WRITE, description="PUT Task", if_match=True)
CONDITIONAL = RequestContext(kind=RequestKind.WRITE, description="POST Observation", if_none_exist=True)
OUTCOME = b'{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid","diagnostics":"Smith"},7]}'


STATUSES = {
    READ: {
        errors.ResourceNotReadable: (400, 403, 404, 410, 418, 501),
        errors.ServiceUnavailable: (302, 408, 423, 500, 503),
        errors.AuthenticationRequired: (401,),
    },
    SEARCH: {
        errors.SearchNotSupported: (400, 404, 405, 422, 501),
        errors.ServiceUnavailable: (301, 423, 502),
        errors.ServiceRejected: (403,),
    },
    WRITE: {
        errors.ServiceRejected: (404, 409, 412, 501),
        errors.OutcomeUnknown: (302, 408, 500, 502, 503, 504),
        errors.ServiceUnavailable: (307, 423, 429),
        errors.AuthenticationRequired: (401,),
        type(None): (200, 201, 204),
    },
    PUT: {errors.StaleVersion: (409, 412), errors.ServiceUnavailable: (423,)},
    CONDITIONAL: {errors.MultipleMatches: (412,), errors.ServiceRejected: (409,), errors.ServiceUnavailable: (423,)},
}


@pytest.mark.parametrize("asked", STATUSES, ids=lambda asked: asked.description)
def test_status_classified_with_its_request(asked: RequestContext) -> None:
    wanted = {status: expected for expected, statuses in STATUSES[asked].items() for status in statuses}
    assert {status: type(response_error(asked, status, {}, b"<html>", now=NOW)) for status in wanted} == wanted
    busy = response_error(WRITE, 503, {"retry-after": "7"}, b"<html>", now=NOW)
    assert type(busy) is errors.ServiceUnavailable


def test_retry_after_attached_to_failure() -> None:
    """But a lock is on one resource, and Retry-After holds back every request; a date is of the service's own clock."""
    in_a_minute, ahead = "Sun, 01 Mar 2026 12:01:00 GMT", "Sun, 01 Mar 2026 12:00:30 GMT"
    for asked, status, headers, seconds in (
        (PUT, 423, {"retry-after": "7"}, None),
        (READ, 503, {"retry-after": in_a_minute}, 60.0),
        (READ, 503, {"retry-after": in_a_minute, "date": ahead}, 30.0),
    ):
        found = response_error(asked, status, headers, b"", now=NOW)
        assert isinstance(found, errors.ServiceUnavailable)
        assert found.retry_after == seconds
    assert "until 2026-03-01 12:00:30 UTC" in str(found)


def test_rejection_without_error_is_doubtful() -> None:
    for issues, is_doubtful in (
        ([{"severity": "warning", "code": "invalid"}], True),
        ([{"severity": "information"}, {"severity": "Warning"}], True),
        ({"severity": "INFORMATION"}, True),
        ([{"severity": "warning"}, {"severity": "error"}], False),
        ([{"severity": "fatal"}], False),
        ([{"code": "invalid"}], False),
        ([], False),
    ):
        body = json.dumps({"resourceType": "OperationOutcome", "issue": issues}).encode()
        found = response_error(PUT, 422, {}, body, now=NOW)
        assert isinstance(found, errors.ServiceRejected)
        assert found.is_doubtful is is_doubtful, issues


def test_body_that_is_no_json_is_named() -> None:
    for body, expected in (
        (b"<!DOCTYPE html><p>sign in", "an HTML page"),
        (b"\xef\xbb\xbf\n <HTML>", "an HTML page"),
        (b"<!-- proxy --><html>", "an HTML page"),
        (b'<?xml version="1.0"?><html xmlns="x">', "an HTML page"),
        (b'<?xml version="1.0"?><Bundle xmlns="http://hl7.org/fhir"/>', "XML"),
        (b"<Task/>", "XML"),
        (b" ", "nothing"),
        (b"{", "something that is not valid JSON"),
    ):
        assert describe_text(body) == expected
        for asked in (READ, SEARCH, WRITE):
            with pytest.raises(errors.Failure, match=expected):
                parse_object(asked, body)
    for asked in (READ, SEARCH, WRITE):
        for status in (302, 403, 422, 502):
            assert "an HTML page" in str(response_error(asked, status, {}, b"<html>Anna", now=NOW))


def test_issues_kept_and_diagnostics_left_out() -> None:
    found = response_error(WRITE, 422, {}, OUTCOME, now=NOW)
    assert isinstance(found, errors.ServiceRejected)
    assert found.status == 422
    assert found.issues == (OutcomeIssue("error", "invalid", "Smith"),)
    assert str(found) == "POST Task was answered with 422 (invalid content)"


def test_retry_after_parsed_in_both_forms() -> None:
    numbers = {"120": 120.0, " 3 ": 3.0, "9" * 20: 3600.0, "120, 120": 120.0, "30.0": 30.0, "0000000000120": 120.0}
    dates = {
        "Tue, 01 Mar 2050 12:00:30 GMT": 3600.0,
        "Sun, 01 Mar 2026 12:00:30 GMT": 30.0,
        "Sun, 01 Mar 2026 11:00:00 GMT": 0.0,
        "Sun, 01 Mar 2026 12:00:30 -0000": 30.0,
    }
    expected = numbers | dates | dict.fromkeys(("soon", "-5", "", "٣", None))
    assert {value: parse_retry_after(value, NOW) for value in expected} == expected


def test_rejection_may_pass_unless_about_us() -> None:
    """What a proxy may have answered is asked again; what is about the resource or what we wrote is not."""
    may, may_not = ((READ, 400), (SEARCH, 403), (SEARCH, 422)), ((READ, 403), (READ, 404), (WRITE, 400))
    for expected, cases in ((True, may), (False, may_not)):
        for asked, status in cases:
            found = response_error(asked, status, {}, b"", now=NOW)
            assert isinstance(found, errors.ServiceRejected)
            assert found.may_pass is expected, (asked, status)


def test_success_without_json_object_is_invalid() -> None:
    """A page in place of a resource says that the service is away; invalid JSON says so of that resource alone."""
    for body in (b"<html>please sign in</html>", b'{"cut": ', b"", b"[]", b"\xff\xfe"):
        for asked, expected in ((WRITE, errors.InvalidResponse), (SEARCH, errors.ServiceUnavailable)):
            with pytest.raises(expected):
                parse_object(asked, body)
    for body in (b'{"name": NaN}', b'{"name": "\\ud83d"}', b'{"a":' * 5000 + b"1" + b"}" * 5000):
        with pytest.raises(errors.InvalidResponse):
            parse_object(READ, body)
    for body in (b"<html>maintenance</html>", b""):
        with pytest.raises(errors.ServiceUnavailable):
            parse_object(READ, body)
    assert parse_object(READ, b"\xef\xbb\xbf{}") == {}


def test_no_issues_without_operation_outcome() -> None:
    bodies = (b"", b"nonsense", b"[]", b'{"resourceType":"Task"}', b'{"resourceType":"OperationOutcome","issue":"x"}')
    assert [parse_issues(body) for body in bodies] == [()] * 5


def test_details_text_stands_for_missing_diagnostics() -> None:
    body = b'{"resourceType":"OperationOutcome","issue":[{"code":"invalid","details":{"text":"Smith"}}]}'
    assert parse_issues(body) == (OutcomeIssue("error", "invalid", "Smith"),)


def test_issues_kept_with_every_failure() -> None:
    for asked, status in ((READ, 500), (WRITE, 500), (WRITE, 429), (WRITE, 401)):
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
    error = response_error(SEARCH, 502, {}, b"<html>Anna Sample: bad gateway</html>" + b"x" * 5000, now=NOW)
    assert error is not None
    (issue,) = error.issues
    assert issue.code == "that is no OperationOutcome"
    assert (issue.diagnostics[:10], len(issue.diagnostics), "Anna" in str(error)) == ("<html>Anna", 2048, False)
