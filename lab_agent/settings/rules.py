"""How strictly orders are judged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lab_agent.settings.base import Seconds, SettingsGroup

SeveritySetting = Literal["refuse", "hold", "warn", "off"]


def _check_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"is no regular expression: {exc}") from exc
    return text


class RulesSettings(SettingsGroup):
    """The judgement of orders. `[rules.severities]` overrides the severity of single rules."""

    severities: dict[str, SeveritySetting] = Field(default_factory=dict)
    """Rule id to `refuse`, `hold`, `warn` or `off`; a rule that is not named keeps its own. `lab-agent rules` lists them."""
    refusal_limit: Annotated[int, Field(ge=1)] = 20
    """So many refusals by one rule within `refusal_window` stop it from refusing: orders are held instead, with an alert."""
    refusal_window: Seconds = 3600.0
    """Seconds over which `refusal_limit` counts."""
    look_back_days: Annotated[int, Field(ge=1, le=366)] = 7
    """Days that an order may have been under way before the agent saw it, as after a long outage: it is judged by the catalogue
    versions of that time. Orders that wait in the journal are judged by the versions of their time however long they wait."""
    future_tolerance: Seconds = 300.0
    """Seconds that a clinic's clock may be ahead of ours."""
    alignment_tolerance: Seconds = 900.0
    """Seconds by which the samples of a glucose tolerance test may miss their time points."""
    label_pattern: Annotated[str, AfterValidator(_check_regex)] = r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}"
    """Regular expression that the whole of a barcode must fit."""
    messages: Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")] = "en"
    """Language of the reasons that a clinic reads. `en` is built in; any other is the file `<language>.toml` in
    `messages_folder`, with a sentence for every rule."""
    messages_folder: Path = Path("config/messages")
    """Folder of the translated reasons."""
