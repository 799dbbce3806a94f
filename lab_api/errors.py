"""Errors as OperationOutcome (interface: Errors): what is wrong, where in the request, and how to fix it; never a traceback.

An outage is reported to the client with each request, and to the log once when it begins and once when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from lab_agent.catalogue.basket_errors import BasketProblem
from lab_agent.catalogue.label_allocation import PoolEmptyError
from lab_agent.shared import exact_json
from lab_agent.shared.errors import BasketError, DataInvalidError, LabAgentError, Problem, StoreError, UnknownContractError
from lab_agent.shared.logs import get_logger
from lab_agent.store.api_refusals import RefusalReason
from lab_api.refusals import count_refusal

_log = get_logger(__name__)

_STATUS_DIAGNOSTICS = {
    404: (
        "not-found",
        "path: not found — use nomenclature, eta, questionnaire or preanalytics under the agreed address",
    ),
}
_STRUCTURE_CODES = frozenset({"structure", "required", "value", "too-long"})


class ApiError(LabAgentError):
    """The request cannot be answered."""

    def __init__(self, status: int, code: str, diagnostics: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(diagnostics)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


class CredentialsError(ApiError):
    """Nobody, or nobody who may call (any more). `reason` and `client` are for our counts: the caller is not told."""

    def __init__(self, reason: RefusalReason | None, client: str, headers: Mapping[str, str]) -> None:
        diagnostics = "credentials: missing or invalid — send the bearer token (or user and password) agreed with the laboratory"
        super().__init__(401, "login", diagnostics, headers)
        self.reason = reason
        self.client = client


def operation_outcome(status: int, issues: Iterable[tuple[str, str]], headers: Mapping[str, str] | None = None) -> Response:
    """Make the response; an issue is a FHIR issue type and its diagnostics."""
    return Response(
        exact_json.dumps(operation_outcome_body(issues)),
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        "application/json",
    )


def operation_outcome_body(issues: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The resource alone."""
    listed = [{"severity": "error", "code": code, "diagnostics": diagnostics} for code, diagnostics in issues]
    return {"resourceType": "OperationOutcome", "issue": listed}


async def _handle_api_error(request: Request, exc: ApiError) -> Response:
    if isinstance(exc, CredentialsError):
        count_refusal(request, exc.status, exc.reason, exc.client)
    else:
        count_refusal(request, exc.status)
    return _api_error_response(exc)


async def _handle_unknown_contract(request: Request, exc: UnknownContractError) -> Response:
    count_refusal(request, 404)
    return operation_outcome(404, _issues(exc, "not-found"))


async def _handle_basket_error(request: Request, exc: BasketError) -> Response:
    """400 for a request of a wrong shape, 422 for one that the catalogue contradicts."""
    issues = _issues(exc, "business-rule")
    status = 400 if any(code in _STRUCTURE_CODES for code, _ in issues) else 422
    count_refusal(request, status)
    return operation_outcome(status, issues)


async def _handle_invalid_json(request: Request, exc: DataInvalidError) -> Response:
    count_refusal(request, 400)
    return operation_outcome(400, _issues(exc, "structure"))


async def _handle_http_exception(request: Request, exc: HTTPException) -> Response:
    """What Starlette's routing raises: no such path, or a method that the path does not take."""
    if exc.status_code == 405:
        return _method_not_allowed(request.method, (exc.headers or {}).get("Allow", ""))
    code, diagnostics = _STATUS_DIAGNOSTICS.get(exc.status_code, ("invalid", str(exc.detail)))
    return operation_outcome(exc.status_code, [(code, diagnostics)], exc.headers)


def _method_not_allowed(method: str, allow_header: str) -> Response:
    """Starlette names the methods in any order."""
    allowed = ", ".join(sorted(allow_header.split(", ")))
    diagnostics = f"method: {method[:20]} is not supported for this path — use {allowed}"
    return operation_outcome(405, [("not-supported", diagnostics)], {"Allow": allowed})


def service_unavailable(resource: str) -> ApiError:
    """A fault of ours that passes or is being repaired: the database is unavailable, or a pool of labels is empty."""
    diagnostics = f"{resource}: temporarily unavailable — try again, and tell the laboratory if it persists"
    return ApiError(503, "transient", diagnostics, {"Retry-After": "10"})


async def _handle_store_error(_: Request, exc: StoreError) -> Response:
    """The database is unavailable, and no route has said which resource needs it."""
    _log.error("database unavailable", action="api.store_unavailable", error=exc)
    return _api_error_response(service_unavailable("service"))


async def _handle_unexpected(_: Request, exc: Exception) -> Response:  # noqa: ARG001 - Starlette raises it again, and the server logs it
    return operation_outcome(500, [("exception", "service: internal error — try again, and tell the laboratory if it persists")])


EXCEPTION_HANDLERS: dict[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]] = {
    ApiError: _handle_api_error,
    UnknownContractError: _handle_unknown_contract,
    BasketError: _handle_basket_error,
    DataInvalidError: _handle_invalid_json,
    HTTPException: _handle_http_exception,
    StoreError: _handle_store_error,
    Exception: _handle_unexpected,
}
"""What makes an OperationOutcome of each failure of a request."""


def _api_error_response(exc: ApiError) -> Response:
    return operation_outcome(exc.status, [(exc.code, str(exc))], exc.headers)


def _issues(exc: Exception, default_code: str) -> list[tuple[str, str]]:
    problems: tuple[Problem, ...] = getattr(exc, "problems", ())
    return [(each.code if isinstance(each, BasketProblem) else default_code, str(each)) for each in problems]


class OutageReporter:
    """Which resources, for which contract, were unavailable at the last request for them."""

    def __init__(self) -> None:
        self._unavailable: set[tuple[str, str | None]] = set()

    @contextmanager
    def report_outage(self, resource: str, contract: str | None = None) -> Iterator[None]:
        """Around what provides `labels` or `documents`. Raises `ApiError` (503) for an unavailable database or an empty pool."""
        try:
            yield
        except (StoreError, PoolEmptyError) as exc:
            if (resource, contract) not in self._unavailable:
                self._unavailable.add((resource, contract))
                _log.error(f"{resource} unavailable", action=f"api.{resource}_unavailable", contract=contract, error=exc)
            raise service_unavailable(resource) from exc
        if (resource, contract) in self._unavailable:
            self._unavailable.discard((resource, contract))
            _log.info(f"{resource} available again", action=f"api.{resource}_restored", contract=contract)
