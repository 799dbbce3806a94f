"""The number of a list's page in the address, and what it means."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from lab_agent.store.read_models import DEFAULT_PAGE_SIZE

_MAX_PAGE_NUMBER = 100_000


async def page_number(page: str = "1") -> int:
    """The number of the page, from 1; nonsense is the first page."""
    return min(int(page), _MAX_PAGE_NUMBER) if page.isascii() and page.isdigit() and len(page) < 10 and int(page) else 1


PageNumber = Annotated[int, Depends(page_number)]


def page_offset(number: int) -> int:
    """How many items stand before the page of this number."""
    return (number - 1) * DEFAULT_PAGE_SIZE
