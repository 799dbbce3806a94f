"""The identity provider of `[status.oidc]`: what it publishes about itself, the exchange of a code, the claims about a person.

Nothing is kept from one sign-in to the next: sign-ins are rare, and a provider replaces its keys when it likes. The rules are
those of OpenID Connect Core 1.0 and Discovery 1.0, PKCE (RFC 7636) and RFC 9207.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from authlib.common.security import generate_token
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from lab_agent.operations.accounts import Role
from lab_agent.settings.status import OidcSettings
from lab_agent.shared import exact_json
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import DataInvalidError, Failure, ForeignOrigin
from lab_agent.shared.http_client import HttpClient, HttpOptions, HttpResponse
from lab_agent.shared.url_origin import origin_of
from lab_agent.status.id_token import parse_keys, verify
from lab_agent.status.oidc_faults import FaultDetail, OidcError, OidcFault
from lab_agent.status.translation import marked

RETURN_PATH = "/sign-in/oidc/return"
_DISCOVERY_PATH = "/.well-known/openid-configuration"
_MAX_ANSWER = 256 * 1024
_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_ROLES_FROM_HIGHEST = (Role.ADMIN, Role.OPERATOR, Role.VIEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A sign-in under way: what the answer to it is checked against. `next_path` is where the person wanted to go."""

    state: str
    nonce: str
    verifier: str
    next_path: str
    started_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    """What is used of a provider's discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None
    uses_basic: bool


class OidcProvider:
    """The identity provider. Every call may raise `OidcError`."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client_id = settings.client_id or ""
        self._redirect_uri = f"{settings.public_url}{RETURN_PATH}"

    @property
    def host(self) -> str:
        """The provider's name for people: the host of its address."""
        return origin_of(self._settings.issuer or "").host

    def new_attempt(self, next_path: str) -> Attempt:
        """Begin a sign-in."""
        return Attempt(
            state=generate_token(32),
            nonce=generate_token(32),
            verifier=generate_token(64),
            next_path=next_path,
            started_at=self._clock.now().isoformat(),
        )

    async def authorization_url(self, attempt: Attempt) -> str:
        """Give the address at which the person signs in."""
        async with self._open_client() as http:
            metadata = await self._discover(http)
        address: str = prepare_grant_uri(
            metadata.authorization_endpoint,
            client_id=self._client_id,
            response_type="code",
            redirect_uri=self._redirect_uri,
            scope=self._settings.scope,
            state=attempt.state,
            nonce=attempt.nonce,
            code_challenge=create_s256_code_challenge(attempt.verifier),
            code_challenge_method="S256",
        )
        return address

    async def fetch_claims(self, code: str, attempt: Attempt, issuer: str | None) -> Mapping[str, Any]:
        """Exchange a code for the claims about the person. `issuer` is who says to have given the code, where anybody does."""
        async with self._open_client() as http:
            metadata = await self._discover(http)
            if issuer not in {None, metadata.issuer}:
                raise OidcError(OidcFault.WRONG_STATE)
            answer = await self._exchange(http, metadata, code, attempt)
            token, access_token = answer.get("id_token"), answer.get("access_token")
            if not isinstance(token, str):
                raise OidcError(OidcFault.ANSWER_INVALID, FaultDetail(marked("its answer to the code has no id_token")))
            keys = parse_keys(await self._get(http, metadata.jwks_uri, marked("its keys")))
            now = self._clock.now()
            claims = verify(token, keys, issuer=metadata.issuer, client_id=self._client_id, nonce=attempt.nonce, now=now)
            if metadata.userinfo_endpoint and isinstance(access_token, str) and self._lacks_claims(claims):
                claims = await self._add_userinfo(http, metadata.userinfo_endpoint, access_token, claims)
        return claims

    def name_of(self, claims: Mapping[str, Any]) -> str:
        """Give the claimed name as it came. Raises `OidcError` without one."""
        name = read_claim(claims, self._settings.name_claim)
        if not isinstance(name, str) or not name.strip():
            raise OidcError(OidcFault.NO_NAME, self._settings.name_claim)
        return name

    def role_of(self, claims: Mapping[str, Any]) -> Role | None:
        """Give the highest role that the claims lead to, if any."""
        given = {self._settings.roles.get(value) for value in self.groups_of(claims)}
        return next((role for role in _ROLES_FROM_HIGHEST if role.value in given), None)

    def groups_of(self, claims: Mapping[str, Any]) -> Sequence[str]:
        """Give the values of the claim with the roles."""
        found = read_claim(claims, self._settings.role_claim)
        values = found if isinstance(found, list) else [found]
        return [value for value in values if isinstance(value, str)]

    def _lacks_claims(self, claims: Mapping[str, Any]) -> bool:
        wanted = [self._settings.name_claim, *([self._settings.role_claim] if self._settings.roles else [])]
        return any(read_claim(claims, name) is None for name in wanted)

    def _open_client(self) -> HttpClient:
        timeout = self._settings.timeout
        try:
            return HttpClient(
                HttpOptions(
                    timeout=timeout,
                    connect_timeout=timeout,
                    read_timeout=timeout,
                    max_response=_MAX_ANSWER,
                    max_connections=2,
                    ca_file=self._settings.ca_file,
                )
            )
        except OSError as exc:  # ssl.SSLError is one, too
            raise OidcError(
                OidcFault.UNREACHABLE, FaultDetail(marked("the certificates of status.oidc.ca_file cannot be read"))
            ) from exc

    async def _discover(self, http: HttpClient) -> _Metadata:
        issuer = self._settings.issuer or ""
        found = await self._get(http, issuer + _DISCOVERY_PATH, marked("its description"))
        named = found.get("issuer")
        if not isinstance(named, str) or named.rstrip("/") != issuer:
            told = FaultDetail(marked("its description is of the issuer %(issuer)s"), {"issuer": repr(str(named)[:200])})
            raise OidcError(OidcFault.ANSWER_INVALID, told)
        methods = found.get("token_endpoint_auth_methods_supported")
        return _Metadata(
            issuer=named,
            authorization_endpoint=self._endpoint(found, "authorization_endpoint"),
            token_endpoint=self._endpoint(found, "token_endpoint"),
            jwks_uri=self._endpoint(found, "jwks_uri"),
            userinfo_endpoint=self._endpoint(found, "userinfo_endpoint") if found.get("userinfo_endpoint") else None,
            uses_basic=not isinstance(methods, list) or "client_secret_basic" in methods,
        )

    def _endpoint(self, found: Mapping[str, Any], name: str) -> str:
        """An endpoint may be on another host, but never less protected than the issuer."""
        address = found.get(name)
        try:
            scheme = origin_of(address).scheme if isinstance(address, str) else ""
        except ForeignOrigin:
            scheme = ""
        if scheme not in {"https", origin_of(self._settings.issuer or "").scheme}:
            told = FaultDetail(marked("its description has no %(endpoint)s with https"), {"endpoint": name})
            raise OidcError(OidcFault.ANSWER_INVALID, told)
        return str(address)

    async def _exchange(self, http: HttpClient, metadata: _Metadata, code: str, attempt: Attempt) -> Mapping[str, Any]:
        secret = self._settings.client_secret.get_secret_value() if self._settings.client_secret else None
        headers, extra = dict(_FORM_HEADERS), {"client_id": self._client_id}
        if secret is not None and metadata.uses_basic:
            pair = f"{quote(self._client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
            extra = {}
        elif secret is not None:
            extra["client_secret"] = secret
        form: str = prepare_token_request(
            "authorization_code", code=code, redirect_uri=self._redirect_uri, code_verifier=attempt.verifier, **extra
        )
        answer = await _send(http, "POST", metadata.token_endpoint, headers, form.encode())
        if answer.status in {400, 401, 403}:
            raise OidcError(OidcFault.CODE_REFUSED, str(answer.status))
        return _parse_object(answer, marked("its answer to the code"))

    async def _get(self, http: HttpClient, url: str, what: str, token: str | None = None) -> Mapping[str, Any]:
        headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        return _parse_object(await _send(http, "GET", url, headers), what)

    async def _add_userinfo(self, http: HttpClient, url: str, access_token: str, claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add what some providers tell at this endpoint alone. What the ID token says stands."""
        found = await self._get(http, url, marked("its answer about the user"), access_token)
        if found.get("sub") != claims.get("sub"):
            raise OidcError(OidcFault.ANSWER_INVALID, FaultDetail(marked("its answer about the user is about somebody else")))
        return {**found, **claims}


def read_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Give a claim by its name, or, where no claim has it, by its path with dots; None if there is none."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


async def _send(http: HttpClient, method: str, url: str, headers: Mapping[str, str], content: bytes = b"") -> HttpResponse:
    try:
        return await http.send(method, url, base=url, headers=headers, content=content)
    except Failure as exc:  # its text has the origin at most
        raise OidcError(OidcFault.UNREACHABLE, str(exc)) from exc


def _parse_object(answer: HttpResponse, what: str) -> Mapping[str, Any]:
    """Read an answer as a JSON object; `what` names it, and is in the catalogues."""
    if answer.status >= 500:
        values = {"address": str(origin_of(answer.url)), "status": str(answer.status)}
        raise OidcError(OidcFault.UNREACHABLE, FaultDetail(marked("%(address)s answers with %(status)s"), values))
    if answer.status != 200:
        values = {"what": what, "status": str(answer.status)}
        raise OidcError(OidcFault.ANSWER_INVALID, FaultDetail(marked("%(what)s comes with the status %(status)s"), values))
    try:
        found = exact_json.loads(answer.body)
    except DataInvalidError as exc:
        raise OidcError(OidcFault.ANSWER_INVALID, FaultDetail(marked("%(what)s is no JSON"), {"what": what})) from exc
    if not isinstance(found, dict):
        raise OidcError(OidcFault.ANSWER_INVALID, FaultDetail(marked("%(what)s is no JSON object"), {"what": what}))
    return found
