"""Choosing a language or a theme: a form that works for whoever is not signed in, too."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.status.auth import Viewer
from lab_agent.status.context import Renderer
from lab_agent.status.forms import UnverifiedForm
from lab_agent.status.page_look import LOOK_COOKIE, THEMES, read_preferences
from lab_agent.status.session_start import local_path
from lab_agent.status.translation import LANGUAGES

router = APIRouter()
_A_YEAR = 365 * 86_400


@router.get("/keys")
async def show_keys(user: Viewer, renderer: Renderer) -> Response:
    """The list of keys."""
    return await renderer.render_page("keys.html", user)


@router.post("/preferences")
async def save_preferences(request: Request, form: UnverifiedForm) -> Response:
    """Keep the chosen language or theme, and go back to the page."""
    before = read_preferences(request)
    language = form.get("language", before.language or "")
    theme = form.get("theme", before.theme)
    response = RedirectResponse(local_path(form.get("next", "/")), 303)
    value = f"{language if language in LANGUAGES else ''}-{theme if theme in THEMES else 'auto'}"
    secure = request.url.scheme == "https"
    response.set_cookie(LOOK_COOKIE, value, max_age=_A_YEAR, httponly=True, samesite="strict", secure=secure)
    return response
