"""The authorization endpoints: sign-in page, token endpoint and revocation."""

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
    302: {"description": "Redirect to the callback address, with a code or an error.", "content": {}},
    401: {"description": "Wrong login or password: the form again.", "content": {"text/html": {}}},
}
FORM_CONTENT_TYPE = "application/x-www-form-urlencoded"


def auth_routes(service: Service) -> APIRouter:
    """All routes under `/connect`."""
    router = APIRouter(prefix="/connect", tags=["authorization"])

    @router.get(
        "/authorize",
        summary="The sign-in page",
        response_class=HTMLResponse,
        responses=_CALLBACK_RESPONSES,
        openapi_extra={"parameters": query_parameters(*AUTHORIZE_PARAMETERS)},
    )
    async def show_form(request: Request) -> Response:
        try:
            login_request = parse_authorize_request(dict(request.query_params), service.accounts, service.config.tokens)
        except AuthorizeErrorRedirect as redirect:
            return RedirectResponse(redirect.address, 302)
        return HTMLResponse(login_request.render_form(request.url.path), headers=_NO_STORE)

    @router.post(
        "/authorize",
        summary="Sign in; redirects to the callback address with a code",
        responses=_CALLBACK_RESPONSES,
        status_code=302,
        openapi_extra=form_body(*AUTHORIZE_PARAMETERS, "login", "password"),
    )
    async def sign_in(request: Request) -> Response:
        fields = await _read_form(request, service)
        try:
            login_request = parse_authorize_request(fields, service.accounts, service.config.tokens)
        except AuthorizeErrorRedirect as redirect:
            return RedirectResponse(redirect.address, 302)
        party = service.accounts.authenticate_login(fields.get("login", ""), fields.get("password", ""))
        if party is None:
            return HTMLResponse(login_request.render_form(request.url.path, "Wrong login or password."), 401, _NO_STORE)
        code = service.tokens.issue_code(
            party, login_request.client_id, login_request.redirect_uri, login_request.scope, login_request.challenge
        )
        return RedirectResponse(login_request.callback_url(code=code), 302)

    @router.post(
        "/token",
        summary="Exchange a code, a password, a refresh token or a client secret for tokens",
        openapi_extra=token_body(),
    )
    async def token(request: Request) -> Response:
        form = await _read_form(request, service)
        return json_response(service.token_endpoint.issue_tokens(form, request.headers.get("authorization")), headers=_NO_STORE)

    @router.post(
        "/revocation", summary="Revoke a token (RFC 7009)", openapi_extra=form_body("token", "client_id", "client_secret")
    )
    async def revoke(request: Request) -> Response:
        form = await _read_form(request, service)
        client = service.token_endpoint.authenticate_client(form, request.headers.get("authorization"))
        if not service.tokens.revoke(form.get("token", ""), str(client.client_id)):
            raise OAuthError("invalid_grant", "token: issued to another client")
        return Response(status_code=200)

    return router


async def _read_form(request: Request, service: Service) -> Mapping[str, str]:
    """A form-encoded body with each field once (RFC 6749, 3.2)."""
    if content_type(request) != FORM_CONTENT_TYPE:
        raise OAuthError("invalid_request", f"Content-Type: must be {FORM_CONTENT_TYPE}", 400)
    try:
        pairs = parse_qsl((await read_body(request, service)).decode("utf-8"), keep_blank_values=True, max_num_fields=100)
    except ValueError as exc:
        raise OAuthError("invalid_request", "body: not form-encoded") from exc
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthError("invalid_request", "body: a field occurs twice")
    return form
