"""Conditions of the laboratory's public API, of its catalogue and of its labels."""

from __future__ import annotations

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import Affected, Condition, Severity

_API_PROBE = "the agent asks it every `monitoring.api_interval`, without a token, where [api] names who may call it"

API_CONDITIONS = (
    Condition(
        id=ConditionId.API_NOT_ANSWERING,
        severity=Severity.CRITICAL,
        title="The laboratory's API does not answer at its own address",
        cause="lab-api does not run, hangs, or another program has its port",
        affects="clinics cannot order: no nomenclature, no tubes, no labels",
        affected=Affected.NOTHING,
        mend="Start it. If it ends again, its log says why: journalctl -u lab-api.",
        command="systemctl start lab-api",
        noticed=_API_PROBE,
        opens="after two failures in a row",
        ends="with the next answer",
    ),
    Condition(
        id=ConditionId.API_NOT_PUBLIC,
        severity=Severity.CRITICAL,
        title="The laboratory's API does not answer at its public address",
        cause="it answers on this machine, and not from outside",
        affects="clinics cannot order: no nomenclature, no tubes, no labels",
        affected=Affected.NOTHING,
        mend=(
            "Mend what is named: the proxy, the certificate, the name or the firewall of `api.public_url`. Where this machine "
            "cannot reach its own public address, set `monitoring.public_api` to false."
        ),
        command="lab-agent check",
        noticed=_API_PROBE,
        opens="after two failures in a row",
        ends="with the next answer",
        covered_by=frozenset({ConditionId.API_NOT_ANSWERING}),
    ),
    Condition(
        id=ConditionId.API_CALLERS_REFUSED,
        severity=Severity.WARNING,
        title="Callers of the laboratory's API are refused ({subject})",
        cause="what they send is not what was agreed",
        affects="the clinics behind this caller cannot order",
        affected=Affected.AS_COUNTED,
        mend=(
            "Ask the partner which token and contract it uses. A token that has expired or was revoked needs a new one: "
            "lab-agent api-token create. Who asks too often needs a higher `api.rate`."
        ),
        command="lab-agent api-token list",
        noticed="lab-api counts the requests that it refuses, by reason and client",
        opens="at more than `monitoring.refused_callers_after` within an hour",
        ends="when none has come for an hour",
        subject="the reason, and the client where it is known",
    ),
    Condition(
        id=ConditionId.API_CATALOGUE_OUTDATED,
        severity=Severity.WARNING,
        title="The laboratory's API serves an old nomenclature",
        cause="it has not taken over the catalogue in force",
        affects="clinics order by an old catalogue, and their orders may be rejected or held",
        affected=Affected.NOTHING,
        mend="Restart it. If it serves the old one again, it uses another database: compare the settings of both programs.",
        command="systemctl restart lab-api",
        noticed="the version that it serves is compared with the one in force",
        opens="when they differ for some minutes",
        ends="when they are equal",
        covered_by=frozenset({ConditionId.API_NOT_ANSWERING, ConditionId.CATALOGUE_UNREADABLE}),
    ),
    Condition(
        id=ConditionId.CATALOGUE_UNREADABLE,
        severity=Severity.CRITICAL,
        title="The catalogue in force cannot be read",
        cause="its version in the database is damaged",
        affects="orders are held, and the API serves the newest version that can be read",
        affected=Affected.NOTHING,
        mend="Import it again.",
        command="lab-agent catalogue import SOURCE",
        noticed="each version is checked when it is read",
        opens="when it is read",
        ends="when it, or a newer one, can be read",
    ),
    Condition(
        id=ConditionId.CATALOGUE_INVALID,
        severity=Severity.WARNING,
        title="The changed catalogue is not valid, and the former one stays in force",
        cause="what `api.catalogue` names was changed, and has a mistake",
        affects="what was changed has no effect: clinics order by the former catalogue",
        affected=Affected.NOTHING,
        mend="Correct what is named, then reload both programs (systemctl reload lab-api lab-agent).",
        command="lab-agent catalogue check SOURCE",
        noticed="`api.catalogue` is read at every start and reload",
        opens="at the start or reload",
        ends="with the next import, or when what it names is valid again",
    ),
    Condition(
        id=ConditionId.LABELS_LOW,
        severity=Severity.WARNING,
        title="The label pool {subject} runs low",
        cause="few numbers are left in its range",
        affects="once it is used up, clinics cannot order",
        affected=Affected.NOTHING,
        mend="Give it a new range in [[api.pools]], and restart lab-api.",
        command="lab-agent check",
        noticed="labels are counted as they are issued",
        opens="below `warn_below` of the pool",
        ends="when it has more",
        subject="the pool",
    ),
    Condition(
        id=ConditionId.LABELS_EXHAUSTED,
        severity=Severity.CRITICAL,
        title="The label pool {subject} is used up",
        cause="no number is left in its range",
        affects="pre-analytics requests are answered with 503: clinics cannot order",
        affected=Affected.NOTHING,
        mend="Give it a new range in [[api.pools]], and restart lab-api.",
        command="lab-agent check",
        noticed="labels are counted as they are issued",
        opens="with the first request that gets none",
        ends="with the next that gets one",
        subject="the pool",
    ),
)
