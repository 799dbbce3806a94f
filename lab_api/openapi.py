"""The OpenAPI document of the API, made when somebody asks for it: most installations do not serve it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi

from lab_api import schemas

TITLE = "Laboratory API"
_OPERATIONS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("GET", "nomenclature", schemas.NOMENCLATURE, "Every item of a contract. The response may be cached as Cache-Control says."),
    ("GET", "eta", schemas.ETA, "The turnaround of every item of a contract. Revalidate it with each use."),
    ("POST", "questionnaire", schemas.QUESTIONNAIRE, "The questions of a whole basket."),
    ("POST", "preanalytics", schemas.PREANALYTICS, "The tubes of a whole basket."),
)


def build_document(prefix: str, token_path: str | None) -> dict[str, Any]:
    """The document of the four operations under `prefix`; `token_path` is where clients fetch short-lived tokens."""
    described = APIRouter(prefix=prefix)
    for method, name, operation, text in _OPERATIONS:
        described.add_api_route(f"/{name}", _undefined, methods=[method], name=name, description=text, **operation)
    document = get_openapi(title=TITLE, version="1", routes=described.routes)
    return schemas.add_security(document, token_path)


async def _undefined() -> None:
    """Stands in the description for the endpoint, a plain route of which FastAPI makes no description itself."""
