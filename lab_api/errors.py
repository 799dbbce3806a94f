"""Errors as OperationOutcome (interface: Errors): what is wrong, where in the request, and the mend. Never a stack trace.

What cannot be given for a while: told to the client in the words of what it asked for, and to the log once, as is its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from lab_agent import exact_json
from lab_agent.catalogue.basket_errors import BasketProblem
from lab_agent.catalogue_service.label_allocation import PoolEmptyError
from lab_agent.errors import BasketError, DataInvalidError, LabAgentError, Problem, StoreError, UnknownContractError
from lab_agent.logs import get_logger

_log = get_logger(__name__)

_STATUS_DIAGNOSTICS = {
    404: (
        "not-found",
        "path: nothing is here — use nomenclature, eta, questionnaire or preanalytics under the agreed address",
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


def operation_outcome(status: int, issues: Iterable[tuple[str, str]], headers: Mapping[str, str] | None = None) -> Response:
    """Make the response; an issue is a FHIR issue type and its diagnostics."""
    listed = [{"severity": "error", "code": code, "diagnostics": diagnostics} for code, diagnostics in issues]
    body = exact_json.dumps({"resourceType": "OperationOutcome", "issue": listed})
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def add_error_handlers(app: FastAPI) -> None:
    """Let every failure of a request end in an OperationOutcome."""
    app.add_exception_handler(ApiError, _handle_api_error)
    app.add_exception_handler(UnknownContractError, _handle_unknown_contract)
    app.add_exception_handler(BasketError, _handle_basket_error)
    app.add_exception_handler(DataInvalidError, _handle_invalid_json)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(StoreError, _handle_store_error)
    app.add_exception_handler(Exception, _handle_unexpected)


def _handle_api_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ApiError)  # noqa: S101 - Starlette calls a handler with its own class only
    return operation_outcome(exc.status, [(exc.code, str(exc))], exc.headers)


def _handle_unknown_contract(_: Request, exc: Exception) -> Response:
    return operation_outcome(404, _issues(exc, "not-found"))


def _handle_basket_error(_: Request, exc: Exception) -> Response:
    """400 for a request of a wrong shape, 422 for one that the catalogue contradicts."""
    issues = _issues(exc, "business-rule")
    return operation_outcome(400 if any(code in _STRUCTURE_CODES for code, _ in issues) else 422, issues)


def _handle_invalid_json(_: Request, exc: Exception) -> Response:
    return operation_outcome(400, _issues(exc, "structure"))


def _handle_http_exception(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)  # noqa: S101 - as above
    if exc.status_code == 405:
        return _method_not_allowed(request.method, (exc.headers or {}).get("Allow", ""))
    code, diagnostics = _STATUS_DIAGNOSTICS.get(exc.status_code, ("invalid", str(exc.detail)))
    return operation_outcome(exc.status_code, [(code, diagnostics)], exc.headers)


def _method_not_allowed(method: str, allow_header: str) -> Response:
    """Name what this path takes; `known` are the methods of its route. What can be got has a HEAD (`lab_api.heads`)."""
    methods = {each.strip() for each in allow_header.split(",") if each.strip()}
    allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    return operation_outcome(
        405, [("not-supported", f"method: {method[:20]} is not for this path — use {allowed}")], {"Allow": allowed}
    )


def service_unavailable(resource: str) -> ApiError:
    """Our own trouble, which passes or is being seen to: the store is away, or a pool of labels is used up."""
    said = f"the laboratory cannot give {resource} at the moment; try again, and tell the laboratory if it stays"
    return ApiError(503, "transient", said, {"Retry-After": "10"})


def _handle_store_error(request: Request, exc: Exception) -> Response:
    """The store is away, and no route has said what it is that cannot be given."""
    _log.error("the store is away", action="api.store_unavailable", error=exc)
    return _handle_api_error(request, service_unavailable("an answer"))


def _handle_unexpected(_: Request, exc: Exception) -> Response:  # noqa: ARG001 - Starlette raises it again, and the server logs it
    return operation_outcome(
        500, [("exception", "the laboratory's service failed; try again, and tell the laboratory if it stays")]
    )


def _issues(exc: Exception, default_code: str) -> list[tuple[str, str]]:
    problems: tuple[Problem, ...] = getattr(exc, "problems", ())
    return [(each.code if isinstance(each, BasketProblem) else default_code, str(each)) for each in problems]


class OutageReporter:
    """Which things, for which contract, could not be given when they were last asked for."""

    def __init__(self) -> None:
        self._unavailable: set[tuple[str, str | None]] = set()

    @contextmanager
    def report_outage(self, resource: str, contract: str | None = None) -> Iterator[None]:
        """Give something (`labels`, `documents`). Raises `Refused` (503) where the store is away or a pool is used up."""
        try:
            yield
        except (StoreError, PoolEmptyError) as exc:
            if (resource, contract) not in self._unavailable:
                self._unavailable.add((resource, contract))
                _log.error(f"no {resource} can be given", action=f"api.{resource}_unavailable", contract=contract, error=exc)
            raise service_unavailable(resource) from exc
        if (resource, contract) in self._unavailable:
            self._unavailable.discard((resource, contract))
            _log.info(f"{resource} can be given again", action=f"api.{resource}_restored", contract=contract)
