"""The sheet that a laboratory sends for its registration at the exchange service."""

from __future__ import annotations

from lab_agent.cli.shown import Row
from lab_agent.settings.root import Settings

_API_ENDPOINTS = ("GET nomenclature", "GET eta", "POST questionnaire", "POST preanalytics")
_NO_PUBLIC_URL = "(not known yet: set api.public_url)"


def registration_sheet(settings: Settings, token: str) -> Row:
    """Public address, callback address and credentials for calls to the laboratory's API; the token is shown this once."""
    address = (settings.api.public_url or "").rstrip("/")
    oauth = settings.exchange.oauth
    calls = [call.split() for call in _API_ENDPOINTS if address]
    return {
        "laboratory": settings.exchange.laboratory,
        "contracts": sorted(settings.exchange.contracts),
        "public_address": address or _NO_PUBLIC_URL,
        **{name: f"{method} {address}/{name}" for method, name in calls},
        "authorization": f"Authorization: Bearer {token}",
        "callback_address": oauth.redirect_uri or f"(none: the laboratory signs in by {oauth.grant})",
        "client_id": oauth.client_id,
    }
