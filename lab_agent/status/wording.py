"""The texts of conditions in the language of the request. The table has them in English, once for all channels."""

from __future__ import annotations

from lab_agent.shared.conditions.model import AffectedCount, Condition, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.status.translation import gettext, ngettext


def _fill(condition: Condition, text: str, subject: str) -> str:
    words = gettext(condition.subject_words.get(subject, "")) or gettext(condition.other_words)
    words = words or gettext("see the reason of each")  # so that no text ends in a colon
    return gettext(text).replace("{words}", words).replace("{subject}", subject)


def title_of(each: OpenCondition) -> str:
    """The first sentence, about its subject."""
    return _fill(each.condition, each.condition.title, each.subject)


def cause_of(each: OpenCondition) -> str:
    """What is behind it, and what was found this time."""
    cause = _fill(each.condition, each.condition.cause, each.subject)
    return f"{cause}: {each.detail}" if each.detail else cause


def cause_about(condition: Condition, subject: str) -> str:
    """What is behind a condition, as the table says it."""
    return _fill(condition, condition.cause, subject)


def mend_of(each: OpenCondition) -> str:
    """What to do."""
    return _fill(each.condition, each.condition.mend, each.subject)


def affects_of(condition: Condition) -> str:
    """What waits, or may go wrong, because of it."""
    return gettext(condition.affects)


def explain(condition: Condition, subject: str = "") -> str:
    """What is wrong, and what to do about it, in two sentences."""
    entry = CONDITIONS[condition.id]
    return f"{_fill(entry, entry.title, subject)}. {_fill(entry, entry.mend, subject)}"


def affected_text(each: AffectedCount) -> str:
    """How many of something wait, as in `3 orders to fetch`."""
    one, many = FORMS.get((each.noun, each.rest), FORMS["item", ""])
    text = ngettext(one, many, each.number) % {"num": each.number}
    return text if each.is_exact else gettext("more than %(what)s") % {"what": text}


FORMS = {
    ("item", ""): ("%(num)d item", "%(num)d items"),
    ("order", ""): ("%(num)d order", "%(num)d orders"),
    ("line", ""): ("%(num)d line", "%(num)d lines"),
    ("result", ""): ("%(num)d result", "%(num)d results"),
    ("job", ""): ("%(num)d job", "%(num)d jobs"),
    ("message", ""): ("%(num)d message", "%(num)d messages"),
    ("request", ""): ("%(num)d request", "%(num)d requests"),
    ("unfinished order", ""): ("%(num)d unfinished order", "%(num)d unfinished orders"),
    ("unfinished result", ""): ("%(num)d unfinished result", "%(num)d unfinished results"),
    ("order", " to fetch"): ("%(num)d order to fetch", "%(num)d orders to fetch"),
    ("result", " to deliver"): ("%(num)d result to deliver", "%(num)d results to deliver"),
    ("Task", " to update"): ("%(num)d Task to update", "%(num)d Tasks to update"),
    ("order", " to hand over"): ("%(num)d order to hand over", "%(num)d orders to hand over"),
    ("line", " without a result"): ("%(num)d line without a result", "%(num)d lines without a result"),
}
"""By noun and what follows it (`AffectedCount`): the text for one and for several."""
