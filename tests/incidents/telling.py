"""Whether an incident is told: each channel is held against the table of conditions, in up to four points.

The points are those of whoever is woken: the cause, since when, what it affects, and the mend. What cannot be known there is left
out of a channel's maximum: a log line does not count what waits, and `/readyz` names conditions for machines.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lab_agent.operations.report import list_conditions
from lab_agent.shared.conditions.model import AlertKey, OpenCondition, Severity
from lab_agent.shared.conditions.table import CONDITIONS
from tests.incidents.laboratory import Laboratory

TOLERANCE = timedelta(seconds=2)
"""By which a beginning may be told too early: what is first due may have been so before the incident was complete."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What should be told since `began`: `affected` are texts such as `1 order to fetch`, none where nothing is counted."""

    key: AlertKey
    affected: Sequence[str]
    began: datetime

    @property
    def words(self) -> OpenCondition:
        """The table's words about this subject."""
        return OpenCondition(condition=CONDITIONS[self.key.condition], subject=self.key.subject, since=self.began)

    def is_beginning(self, since: datetime) -> bool:
        """Whether it may have begun then: from shortly before the incident until it was told."""
        return self.began - TOLERANCE <= since <= datetime.now(UTC) + TOLERANCE


@dataclass(frozen=True, slots=True)
class Score:
    """What one channel tells: the points by name, True where it is told. Points that cannot be known are missing."""

    channel: str
    points: Mapping[str, bool]
    shown: str

    @property
    def missing(self) -> list[str]:
        return [name for name, is_told in self.points.items() if not is_told]


def score_page(lab: Laboratory, expected: Expected) -> Score:
    """The overview: the condition stands in the list, with the table's words."""
    answer = lab.page("/")
    source = html.unescape(answer.text)
    items = re.findall(r'<li class="item condition.*?</li>|<section class="card.*?</section>', source, flags=re.DOTALL)
    item = next((each for each in items if expected.words.title in each), "")
    times = [datetime.fromisoformat(each) for each in re.findall(r'datetime="([^"]+)"', item)]
    shown = f"{answer.status_code} {' '.join(_text_of(source).split())[:1500]}"
    return Score("page", _points(expected, _text_of(item), times), shown)


def score_check(lab: Laboratory, expected: Expected) -> Score:
    """`lab-agent check --json` and `lab-agent check`, each with the exit code of what is worst."""
    with ThreadPoolExecutor() as pool:
        done, text = pool.map(lambda words: lab.run("check", *words), (["--json"], []))
    found = [each for each in _json(done.stdout).get("conditions", []) if _key_of(each) == expected.key]
    told = " ".join(f"{each['title']} {each['cause']} {each['mend']} {each['command']}" for each in found)
    told += " ".join(one["text"] for each in found for one in each["affected"])
    points = _points(expected, told, [datetime.fromisoformat(each["since"]) for each in found])
    shown = _plain(text.stdout)
    points["in words"] = _plain(expected.words.title) in shown and _plain(expected.words.mend) in shown
    points["exit code"] = {done.returncode, text.returncode} == {_exit_code(expected, _json(done.stdout))}
    return Score("check", points, text.stdout + text.stderr)


def _exit_code(expected: Expected, said: Mapping[str, Any]) -> int:
    """2 for what is critical, also where something else is, 1 for a warning; for a notice, what else was found decides."""
    severities = {expected.words.condition.severity, *(each["severity"] for each in said.get("conditions", []))}
    return 2 if Severity.CRITICAL in severities else int(Severity.WARNING in severities or bool(said.get("wrong")))


def score_readyz(lab: Laboratory, expected: Expected) -> Score:
    """It lists the condition with its beginning and what waits, and is unready where no work can be accepted."""
    answer = lab.readyz()
    id_, subject = expected.key
    found = [each for each in answer.json()["conditions"] if (each["id"], each.get("subject", subject)) == (id_, subject)]
    in_full = any("title" in each for each in found)  # while nobody can sign in, ids and severities alone
    points = {
        "cause": [each.get("title", expected.words.title) for each in found] == [expected.words.title],
        "since": any(expected.is_beginning(datetime.fromisoformat(each["since"])) for each in found),
        "status": (answer.status_code == 503) == expected.words.condition.is_unready,
    }
    if expected.affected and in_full:
        counted = [one["text"] for each in found for one in each["affected"]]
        points["affected"] = all(any(text in one for one in counted) for text in expected.affected)
    return Score("readyz", points, f"{answer.status_code} {answer.text}")


def score_log(lab: Laboratory, expected: Expected) -> Score:
    """One line names the condition when it begins, as a warning or an error, with a time."""
    lines = [each for each in lab.log_lines() if str(expected.key) in {each.get("alert"), each.get("outage")}]
    starts = [each for each in lines if each.get("level") in {"warning", "error", "critical"}]
    timed = all({"time", "timestamp", "at"} & set(each) for each in starts)
    points = {"cause": len(starts) >= 1, "once": len(starts) <= 1, "since": timed}
    return Score("log", points, "\n".join(json.dumps(each) for each in lab.log_lines()[-15:]))


def score_alert(lab: Laboratory, expected: Expected) -> Score:
    """The alert is open in the database, with its beginning, and what it affects is counted."""
    alerts, numbers = lab.alerts()
    found = [each for each in list_conditions(alerts, numbers) if each.key == expected.key]
    told = " ".join(
        f"{each.title} {each.cause} {each.mend} {each.command} {', '.join(map(str, each.affected))}" for each in found
    )
    return Score("alert", _points(expected, told, [each.since for each in found]), "\n".join(str(each) for each in alerts))


SCORES: Mapping[str, Callable[[Laboratory, Expected], Score]] = {
    "page": score_page,
    "check": score_check,
    "readyz": score_readyz,
    "log": score_log,
    "alert": score_alert,
}


def _points(expected: Expected, told: str, times: Sequence[datetime]) -> dict[str, bool]:
    words, text = expected.words, _plain(told)
    points = {
        "cause": _plain(words.title) in text and _plain(words.cause) in text,
        "since": bool(times) and expected.is_beginning(times[0]),
        "mend": _plain(words.mend) in text and _plain(words.command) in text,
    }
    if expected.affected:
        points["affected"] = all(_plain(each) in text for each in expected.affected)
    return points


def _key_of(each: Mapping[str, Any]) -> AlertKey:
    return AlertKey.parse(f"{each['condition']}/{each['subject']}" if each["subject"] else each["condition"])


def _text_of(source: str) -> str:
    return re.sub(r"<[^>]+>", " ", source)


def _plain(text: str) -> str:
    """A text without white space and backticks, which a page shows in another way than a terminal."""
    return "".join(text.split()).replace("`", "")


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
