"""Conditions of jobs, one for each cause of which they fail: those that are tried again, and those that were set aside."""

from __future__ import annotations

from functools import partial

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import Affected, Condition, Severity

_at_exchange = partial(
    Condition,
    severity=Severity.WARNING,
    affects="this work waits: what is tried again follows by itself, what was set aside waits for a person",
    affected=Affected.AS_COUNTED,
    noticed="each attempt is recorded with its cause",
    opens="when a job has failed for `monitoring.alert_after` or `monitoring.alert_after_attempts` times, or was set aside",
    ends="when none fails of this cause any more",
    page="/waiting",
)
_at_lis = partial(_at_exchange, subject="the laboratory system")

JOB_CONDITIONS = (
    _at_exchange(
        id=ConditionId.JOBS_SIGN_IN,
        title="Work fails because the exchange service does not accept our sign-in",
        cause="the credentials are not accepted",
        mend="Sign in again, or correct [exchange.oauth].",
        command="lab-agent login",
        covered_by=frozenset({ConditionId.EXCHANGE_SIGN_IN}),
    ),
    _at_exchange(
        id=ConditionId.JOBS_SERVICE_UNAVAILABLE,
        title="Work fails because the exchange service does not answer it",
        cause="the service does not answer, or with an error of its own",
        mend="Ask whoever runs the service.",
        command="lab-agent check",
        covered_by=frozenset({ConditionId.EXCHANGE_UNAVAILABLE}),
    ),
    _at_exchange(
        id=ConditionId.JOBS_SERVICE_ASKS_TO_WAIT,
        title="Work fails because the exchange service asks to wait again and again",
        cause="it answers with Retry-After",
        mend="Lower `exchange.max_concurrency`, and ask whoever runs the service for its limits.",
        covered_by=frozenset({ConditionId.EXCHANGE_ASKS_TO_WAIT}),
    ),
    _at_exchange(
        id=ConditionId.JOBS_OUTCOME_UNKNOWN,
        title="The exchange service does not confirm what is written to it",
        cause="it can be read, and a write is answered with an error of its own or not at all",
        mend="Ask whoever runs the service. What was written is found again, and nothing is written twice.",
    ),
    _at_exchange(
        id=ConditionId.JOBS_INVALID_RESPONSE,
        title="The exchange service answers with other JSON than the interface's",
        cause="what came back cannot be read",
        mend="Ask whoever runs the service.",
    ),
    _at_exchange(
        id=ConditionId.JOBS_READ_REJECTED,
        title="The exchange service rejects reads or searches",
        cause="what is read does not exist any more, or a search is not offered",
        mend="Check `exchange.paths`, and ask whoever runs the service.",
        command="lab-agent check",
    ),
    _at_exchange(
        id=ConditionId.JOBS_TASK_UNREADABLE,
        title="Orders are not handed over, since their Tasks cannot be read",
        cause="right before a handover the Tasks are read once more, and the exchange service does not give them",
        mend="Ask whoever runs the service, or the partner, for the right to read them. The orders follow by themselves.",
        command="lab-agent check",
    ),
    _at_exchange(
        id=ConditionId.JOBS_WRITE_REJECTED,
        title="The exchange service rejects what is written to it",
        cause="it takes something in it for wrong",
        mend="Read what the service said; correct what it names, then retry them together.",
        command="lab-agent outbox retry --cause write_rejected",
    ),
    _at_exchange(
        id=ConditionId.JOBS_NO_RIGHT,
        title="The exchange service denies us the right",
        cause="it answered 403, or 401 with a fresh token, to one resource",
        mend="Ask whoever runs the service for the right, then retry them together.",
        command="lab-agent outbox retry --cause no_right",
    ),
    _at_exchange(
        id=ConditionId.JOBS_SEVERAL_MATCHES,
        title="The exchange service has several resources with one identifier of ours",
        cause="it answered 412 to If-None-Exist",
        mend="Ask whoever runs the service to remove the wrong one, then retry them together.",
        command="lab-agent outbox retry --cause several_matches",
    ),
    _at_exchange(
        id=ConditionId.JOBS_NEWER_ON_SERVICE,
        title="The exchange service has a later version of a result than the one to be uploaded",
        cause="it was issued later, and the database does not know it: the database was restored from a backup",
        mend=(
            "Compare the two on the status page. If the later one is right, dismiss these; else have the laboratory system send "
            "the result again, issued anew."
        ),
        command="lab-agent outbox dismiss --cause newer_on_service",
    ),
    _at_exchange(
        id=ConditionId.JOBS_FOREIGN_LINK,
        title="The exchange service leads to another address",
        cause="a redirect or a `next` link names another origin, which gets no token",
        mend="Set `exchange.base_url` to the address that the service knows itself by.",
        command="lab-agent check",
        covered_by=frozenset({ConditionId.EXCHANGE_FOREIGN_LINKS}),
    ),
    _at_lis(
        id=ConditionId.JOBS_LIS_UNAVAILABLE,
        title="The laboratory system {subject} does not take what is sent to it",
        cause="it is unavailable, or asks to come again",
        mend="Check that it runs, and the way to it.",
        command="lab-agent check",
        covered_by=frozenset({ConditionId.LIS_UNAVAILABLE}),
    ),
    _at_lis(
        id=ConditionId.JOBS_LIS_DISK_FULL,
        severity=Severity.CRITICAL,
        title="The disk of the laboratory system {subject} is full",
        cause="an order cannot be written to its folder",
        mend="Make room there, or mend the share. The orders follow by themselves.",
    ),
    _at_lis(
        id=ConditionId.JOBS_LIS_OUTCOME_UNKNOWN,
        title="The laboratory system {subject} does not acknowledge what is sent to it",
        cause="nothing came back in time",
        mend="Check its interface: does it receive, and does it answer?",
        command="lab-agent check",
    ),
    _at_lis(
        id=ConditionId.JOBS_LIS_REJECTED,
        title="The laboratory system {subject} rejects orders",
        cause="it takes something in them for wrong",
        mend="Read its reason; correct the map or the laboratory system, then retry them together.",
        command="lab-agent outbox retry --cause lis_rejected --system {subject}",
    ),
    _at_lis(
        id=ConditionId.JOBS_LIS_NOT_LOADED,
        title="Work for the laboratory system {subject} waits for its adapter",
        cause="the adapter is not loaded",
        mend="Correct what it names in [lis.{subject}], then restart the agent.",
        command="lab-agent check",
        covered_by=frozenset({ConditionId.LIS_NOT_LOADED, ConditionId.LIS_REMOVED}),
    ),
    _at_exchange(
        id=ConditionId.JOBS_INTERNAL_ERROR,
        title="Work failed with an internal error",
        cause="a fault of this program; the log has the details",
        mend="Report it, then retry them together.",
        command="lab-agent outbox retry --cause internal_error",
    ),
    _at_exchange(
        id=ConditionId.JOBS_OTHER,
        title="Work fails",
        cause="see the reason of each",
        mend="See the reason of each.",
        command="lab-agent outbox list",
    ),
)
