"""The page that says what is wrong with the database: in place of any page that needs it, and while the daemon waits for it.

It reads nothing and knows nobody, so whoever reaches the port may see it. That is why it leaves out what was found this time: it
names paths, hosts and processes. The log and `lab-agent check` have it. (Who asks from this machine cannot be told apart: behind
a reverse proxy everybody does.)
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from starlette.requests import Request
from starlette.responses import HTMLResponse

from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.text import format_age
from lab_agent.status.templating import create_environment

_RETRY_SECONDS = "10"


def for_anybody(condition: OpenCondition) -> OpenCondition:
    """Leave out what is for those alone who have an account on the machine."""
    return replace(condition, detail="")


def render_store_page(request: Request, condition: OpenCondition, now: datetime) -> HTMLResponse:
    """Give the page with status 503; a browser that only looked asks again by itself."""
    age = format_age(condition.since, now)
    html = create_environment().get_template("store_error.html").render(account=None, condition=for_anybody(condition), age=age)
    headers = {"Retry-After": _RETRY_SECONDS} | ({"Refresh": _RETRY_SECONDS} if request.method == "GET" else {})
    return HTMLResponse(html, 503, headers=headers)
