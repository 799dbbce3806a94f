"""Errors as OperationOutcome (interface: Errors): what is wrong, where in the request, and how to fix it; never a traceback.

An outage is reported to the client with each request, and to the log once when it begins and once when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from starlette.responses import Response

from lab_agent import exact_json
from lab_agent.catalogue.basket_errors import BasketProblem
from lab_agent.catalogue_service.label_allocation import PoolEmptyError
from lab_agent.errors import BasketError, DataInvalidError, LabAgentError, Problem, StoreError, UnknownContractError
from lab_agent.logs import get_logger

_log = get_logger(__name__)

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


def to_response(error: Exception) -> tuple[Response, bool]:
    """The response to a request that failed, and whether the error is one that we know: an unknown one is a defect."""
    for kind, respond in _RESPONSES:
        if isinstance(error, kind):
            return respond(error), True
    diagnostics = "service: internal error — try again, and tell the laboratory if it persists"
    return operation_outcome(500, [("exception", diagnostics)]), False


def not_found() -> Response:
    """The response to a path that there is not."""
    diagnostics = "path: not found — use nomenclature, eta, questionnaire or preanalytics under the agreed address"
    return operation_outcome(404, [("not-found", diagnostics)])


def method_not_allowed(method: str, methods: Iterable[str]) -> Response:
    """The response to a method that a path does not take; `methods` are those that it takes."""
    allowed = ", ".join(sorted(methods))
    diagnostics = f"method: {method[:20]} is not supported for this path — use {allowed}"
    return operation_outcome(405, [("not-supported", diagnostics)], {"Allow": allowed})


def _respond_to_api_error(error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - `_RESPONSES` calls it with this class only
    return operation_outcome(error.status, [(error.code, str(error))], error.headers)


def _respond_to_unknown_contract(error: Exception) -> Response:
    return operation_outcome(404, _issues(error, "not-found"))


def _respond_to_basket_error(error: Exception) -> Response:
    """400 for a request of a wrong shape, 422 for one that the catalogue contradicts."""
    issues = _issues(error, "business-rule")
    return operation_outcome(400 if any(code in _STRUCTURE_CODES for code, _ in issues) else 422, issues)


def _respond_to_invalid_json(error: Exception) -> Response:
    return operation_outcome(400, _issues(error, "structure"))


def service_unavailable(resource: str) -> ApiError:
    """A fault of ours that passes or is being repaired: the database is unavailable, or a pool of labels is empty."""
    diagnostics = f"{resource}: temporarily unavailable — try again, and tell the laboratory if it persists"
    return ApiError(503, "transient", diagnostics, {"Retry-After": "10"})


def _respond_to_store_error(error: Exception) -> Response:
    """The database is unavailable, and no route has said which resource needs it."""
    _log.error("database unavailable", action="api.store_unavailable", error=error)
    return _respond_to_api_error(service_unavailable("service"))


def _issues(exc: Exception, default_code: str) -> list[tuple[str, str]]:
    problems: tuple[Problem, ...] = getattr(exc, "problems", ())
    return [(each.code if isinstance(each, BasketProblem) else default_code, str(each)) for each in problems]


_RESPONSES: tuple[tuple[type[Exception], Callable[[Exception], Response]], ...] = (
    (ApiError, _respond_to_api_error),
    (UnknownContractError, _respond_to_unknown_contract),
    (BasketError, _respond_to_basket_error),
    (DataInvalidError, _respond_to_invalid_json),
    (StoreError, _respond_to_store_error),
)
"""By class of error, more special ones first."""


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
