"""Errors as OperationOutcome (interface: Errors): what is wrong, where in the request, and the mend. Never a stack trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from lab_agent import exact_json
from lab_agent.catalogue.basket_problems import BasketProblem
from lab_agent.errors import BasketError, DataInvalidError, LabAgentError, Problem, StoreError, UnknownContractError
from lab_agent.logs import get_logger

_log = get_logger(__name__)

_PATHS = {
    404: (
        "not-found",
        "path: nothing is here — use nomenclature, eta, questionnaire or preanalytics under the agreed address",
    ),
}
_SHAPE = frozenset({"structure", "required", "value", "too-long"})


class Refused(LabAgentError):
    """The request cannot be answered."""

    def __init__(self, status: int, code: str, diagnostics: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(diagnostics)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


def outcome(status: int, issues: Iterable[tuple[str, str]], headers: Mapping[str, str] | None = None) -> Response:
    """Make the response; an issue is a FHIR issue type and its diagnostics."""
    listed = [{"severity": "error", "code": code, "diagnostics": diagnostics} for code, diagnostics in issues]
    body = exact_json.dumps({"resourceType": "OperationOutcome", "issue": listed})
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def add_handlers(app: FastAPI) -> None:
    """Let every failure of a request end in an OperationOutcome."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(UnknownContractError, _unknown_contract)
    app.add_exception_handler(BasketError, _basket)
    app.add_exception_handler(DataInvalidError, _not_json)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(StoreError, _store_away)
    app.add_exception_handler(Exception, _fault)


def _refused(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, Refused)  # noqa: S101 - Starlette calls a handler with its own class only
    return outcome(exc.status, [(exc.code, str(exc))], exc.headers)


def _unknown_contract(_: Request, exc: Exception) -> Response:
    return outcome(404, _issues(exc, "not-found"))


def _basket(_: Request, exc: Exception) -> Response:
    """400 for a request of a wrong shape, 422 for one that the catalogue contradicts."""
    issues = _issues(exc, "business-rule")
    return outcome(400 if any(code in _SHAPE for code, _ in issues) else 422, issues)


def _not_json(_: Request, exc: Exception) -> Response:
    return outcome(400, _issues(exc, "structure"))


def _http(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)  # noqa: S101 - as above
    if exc.status_code == 405:
        return _wrong_method(request.method, (exc.headers or {}).get("Allow", ""))
    code, diagnostics = _PATHS.get(exc.status_code, ("invalid", str(exc.detail)))
    return outcome(exc.status_code, [(code, diagnostics)], exc.headers)


def _wrong_method(method: str, known: str) -> Response:
    """Name what this path takes; `known` are the methods of its route. What can be got has a HEAD (`lab_api.heads`)."""
    methods = {each.strip() for each in known.split(",") if each.strip()}
    allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    return outcome(405, [("not-supported", f"method: {method[:20]} is not for this path — use {allowed}")], {"Allow": allowed})


def not_now(what: str) -> Refused:
    """Our own trouble, which passes or is being seen to: the store is away, or a pool of labels is used up."""
    said = f"the laboratory cannot give {what} at the moment; try again, and tell the laboratory if it stays"
    return Refused(503, "transient", said, {"Retry-After": "10"})


def _store_away(request: Request, exc: Exception) -> Response:
    """The store is away, and no route has said what it is that cannot be given."""
    _log.error("the store is away", action="api.store_away", error=exc)
    return _refused(request, not_now("an answer"))


def _fault(_: Request, exc: Exception) -> Response:  # noqa: ARG001 - Starlette raises it again, and the server logs it
    return outcome(500, [("exception", "the laboratory's service failed; try again, and tell the laboratory if it stays")])


def _issues(exc: Exception, usual: str) -> list[tuple[str, str]]:
    problems: tuple[Problem, ...] = getattr(exc, "problems", ())
    return [(each.code if isinstance(each, BasketProblem) else usual, str(each)) for each in problems]
