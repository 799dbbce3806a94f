"""One question to the token endpoint, and its answer in our words."""

from __future__ import annotations

from lab_agent.domain.journal import StoredToken
from lab_agent.errors import (
    AmbiguousFailure,
    AnswerUnreadable,
    Failure,
    ServiceRefusal,
    ServiceUnavailable,
    SignInNeeded,
)
from lab_agent.exchange import grants
from lab_agent.exchange.grants import CodeGrant
from lab_agent.exchange.outcomes import Asked, Kind, failure
from lab_agent.http import Answer, HttpClient
from lab_agent.ports.clock import Clock
from lab_agent.settings.exchange import OAuthSettings

_ASKED = Asked(kind=Kind.WRITE, what="signing in")
_LONGEST = 20.0
_HEADERS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}


class TokenEndpoint:
    """The service's `connect/token`. Every call may raise `ServiceUnavailable` or `SignInNeeded`; nothing is stored here."""

    def __init__(self, oauth: OAuthSettings, http: HttpClient, clock: Clock) -> None:
        self._oauth = oauth
        self._http = http
        self._clock = clock

    @property
    def longest_call(self) -> float:
        """Seconds after which one question has ended in any case."""
        return min(_LONGEST, self._http.longest_call)

    async def refresh(self, old: StoredToken, *, generation: int) -> StoredToken:
        """Refresh. A reply that was lost may have used up the old refresh token; it is tried once more all the same."""
        form = grants.by_refresh(self._oauth, old.refresh_token or "")
        try:
            return await self._ask(form, generation, old.refresh_token)
        except AmbiguousFailure:
            return await self._ask_safely(form, generation, old.refresh_token)

    async def sign_in(self, *, generation: int) -> StoredToken:
        """Sign in without a human, where the grant allows it. Raises `SignInNeeded` where it needs one."""
        if self._oauth.grant == "password":
            return await self._ask_safely(grants.by_password(self._oauth), generation)
        if self._oauth.grant == "client_credentials":
            return await self._ask_safely(grants.by_client_credentials(self._oauth), generation)
        raise SignInNeeded("a person has to sign in at the exchange service; run `lab-agent login`")

    async def redeem(self, grant: CodeGrant, *, generation: int) -> StoredToken:
        """Exchange an authorization code. A code is good for one time only, so a lost reply needs a new sign-in."""
        try:
            return await self._ask(grants.by_code(self._oauth, grant), generation)
        except AmbiguousFailure as exc:
            raise SignInNeeded("the answer to the sign-in was lost; run `lab-agent login` again") from exc

    async def _ask_safely(self, form: str, generation: int, refresh_token: str | None = None) -> StoredToken:
        try:
            return await self._ask(form, generation, refresh_token)
        except AmbiguousFailure as exc:
            raise ServiceUnavailable(f"the authorization site gave no answer: {exc}") from exc

    async def _ask(self, form: str, generation: int, refresh_token: str | None = None) -> StoredToken:
        asked_at = self._clock.now()
        answer = await self._http.send(
            "POST",
            self._oauth.token_path,
            base=f"{self._oauth.auth_url}/",
            headers=_HEADERS,
            content=form.encode(),
            timeout=self.longest_call,
        )
        if (wrong := failure(_ASKED, answer.status, answer.headers, answer.body, now=self._clock.now())) is not None:
            raise self._told(wrong, answer)
        token = grants.read_token(answer.body, generation=generation, asked_at=asked_at, old_refresh_token=refresh_token)
        if token is None:
            raise AnswerUnreadable("the authorization site answered without an access token")
        return token

    def _told(self, wrong: Failure, answer: Answer) -> Failure:
        if not isinstance(wrong, SignInNeeded | ServiceRefusal):
            return wrong
        code = grants.read_error(answer.body)
        reason = f"{answer.status}, {code}" if code else str(answer.status)
        by_hand = "run `lab-agent login`, or " if self._oauth.grant == "authorization_code" else ""
        return SignInNeeded(f"the authorization site refused us ({reason}); {by_hand}mend [exchange.oauth]")
