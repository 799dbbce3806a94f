"""Why a sign-in with OpenID Connect came to nothing: the codes, and what the person reads for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from lab_agent.status.translation import gettext, marked


class OidcFault(StrEnum):
    """The code; the log and the audit have it."""

    UNREACHABLE = "provider_unreachable"
    ANSWER_INVALID = "provider_answer_invalid"
    NO_SIGN_IN = "no_sign_in_under_way"
    WRONG_STATE = "wrong_state"
    REFUSED = "refused_by_provider"
    CODE_REFUSED = "code_refused"
    TOKEN_INVALID = "id_token_invalid"  # noqa: S105 - the name of a fault
    NO_NAME = "no_name"
    NAME_INVALID = "name_invalid"
    NO_ROLE = "no_role"


@dataclass(frozen=True, slots=True)
class FaultDetail:
    """A part of the sentence about a fault. `text` is in the catalogues, and so is the value `what`, where it has one."""

    text: str
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def logged(self) -> str:
        """The detail as the log has it, in English whatever the language of the request."""
        return self.text % self.values if self.values else self.text

    @property
    def shown(self) -> str:
        """The detail in the language of the request."""
        if not self.values:
            return gettext(self.text)
        values = {name: gettext(value) if name == "what" else value for name, value in self.values.items()}
        return gettext(self.text) % values


class OidcError(Exception):
    """A sign-in came to nothing. `detail` is a part of the sentence about it; a claim, an address or a status is shown as it is.

    `name` is the user's, where the provider has said it.
    """

    def __init__(self, fault: OidcFault, detail: FaultDetail | str = "", *, name: str = "") -> None:
        self.fault = fault
        self.detail = detail if isinstance(detail, FaultDetail) else FaultDetail("%(as_it_is)s", {"as_it_is": detail})
        self.name = name
        super().__init__(f"{fault.value}: {self.detail.logged}" if detail else fault.value)


class _Answer(NamedTuple):
    status: int
    text: str


_ANSWERS = {
    OidcFault.UNREACHABLE: _Answer(503, marked("%(host)s cannot be asked who you are: %(detail)s. Try again later.")),
    OidcFault.ANSWER_INVALID: _Answer(502, marked("%(host)s does not answer as OpenID Connect has it: %(detail)s.")),
    OidcFault.NO_SIGN_IN: _Answer(400, marked("No sign-in was under way in this browser, or it took too long. Sign in again.")),
    OidcFault.WRONG_STATE: _Answer(400, marked("This answer belongs to another sign-in. Sign in again.")),
    OidcFault.REFUSED: _Answer(403, marked("%(host)s did not sign you in (%(detail)s).")),
    OidcFault.CODE_REFUSED: _Answer(
        502,
        marked(
            "%(host)s rejects what it gave for signing in (%(detail)s). If it happens again, compare client_id and client_secret."
        ),
    ),
    OidcFault.TOKEN_INVALID: _Answer(
        401,
        marked("What %(host)s says about you cannot be trusted: `%(detail)s` of its ID token is wrong. Nobody was signed in."),
    ),
    OidcFault.NO_NAME: _Answer(
        403, marked("%(host)s does not say your name: the claim `%(detail)s` is missing. status.oidc.name_claim names the claim.")
    ),
    OidcFault.NAME_INVALID: _Answer(
        403,
        marked(
            "%(host)s names you %(detail)s, and no user here can have that name: 1 to 64 letters a-z, digits and . _ @ - are"
            " possible. status.oidc.name_claim names the claim."
        ),
    ),
    OidcFault.NO_ROLE: _Answer(403, marked("%(host)s signed you in as %(name)s, but you have no role here: %(detail)s.")),
}


def answer_for(error: OidcError, host: str) -> tuple[int, str]:
    """The HTTP status and the sentence for a fault; `host` is the provider's."""
    status, text = _ANSWERS[error.fault]
    return status, gettext(text) % {"host": host, "detail": error.detail.shown, "name": error.name}
