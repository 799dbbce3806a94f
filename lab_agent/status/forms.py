"""Forms of the status page: read within limits, and taken only from a page of ours that this session was given.

An action declares `form: Form`, which checks the CSRF token and the origin.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends
from starlette.requests import Request

from lab_agent.orders.job_actions import validate_note
from lab_agent.shared.errors import InputError
from lab_agent.status.auth import HttpError, Viewer
from lab_agent.status.translation import gettext

MAX_FORM_BYTES = 16_384
_MAX_FORM_FIELDS = 400
"""A large order has a tick for each of its lines."""


def require_same_origin(request: Request) -> None:
    """Raise `HttpError` if the browser says that another site sent the form."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if (origin is not None and urlsplit(origin).netloc != host) or site not in {"same-origin", "none"}:
        raise HttpError(gettext("This form came from another site; nothing was done."))


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form; the last value of a repeated one. Raises `HttpError`, also for a form of another site."""
    require_same_origin(request)
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HttpError(gettext("This is not a form of this page."), 415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise HttpError(gettext("The form is too large."), 413)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS))
    except ValueError as exc:
        raise HttpError(gettext("The form cannot be read."), 400) from exc


UnverifiedForm = Annotated[Mapping[str, str], Depends(read_form)]
"""For signing in alone: whoever has no session yet has no CSRF token."""


async def verify_csrf_token(user: Viewer, form: UnverifiedForm) -> Mapping[str, str]:
    """The fields of a form that a page of this session has sent. Raises `LoginRequired` and `HttpError`."""
    if not hmac.compare_digest(form.get("csrf_token", "").encode(), user.session.csrf_token.encode()):
        raise HttpError(gettext("This form does not belong to your current session. Open the page again and repeat the action."))
    return form


Form = Annotated[Mapping[str, str], Depends(verify_csrf_token)]


def one_line(text: str) -> str:
    """Text as one line, without characters that nobody types and no database accepts, such as NUL."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


async def read_note(form: Form) -> str:
    """The note of an action. Raises `HttpError` where it is empty or too long."""
    try:
        return validate_note(one_line(form.get("note", "")))
    except InputError as exc:
        raise HttpError(str(exc), 422) from exc


Note = Annotated[str, Depends(read_note)]
