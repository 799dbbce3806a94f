"""The authorization address: the sign-in page, the token endpoint, and revocation."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from lab_sandbox.http_helpers import content_type, json_response, read_body
from lab_sandbox.login_page import AUTHORIZE_PARAMETERS, AuthorizeErrorRedirect, parse_authorize_request
from lab_sandbox.oauth import OAuthError
from lab_sandbox.openapi_schemas import form_body, query_parameters, token_body
from lab_sandbox.service import Service

_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
_CALLBACK_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    302: {"description": "Back to the callback address, with a code or an error.", "content": {}},
    401: {"description": "Login or password is wrong: the form again.", "content": {"text/html": {}}},
}
FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"


def auth_routes(service: Service) -> APIRouter:
    """All routes under `/connect`."""
    router = APIRouter(prefix="/connect", tags=["authorization"])

    @router.get(
        "/authorize",
        summary="The site where the user authorizes",
        response_class=HTMLResponse,
        responses=_CALLBACK_RESPONSES,
        openapi_extra={"parameters": query_parameters(*AUTHORIZE_PARAMETERS)},
    )
    async def show_form(request: Request) -> Response:
        try:
            asked = parse_authorize_request(dict(request.query_params), service.accounts, service.config.tokens)
        except AuthorizeErrorRedirect as back:
            return RedirectResponse(back.address, 302)
        return HTMLResponse(asked.render_form(request.url.path), headers=_NO_STORE)

    @router.post(
        "/authorize",
        summary="Sign in; calls the callback address with a code",
        responses=_CALLBACK_RESPONSES,
        status_code=302,
        openapi_extra=form_body(*AUTHORIZE_PARAMETERS, "login", "password"),
    )
    async def sign_in(request: Request) -> Response:
        fields = await _read_form(request, service)
        try:
            asked = parse_authorize_request(fields, service.accounts, service.config.tokens)
        except AuthorizeErrorRedirect as back:
            return RedirectResponse(back.address, 302)
        party = service.accounts.authenticate_login(fields.get("login", ""), fields.get("password", ""))
        if party is None:
            return HTMLResponse(asked.render_form(request.url.path, "Login or password is wrong."), 401, _NO_STORE)
        code = service.tokens.issue_code(party, asked.client_id, asked.redirect_uri, asked.scope, asked.challenge)
        return RedirectResponse(asked.callback_url(code=code), 302)

    @router.post(
        "/token",
        summary="Exchange a code, a password, a refresh token or a client's secret for tokens",
        openapi_extra=token_body(),
    )
    async def token(request: Request) -> Response:
        form = await _read_form(request, service)
        return json_response(service.token_endpoint.issue_tokens(form, request.headers.get("authorization")), headers=_NO_STORE)

    @router.post("/revocation", summary="End a token (RFC 7009)", openapi_extra=form_body("token", "client_id", "client_secret"))
    async def revoke(request: Request) -> Response:
        form = await _read_form(request, service)
        client = service.token_endpoint.authenticate_client(form, request.headers.get("authorization"))
        if not service.tokens.revoke(form.get("token", ""), str(client.client_id)):
            raise OAuthError("invalid_grant", "token: it was given to another client")
        return Response(status_code=200)

    return router


async def _read_form(request: Request, service: Service) -> Mapping[str, str]:
    """A form-encoded body; each field once (RFC 6749, 3.2)."""
    if content_type(request) != FORM_CONTENT_TYPE:
        raise OAuthError("invalid_request", f"Content-Type: {FORM_CONTENT_TYPE} is expected", 400)
    try:
        pairs = parse_qsl((await read_body(request, service)).decode("utf-8"), keep_blank_values=True, max_num_fields=100)
    except ValueError as exc:
        raise OAuthError("invalid_request", "body: not a form") from exc
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthError("invalid_request", "body: a field is given twice")
    return form
