"""`python -m tools.translations`: bring the catalogues of the status page up to date with its texts.

New texts get an empty translation, and what is not used any more goes; a test names what is missing. Conditions have a catalogue
of their own (`conditions.po`), everything else is in `pages.po`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from lab_agent.lis.lab_messages import ObservationStatus, ReportStatus
from lab_agent.operations.accounts import Role
from lab_agent.orders.job_actions import describe_retry
from lab_agent.queue.job_records import JobKind
from lab_agent.results.hold_reasons import what_to_do
from lab_agent.results.records import HoldReason
from lab_agent.results.refused_message_actions import PartOutcome
from lab_agent.results.refused_records import RefusedState
from lab_agent.rules import rule
from lab_agent.shared.conditions.model import Severity
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.state_machines import REPORTS_NEEDING_OPERATOR, JobState, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.status import formatting, wording
from lab_agent.status.translation import LANGUAGES, LOCALES_FOLDER

_STATUS = LOCALES_FOLDER.parent
_METHODS = [("**.py", "python"), ("**.html", "jinja2")]
_KEYWORDS = {"gettext": None, "_": None, "ngettext": (1, 2), "marked": None, "HttpError": None}
_OPTIONS = {"**.html": {"trimmed": "true", "trim_blocks": "true", "lstrip_blocks": "true", "newstyle_gettext": "true"}}
_NO_DATE = datetime(2026, 1, 1, tzinfo=UTC)
"""Catalogues do not change by being written again."""
MessageId = str | tuple[str, str]


def condition_texts() -> set[MessageId]:
    """The texts of conditions that the page shows."""
    texts: set[MessageId] = set()
    for each in CONDITIONS.values():
        texts |= {each.title, each.cause, each.affects, each.mend, each.other_words, *each.subject_words.values()}
    return texts - {""}


def page_texts() -> set[MessageId]:
    """All other texts: those of templates and modules, and those that tables have."""
    found: set[MessageId] = set()
    for _, _, message, _, _ in extract_from_dir(str(_STATUS), _METHODS, _OPTIONS, keywords=_KEYWORDS):
        found.add(tuple(message[:2]) if isinstance(message, tuple) else message)
    return (found | set(_table_texts())) - condition_texts() - {""}


def _table_texts() -> Iterator[MessageId]:
    yield from (each.value for each in (*Severity, *Role, *rule.Severity, *PartOutcome))
    states = (*OrderState, *WorkOrderState, *LineState, *ReportState, *JobState)
    yield from (each.value.replace("_", " ") for each in states)
    others = (*RefusedState, *ReportStatus, *ObservationStatus, "unreadable", *formatting.MESSAGE_KINDS.values())
    yield from (str(each).replace("_", " ") for each in others)
    yield from wording.FORMS.values()
    yield from map(formatting.state_meaning, states)
    yield from map(formatting.job_kind_name, JobKind)
    yield from formatting.FLASH_MESSAGES.values()
    yield from formatting.NEXT_STEPS.values()
    yield from (what_to_do(state, reason) for state in REPORTS_NEEDING_OPERATOR for reason in (None, *HoldReason))
    yield from (describe_retry(kind, state) for kind in JobKind for state in (JobState.DUE, JobState.NEEDS_REVIEW))


CATALOGUES = {"conditions.po": condition_texts, "pages.po": page_texts}


def read_catalogue(path: Path, language: str) -> Catalog:
    """Read a catalogue; an empty one where there is none yet."""
    if not path.exists():
        return Catalog(locale=language)
    with path.open("rb") as opened:
        return read_po(opened, locale=language)


def update(path: Path, language: str, wanted: set[MessageId], known: Mapping[MessageId, object]) -> int:
    """Write the catalogue with these texts, and what is `known` of them; the number of those without a translation."""
    made = Catalog(locale=language, fuzzy=False, project="lab-agent", creation_date=_NO_DATE, revision_date=_NO_DATE)
    made.header_comment = (
        f"# {LANGUAGES[language]}: texts of the status page. `python -m tools.translations` keeps it up to date."
    )
    missing = 0
    for text in sorted(wanted, key=str):
        translation = known.get(text) or (("",) * made.num_plurals if isinstance(text, tuple) else "")
        missing += not (all(translation) if isinstance(translation, tuple | list) else translation)
        made.add(text, translation)
    written = io.BytesIO()
    write_po(written, made, width=120, sort_output=True)
    path.write_bytes(written.getvalue())
    return missing


def main() -> None:
    """Update all catalogues. Exit code 1 if a translation is missing."""
    missing = 0
    for language in sorted(set(LANGUAGES) - {"en"}):
        folder = LOCALES_FOLDER / language
        files = [read_catalogue(folder / name, language) for name in CATALOGUES]
        known = {_key(message.id): message.string for each in files for message in each if message.id}
        for name, texts in CATALOGUES.items():
            number = update(folder / name, language, texts(), known)
            print(f"{language}/{name}: {number} without a translation")
            missing += number
    sys.exit(1 if missing else 0)


def _key(text: object) -> MessageId:
    return tuple(text) if isinstance(text, list | tuple) else str(text)  # type: ignore[return-value]


if __name__ == "__main__":
    main()
