"""What the address of a page asks for: a part of a list, a search. Nonsense asks for nothing."""

from __future__ import annotations

from starlette.requests import Request

from lab_agent.ports.views import DEFAULT_PAGE_SIZE
from lab_agent.status.gate import one_line

_MAX_SEARCH_LENGTH = 200
_MAX_PAGE_NUMBER = 100_000


def page_number(request: Request) -> int:
    """The number of the page, from 1."""
    asked = request.query_params.get("page", "1")
    return min(int(asked), _MAX_PAGE_NUMBER) if asked.isascii() and asked.isdigit() and len(asked) < 10 and int(asked) else 1


def page_offset(number: int) -> int:
    """How many items stand before the page of this number."""
    return (number - 1) * DEFAULT_PAGE_SIZE


def search_text(request: Request) -> str:
    """What is searched for, as one line; empty for nothing."""
    return one_line(request.query_params.get("search", ""))[:_MAX_SEARCH_LENGTH]
