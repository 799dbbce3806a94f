"""How long what is finished is kept. What is unfinished is kept until it ends."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from lab_agent.settings.base import SettingsGroup

Days = Annotated[int, Field(ge=1, le=36500)]


class RetentionSettings(SettingsGroup):
    """Days after which finished work is removed. Unfinished work is never removed."""

    identity_days: Days = 30
    """Days that names, birth dates and contacts are kept after an order was closed."""
    document_days: Days = 30
    """Days that documents are kept after they were delivered."""
    journal_days: Days = 730
    """Days that a closed order and its timeline are kept."""
    label_days: Days = 90
    """Days for which a basket that is asked again gets the labels that it was given. After that only the barcodes are kept, so
    that none is ever given again."""
    catalogue_days: Days = 90
    """Days that a catalogue version is kept after it was replaced. The last ten are kept in any case, and each for as long as an
    order may still be judged by it (`rules.look_back_days`)."""
    failure_days: Annotated[Days, Field(ge=90)] = 180
    """Days that failures (refused, parked, dismissed) stay visible; at least 90."""
