"""What pages of lists share: what they are searched for and filtered by, and what they say after an action."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from lab_agent.status.formatting import flash_message
from lab_agent.status.forms import one_line

_MAX_SEARCH_LENGTH = 200


async def search_text(search: str = "") -> str:
    """What is searched for, as one line; empty for no search."""
    return one_line(search)[:_MAX_SEARCH_LENGTH]


SearchText = Annotated[str, Depends(search_text)]
StateNames = Annotated[list[str], Query(alias="state", default_factory=list)]
"""The states that a list is filtered by; what is no state is ignored."""
Flash = Annotated[str | None, Depends(flash_message)]
"""What a page says after an action redirected to it."""
