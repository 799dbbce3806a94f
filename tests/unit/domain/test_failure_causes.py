import pytest

from lab_agent.queue.failure_causes import FailureCause, find_cause, format_issues
from lab_agent.shared import errors
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import OutcomeIssue


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (errors.AuthenticationRequired("x"), FailureCause.SIGN_IN),
        (errors.ServiceUnavailable("x"), FailureCause.SERVICE_UNAVAILABLE),
        (errors.ServiceUnavailable("x", retry_after=3), FailureCause.SERVICE_ASKS_TO_WAIT),
        (errors.ServicePaused("x", retry_after=3), FailureCause.SERVICE_ASKS_TO_WAIT),
        (errors.OutcomeUnknown("x"), FailureCause.OUTCOME_UNKNOWN),
        (errors.InvalidResponse("x"), FailureCause.INVALID_RESPONSE),
        (errors.SearchNotSupported("x", status=400, may_pass=True), FailureCause.READ_REJECTED),
        (errors.ForeignLink("x"), FailureCause.FOREIGN_LINK),
        (errors.LisUnavailable("x"), FailureCause.LIS_UNAVAILABLE),
        (errors.LisDiskFull("x"), FailureCause.LIS_DISK_FULL),
        (errors.LisNotLoaded("x"), FailureCause.LIS_NOT_LOADED),
        (errors.LisRejected("x"), FailureCause.LIS_REJECTED),
        (errors.ServiceRejected("x", status=422), FailureCause.WRITE_REJECTED),
        (errors.StaleVersion("x", status=412), FailureCause.WRITE_REJECTED),
        (errors.MultipleMatches("x", status=412), FailureCause.SEVERAL_MATCHES),
        (errors.ServiceRejected("x", status=403), FailureCause.NO_RIGHT),
        (errors.ResourceNotReadable("x", status=401), FailureCause.NO_RIGHT),
        (errors.ResourceNotReadable("x", status=404), FailureCause.READ_REJECTED),
        (errors.TaskUnreadable("x"), FailureCause.TASK_UNREADABLE),
        (errors.LisOutcomeUnknown("x"), FailureCause.LIS_OUTCOME_UNKNOWN),
        (errors.TemporaryFailure("x"), FailureCause.OTHER),
    ],
)
def test_each_failure_has_its_cause(failure: errors.Failure, expected: FailureCause) -> None:
    assert find_cause(failure) is expected


def test_issues_are_one_printable_line_each_and_bounded() -> None:
    many = tuple(OutcomeIssue("error", "invalid", f"element {number}\x1b[2J\nis wrong") for number in range(50))
    lines = format_issues((OutcomeIssue("fatal", "", ""), OutcomeIssue("error", "", "x" * 5000), *many)).splitlines()
    assert len(lines) == 10
    assert all(line.isprintable() and len(line) < 2300 for line in lines)
    assert lines[1] == "error invalid: element 0?[2J is wrong"
    assert format_issues(()) == ""


def test_alert_of_a_laboratory_system_names_it() -> None:
    of_system = {each for each in FailureCause if each.is_about_system}
    assert of_system == {"lis_unavailable", "lis_disk_full", "lis_outcome_unknown", "lis_rejected", "lis_not_loaded"}
    for cause in FailureCause:
        assert cause.alert_key("lis") == (cause.condition, "lis" if cause in of_system else "")
        assert CONDITIONS[cause.condition].mend


@pytest.mark.parametrize(
    ("severity", "code", "line"), [("error", "", "error: x"), ("", "invalid", "invalid: x"), ("", "", ": x")]
)
def test_issue_begins_with_what_it_is(severity: str, code: str, line: str) -> None:
    assert format_issues((OutcomeIssue(severity, code, " x "),)) == line
    assert len(format_issues((OutcomeIssue(severity, code, "x" * 5000),))) == len(line) - 1 + 2048 + 1
