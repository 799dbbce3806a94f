"""The environment of all templates: values are escaped, texts are looked up in the language of the request."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lab_agent.lis import value_text
from lab_agent.operations.page_lists import find_group, find_list
from lab_agent.results.hold_reasons import what_to_do
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.systemd_units import typed
from lab_agent.shared.text import shorten
from lab_agent.shared.url_origin import origin_of
from lab_agent.status import formatting, wording
from lab_agent.status.page_look import THEMES, current_look
from lab_agent.status.translation import LANGUAGES, current_language, gettext, ngettext

Navigation = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


def navigation(*, is_admin: bool) -> Navigation:
    """The pages by their headings, in the language of the request; some are for admins alone."""
    of_admins = ((gettext("People"), (("/audit", gettext("Audit")), ("/users", gettext("Users")))),)
    return (
        (
            gettext("Work"),
            (
                ("/", gettext("Overview")),
                ("/orders", gettext("Orders")),
                ("/waiting", gettext("Waiting for you")),
                ("/results", gettext("Match desk")),
                ("/refused", gettext("Refused messages")),
                ("/failures", gettext("Failures")),
            ),
        ),
        (gettext("Catalogue"), (("/catalogue", gettext("Catalogue")), ("/turnaround", gettext("Turnaround")))),
        (
            gettext("Operation"),
            (
                ("/alerts", gettext("Alerts")),
                ("/connection", gettext("Connection")),
                ("/adapters", gettext("Laboratory systems")),
                ("/rules", gettext("Rules")),
            ),
        ),
        *(of_admins if is_admin else ()),
    )


TEMPLATE_FOLDER = Path(__file__).parent / "templates"


@cache
def create_environment() -> Environment:
    """Make it, once for a process, which compiles the templates once.

    Control characters are escaped, too, and an undefined variable is an error.
    """
    made = Environment(
        loader=FileSystemLoader(TEMPLATE_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=formatting.without_control_characters,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
        auto_reload=False,  # in an upgrade, this process keeps the templates that belong to its code
        cache_size=-1,
    )
    made.install_gettext_callables(gettext, ngettext, newstyle=True)  # type: ignore[attr-defined]  # of the extension
    made.policies["ext.i18n.trimmed"] = True
    made.filters |= {
        "timestamp": formatting.format_timestamp,
        "clock_time": lambda text: text[-8:],
        "state_meaning": formatting.state_meaning,
        "state_name": formatting.state_name,
        "job_kind_name": formatting.job_kind_name,
        "explain_cause": lambda cause: wording.explain(CONDITIONS[cause.condition]),
        "observation_value": formatting.format_observation,
        "file_size": formatting.format_size,
        "concept": value_text.format_concept,
        "reference_ranges": value_text.format_reference_ranges,
        "order_references": formatting.order_references,
        "shortened": shorten,
        "host": lambda address: origin_of(address).host,
        "with_code": formatting.with_code,
        "typed": typed,
        "told_title": lambda key: CONDITIONS[key.condition].fill(gettext(CONDITIONS[key.condition].title), key.subject),
        "title_of": wording.title_of,
        "cause_of": wording.cause_of,
        "mend_of": wording.mend_of,
        "affects_of": wording.affects_of,
        "affected_text": wording.affected_text,
        "general": lambda text, condition: condition.fill(gettext(text), "…"),
        "rule_text": formatting.rule_text,
    }
    made.globals |= {
        "next_step": formatting.next_step,
        "alert_text": formatting.alert_text,
        "what_to_do": what_to_do,
        "group_page": find_group,
        "list_page": find_list,
        "retry_explanation": formatting.retry_explanation,
        "navigation": navigation,
        "current_look": current_look,
        "current_language": current_language,
        "languages": LANGUAGES,
        "themes": THEMES,
    }
    return made
