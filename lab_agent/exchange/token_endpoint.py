"""One question to the token endpoint, and its answer in our words."""

from __future__ import annotations

from lab_agent.domain.journal import StoredToken
from lab_agent.errors import (
    AmbiguousFailure,
    AuthenticationRequired,
    Failure,
    InvalidResponse,
    ServiceRefusal,
    ServiceUnavailable,
)
from lab_agent.exchange import grants
from lab_agent.exchange.grants import CodeGrant
from lab_agent.exchange.outcomes import RequestContext, RequestKind, response_error
from lab_agent.http import HttpClient, HttpResponse
from lab_agent.ports.clock import Clock
from lab_agent.settings.exchange import OAuthSettings

_REQUEST_CONTEXT = RequestContext(kind=RequestKind.WRITE, description="signing in")
_MAX_CALL_SECONDS = 20.0
_FORM_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


class TokenClient:
    """The service's `connect/token`. Every call may raise `ServiceUnavailable` or `SignInNeeded`; nothing is stored here."""

    def __init__(self, oauth: OAuthSettings, http: HttpClient, clock: Clock) -> None:
        self._oauth = oauth
        self._http = http
        self._clock = clock

    @property
    def max_call_seconds(self) -> float:
        """Seconds after which one question has ended in any case."""
        return min(_MAX_CALL_SECONDS, self._http.max_call_seconds)

    async def refresh(self, old: StoredToken, *, generation: int) -> StoredToken:
        """Refresh. A reply that was lost may have used up the old refresh token; it is tried once more all the same."""
        form = grants.refresh_form(self._oauth, old.refresh_token or "")
        try:
            return await self._request_token(form, generation, old.refresh_token)
        except AmbiguousFailure:
            return await self._request_repeatable(form, generation, old.refresh_token)

    async def log_in(self, *, generation: int) -> StoredToken:
        """Sign in without a human, where the grant allows it. Raises `SignInNeeded` where it needs one."""
        if self._oauth.grant == "password":
            return await self._request_repeatable(grants.password_form(self._oauth), generation)
        if self._oauth.grant == "client_credentials":
            return await self._request_repeatable(grants.client_credentials_form(self._oauth), generation)
        raise AuthenticationRequired("a person has to sign in at the exchange service; run `lab-agent login`")

    async def exchange_code(self, grant: CodeGrant, *, generation: int) -> StoredToken:
        """Exchange an authorization code. A code is good for one time only, so a lost reply needs a new sign-in."""
        try:
            return await self._request_token(grants.authorization_code_form(self._oauth, grant), generation)
        except AmbiguousFailure as exc:
            raise AuthenticationRequired("the answer to the sign-in was lost; run `lab-agent login` again") from exc

    async def _request_repeatable(self, form: str, generation: int, refresh_token: str | None = None) -> StoredToken:
        try:
            return await self._request_token(form, generation, refresh_token)
        except AmbiguousFailure as exc:
            raise ServiceUnavailable(f"the authorization site gave no answer: {exc}") from exc

    async def _request_token(self, form: str, generation: int, refresh_token: str | None = None) -> StoredToken:
        asked_at = self._clock.now()
        answer = await self._http.send(
            "POST",
            self._oauth.token_path,
            base=f"{self._oauth.auth_url}/",
            headers=_FORM_HEADERS,
            content=form.encode(),
            timeout=self.max_call_seconds,
        )
        if (
            wrong := response_error(_REQUEST_CONTEXT, answer.status, answer.headers, answer.body, now=self._clock.now())
        ) is not None:
            raise self._to_login_error(wrong, answer)
        token = grants.parse_token(answer.body, generation=generation, requested_at=asked_at, old_refresh_token=refresh_token)
        if token is None:
            raise InvalidResponse("the authorization site answered without an access token")
        return token

    def _to_login_error(self, error: Failure, answer: HttpResponse) -> Failure:
        if not isinstance(error, AuthenticationRequired | ServiceRefusal):
            return error
        code = grants.parse_error_code(answer.body)
        reason = f"{answer.status}, {code}" if code else str(answer.status)
        by_hand = "run `lab-agent login`, or " if self._oauth.grant == "authorization_code" else ""
        return AuthenticationRequired(f"the authorization site refused us ({reason}); {by_hand}mend [exchange.oauth]")
