"""Signing in with OpenID Connect: to the identity provider and back, by the authorization code flow with PKCE, state and nonce.

What the return is checked against is in an encrypted cookie of ten minutes. It is SameSite=Lax, as the browser comes back from
another site; the session's cookie is Strict, and a browser does not send that one along a redirect which began elsewhere. So the
return is answered with a page of ours, which leads on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.accounts import Account, to_user_name
from lab_agent.shared.errors import CryptoError
from lab_agent.shared.logs import get_logger
from lab_agent.shared.text import shorten
from lab_agent.status.auth import HttpError
from lab_agent.status.context import Context, Renderer, StatusContext, TemplateRenderer
from lab_agent.status.forms import one_line
from lab_agent.status.login import render_login, render_throttled
from lab_agent.status.oidc_faults import FaultDetail, OidcError, OidcFault, answer_for
from lab_agent.status.oidc_provider import RETURN_PATH, Attempt, OidcProvider
from lab_agent.status.password_attempts import AttemptRefusedError, AttemptThrottle
from lab_agent.status.session_start import client_address, local_path, note_sign_in, start_session
from lab_agent.status.sessions import SignInWay, unstored_account
from lab_agent.status.translation import marked
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.crypto import Cipher

router = APIRouter()
_log = get_logger(__name__)

START_PATH = "/sign-in/oidc"
ATTEMPT_COOKIE = "lab_agent_oidc"
_ATTEMPT_LIFETIME = timedelta(minutes=10)
_CIPHER_PURPOSE = "status oidc sign-in"
_FREE_FAILURES = 20
"""Failed returns of one address before those without a sign-in under way have to wait, and no more are records of the audit."""
_MAX_SHOWN = 5
"""Values of the role claim that a person without a role is shown."""


@router.get(START_PATH)
async def start_oidc(request: Request, context: Context, renderer: Renderer) -> Response:
    """To the provider. Where it cannot be asked, the sign-in page says so."""
    provider = _provider(context)
    attempt = provider.new_attempt(local_path(request.query_params.get("next", "/")))
    try:
        address = await provider.authorization_url(attempt)
    except OidcError as exc:
        _log.warning("sign-in not begun", action="sign_in_rejected", fault=exc.fault.value, reason=exc.detail.logged)
        return _render_error(renderer, provider, exc, attempt.next_path)
    response = RedirectResponse(address, 303)
    response.set_cookie(
        ATTEMPT_COOKIE,
        _cipher(context).encrypt(json.dumps(asdict(attempt)).encode()).decode("ascii"),
        max_age=int(_ATTEMPT_LIFETIME.total_seconds()),
        path=START_PATH,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


@router.get(RETURN_PATH)
async def finish_oidc(request: Request, context: Context, renderer: Renderer) -> Response:
    """Check what the provider says, and begin the session; or say what is missing."""
    provider = _provider(context)
    throttle: AttemptThrottle = request.app.state.oidc_throttle
    address, now = client_address(request), context.clock.now()
    attempt = _read_attempt(context, request.cookies.get(ATTEMPT_COOKIE))
    # Whoever began a sign-in here does not wait for others behind the same address.
    is_begun = attempt is not None and request.query_params.get("state") == attempt.state
    if not is_begun and (wait := throttle.reserve(address, now)):
        return render_throttled(renderer, AttemptRefusedError(wait).seconds)
    next_path = attempt.next_path if attempt else "/"
    try:
        account = await _sign_in(request, context, provider, attempt)
    except OidcError as exc:
        is_too_many = is_begun and bool(throttle.reserve(address, now))
        await _note_rejected(context, exc, address, with_audit=attempt is not None and not is_too_many)
        response = _render_error(renderer, provider, exc, next_path)
    else:
        await _note_signed_in(context, account.name, address)
        response = renderer.render("signed_in.html", next_path=next_path)
        await start_session(request, response, account, SignInWay.OIDC)
    response.delete_cookie(ATTEMPT_COOKIE, path=START_PATH)
    return response


def make_throttle() -> AttemptThrottle:
    """Make what slows failed returns down, by address. It is not that of passwords: these work while the provider does not."""
    return AttemptThrottle(_FREE_FAILURES)


async def _note_signed_in(context: StatusContext, name: str, address: str) -> None:
    details = {"by": SignInWay.OIDC.value}
    now = context.clock.now()
    entry = AuditEntry(at=now, action=AuditAction.SIGNED_IN, subject=name, by=name, details=details, address=address)
    await note_sign_in(context, entry)
    _log.info("signed in", action="signed_in", by=name)


async def _note_rejected(context: StatusContext, error: OidcError, address: str, *, with_audit: bool) -> None:
    """Without a sign-in under way it was nothing but an address that anybody can open: that is in the log alone."""
    _log.warning(
        "sign-in rejected", action="sign_in_rejected", address=address, fault=error.fault.value, reason=error.detail.logged
    )
    if with_audit:
        details = {"by": SignInWay.OIDC.value, "reason": error.fault.value}
        now, action = context.clock.now(), AuditAction.SIGN_IN_REJECTED
        await note_sign_in(context, AuditEntry(at=now, action=action, subject=error.name, details=details, address=address))


async def _sign_in(request: Request, context: StatusContext, provider: OidcProvider, attempt: Attempt | None) -> Account:
    """Give who signed in. Raises `OidcError`."""
    query = request.query_params
    if attempt is None:
        raise OidcError(OidcFault.NO_SIGN_IN)
    if query.get("state") != attempt.state:
        raise OidcError(OidcFault.WRONG_STATE)
    if "error" in query or not query.get("code"):
        said = shorten(one_line(query.get("error", "")), 100)
        raise OidcError(OidcFault.REFUSED, said or FaultDetail(marked("without a code")))
    claims = await provider.fetch_claims(query["code"], attempt, query.get("iss"))
    claimed = provider.name_of(claims)
    name = to_user_name(claimed)
    if name is None:
        raise OidcError(OidcFault.NAME_INVALID, repr(one_line(claimed)[:64]))
    stored = await context.accounts.get(name)
    if stored is not None:
        return stored
    role = provider.role_of(claims)
    if role is None:
        raise OidcError(OidcFault.NO_ROLE, _missing_role(context, name, provider.groups_of(claims)), name=name)
    return unstored_account(name, role, context.clock.now())


def _missing_role(context: StatusContext, name: str, groups: Sequence[str]) -> FaultDetail:
    """What is missing, as a part of a sentence."""
    values = {"claim": context.settings.oidc.role_claim, "name": name}
    if not groups:
        text = marked("the claim `%(claim)s` is missing, and there is no user %(name)s (`lab-agent user add %(name)s` makes one)")
        return FaultDetail(text, values)
    values["groups"] = ", ".join(shorten(one_line(group), 60) for group in groups[:_MAX_SHOWN])
    if len(groups) <= _MAX_SHOWN:
        text = marked(
            "the claim `%(claim)s` has %(groups)s, to which status.oidc.roles gives no role,"
            " and there is no user %(name)s (`lab-agent user add %(name)s` makes one)"
        )
        return FaultDetail(text, values)
    text = marked(
        "the claim `%(claim)s` has %(groups)s and %(number)s more, to which status.oidc.roles gives no role,"
        " and there is no user %(name)s (`lab-agent user add %(name)s` makes one)"
    )
    return FaultDetail(text, {**values, "number": str(len(groups) - _MAX_SHOWN)})


def _read_attempt(context: StatusContext, cookie: str | None) -> Attempt | None:
    try:
        attempt = Attempt(**json.loads(_cipher(context).decrypt((cookie or "").encode())))
    except (CryptoError, TypeError):  # it is none, or one of another version of this program
        return None
    age = context.clock.now() - datetime.fromisoformat(attempt.started_at)
    return attempt if timedelta() <= age < _ATTEMPT_LIFETIME else None


def _cipher(context: StatusContext) -> Cipher:
    return context.cipher.derive(_CIPHER_PURPOSE)


def _provider(context: StatusContext) -> OidcProvider:
    if not context.settings.oidc.is_on:
        raise HttpError("Signing in with OpenID Connect is not set up (status.oidc).", 404)
    return OidcProvider(context.settings.oidc, context.clock)


def _render_error(renderer: TemplateRenderer, provider: OidcProvider, error: OidcError, next_path: str) -> Response:
    status, text = answer_for(error, provider.host)
    return render_login(renderer, status=status, next_path=next_path, error=text)
