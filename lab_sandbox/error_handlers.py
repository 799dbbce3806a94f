"""Every error is answered with an OperationOutcome and a status of 400 or above, never with a stack trace."""

from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from lab_sandbox.errors import HttpError, Issue, operation_outcome
from lab_sandbox.exact_json import encode
from lab_sandbox.oauth import OAuthError
from lab_sandbox.openapi_schemas import OPERATION_OUTCOME

ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": "An OperationOutcome that names the element and the rule.",
        "content": {"application/json": {"schema": OPERATION_OUTCOME}},
    }
    for status in ("4XX", "5XX")
}
"""The error responses of every route in the OpenAPI description."""


def add_error_handlers(app: FastAPI) -> None:
    """Adds handlers for our own errors, those of the framework, and unexpected ones."""
    app.add_exception_handler(HttpError, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_framework_error)
    app.add_exception_handler(Exception, _handle_unexpected_error)


async def _handle_http_error(_request: Request, exc: Exception) -> Response:
    if not isinstance(exc, HttpError):
        raise exc
    body = operation_outcome(exc.issues)
    if isinstance(exc, OAuthError):
        body |= {"error": exc.error, "error_description": exc.description}
    return Response(encode(body), exc.status, exc.headers, "application/json")


async def _handle_validation_error(_request: Request, exc: Exception) -> Response:
    errors = exc.errors() if isinstance(exc, RequestValidationError) else []
    issues = [Issue("invalid", f"{'.'.join(map(str, one['loc']))}: {one['msg']}") for one in errors]
    return Response(encode(operation_outcome(issues or [Issue("invalid", "request: invalid")])), 400, None, "application/json")


async def _handle_framework_error(request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    headers = dict(exc.headers or {}) if isinstance(exc, HTTPException) else {}
    code = "not-found" if status == 404 else "not-supported"
    issue = Issue(code, f"{request.method} {request.url.path}: not in the endpoint table")
    return Response(encode(operation_outcome([issue])), status, headers, "application/json")


async def _handle_unexpected_error(_request: Request, _exc: Exception) -> Response:
    """The exception goes to the server's log; the client gets no internal details."""
    issue = Issue("exception", "service: internal error, nothing was changed", "fatal")
    return Response(encode(operation_outcome([issue])), 500, None, "application/json")
