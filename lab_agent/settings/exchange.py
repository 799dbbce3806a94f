"""The group [exchange] and the groups within it: how to reach the exchange service and sign in there."""

from __future__ import annotations

import string
from typing import Annotated, Literal, Self

from pydantic import Field, FilePath, SecretStr, model_validator

from lab_agent.settings.groups import (
    AbsoluteUrl,
    BaseUrl,
    Basic,
    CodeSystem,
    ContractCode,
    Guid,
    HttpAddress,
    NotPlaceholder,
    Seconds,
    SettingsGroup,
)
from lab_agent.shared.url_origin import is_loopback

Grant = Literal["password", "authorization_code", "client_credentials", "basic"]

ReferenceSpelling = Literal["as_read", "lower", "fhir"]
FhirMediaType = Literal["application/fhir+json", "application/json"]

_REQUIRED_KEYS: dict[str, tuple[str, ...]] = {
    "password": ("auth_url", "client_id", "username"),
    "authorization_code": ("auth_url", "client_id", "redirect_uri"),
    "client_credentials": ("auth_url", "client_id"),
    "basic": ("username",),
}
_REQUIRED_SECRET: dict[str, str] = {"password": "password", "client_credentials": "client_secret", "basic": "password"}
_PLACEHOLDERS = {
    "order_tasks": set[str](),
    "line_tasks": {"id"},
    "questionnaires": {"id"},
    "by_identifier": {"identifier"},
    "read": {"id"},
    "create": set[str](),
    "update": {"id"},
}


class OAuthSettings(SettingsGroup):
    """How the laboratory signs in at the exchange service (interface: Authentication)."""

    grant: Basic[Grant]
    """`password`, `client_credentials`, `basic` (no tokens), or `authorization_code` (an operator runs `lab-agent login`
    once)."""
    auth_url: Basic[AbsoluteUrl | None] = None
    """Address of the authorization site. Needed by every grant but `basic`."""
    client_id: Basic[Annotated[str, NotPlaceholder] | None] = None
    """Client id that the service issued. Needed by every grant but `basic`."""
    client_secret: Basic[SecretStr | None] = None
    """Client secret that the service issued."""
    username: Basic[Annotated[str, NotPlaceholder] | None] = None
    """Login, for the grants `password` and `basic`."""
    password: Basic[SecretStr | None] = None
    """Password, for the grants `password` and `basic`."""
    redirect_uri: Basic[HttpAddress | None] = None
    """Registered callback address, for the grant `authorization_code`; `login` listens there if it is on this machine."""
    scope: str = "offline_access"
    """Scope to request; empty requests none. Many services issue a refresh token for `offline_access` only."""
    pkce: bool = True
    """Whether the authorization code flow uses PKCE (S256)."""
    refresh_ahead: Seconds = 60.0
    """Seconds before its expiry at which the access token is refreshed."""
    authorize_path: str = "connect/authorize"
    """Path of the sign-in page, relative to `auth_url`."""
    token_path: str = "connect/token"  # noqa: S105 - an address, no secret
    """Path of the token endpoint, relative to `auth_url`."""

    @model_validator(mode="after")
    def _check_grant_keys(self) -> Self:
        missing = [name for name in _REQUIRED_KEYS[self.grant] if not getattr(self, name)]
        if missing:
            raise ValueError(f"grant {self.grant!r} needs {', '.join(missing)}; set {'it' if len(missing) == 1 else 'them'} too")
        return self

    @property
    def missing_secret(self) -> str | None:
        """The secret that signing in needs and that is not set."""
        secret = _REQUIRED_SECRET.get(self.grant)
        return secret if secret and not getattr(self, secret) else None


class ContractSettings(SettingsGroup):
    """What is agreed about one contract; its code is the name of the group."""

    counterparty: Guid | None = None
    """Guid of the counterparty that may read our uploads. If not set, the owner of the order's ProcedureRequest."""
    adapter: Basic[str | None] = None
    """LIS adapter that takes this contract's orders, by its name in [lis]. If not set, the default adapter."""


class UrlTemplateSettings(SettingsGroup):
    """Addresses relative to `base_url`. `{Resource}` is the resource type, `{resource}` the same in lower case."""

    order_tasks: str = "fhir/task?status=requested&code=OrderProcessingTask"
    """New order-level Tasks."""
    line_tasks: str = "fhir/task?part-of=task/{id}"
    """Line Tasks of the order-level Task `{id}`."""
    questionnaires: str = "fhir/questionnaireresponse?subject=procedurerequest/{id}"
    """QuestionnaireResponses about the ProcedureRequest `{id}`."""
    by_identifier: str = "fhir/{Resource}?identifier={identifier}"
    """Search by `{identifier}`, which is `system|value`; the Contract is found this way too."""
    read: str = "fhir/{resource}/{id}"
    """Read one resource."""
    create: str = "fhir/{Resource}"
    """Create a resource (Observation, DiagnosticReport, Binary)."""
    update: str = "fhir/{Resource}/{id}"
    """Replace a resource."""

    @model_validator(mode="after")
    def _check_placeholders(self) -> Self:
        for name, needed in _PLACEHOLDERS.items():
            found = _placeholder_names(name, getattr(self, name))
            if missing := needed - found:
                raise ValueError(f"{name} must contain {{{missing.pop()}}}")
            if extra := found - needed - {"Resource", "resource"}:
                raise ValueError(f"{name} contains the unknown placeholder {{{extra.pop()}}}; remove it")
        return self


class ExchangeSettings(SettingsGroup):
    """The exchange service, as this laboratory uses it."""

    base_url: Basic[BaseUrl]
    """API address of the service ({base_url} in the interface document), of stage or of production."""
    lab_codes_url: Basic[AbsoluteUrl]
    """Address that the laboratory-side code systems begin with ({lab_codes_url} in the interface document)."""
    second_labels_system: Basic[CodeSystem | None] = None
    """System of the second barcode of the studies that need two ({second_labels_system} in the interface document)."""
    laboratory: Basic[Guid]
    """The laboratory's own counterparty guid."""
    allow_plain_http: bool = False
    """Whether tokens may travel unencrypted to another machine. Only for a closed test network; https is the rule."""
    ca_file: FilePath | None = None
    """PEM file of the certificate authorities to trust, instead of the public ones."""
    proxy: str | None = None
    """Address of an HTTP proxy. None is taken from the environment."""
    timeout: Seconds = 60.0
    """Seconds that one call may take in all."""
    connect_timeout: Seconds = 10.0
    """Seconds that connecting may take."""
    read_timeout: Seconds = 30.0
    """Seconds without any data after which waiting for a response ends."""
    max_concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """How many calls run at the same time."""
    page_size: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many resources to request on one page of a search. If not set, the service decides."""
    max_response: Annotated[int, Field(ge=64 * 1024)] = 32 * 1024 * 1024
    """Largest response in bytes that is read. Whatever its size, one resource may have 100,000 JSON values and a page 1,200,000;
    of each call that runs at the same time, one may be in memory."""
    max_header: Annotated[int, Field(ge=8 * 1024, le=1024 * 1024)] = 64 * 1024
    """Longest line in bytes that is read in the header of a response."""
    put_security: Literal["as_read", "short", "omit"] = "short"
    """Access rights in a PUT of what we read: with short names of the rights, as in every request, returned as read, or
    omitted."""
    content_type: FhirMediaType = "application/fhir+json"
    """Media type of the FHIR resources that we send; either is accepted in answers. With `application/json`, FHIR servers spoil
    documents: only for a service that accepts nothing else."""
    references: ReferenceSpelling = "as_read"
    """Spelling of the references that we write: `as_read` as the order spelled its own, `lower` (`patient/8`, as in the interface
    document), `fhir` (`Patient/8`, as FHIR servers require)."""
    grant_own_read: bool = False
    """Whether uploads also give our own guid read, readhistory and updatebody, for a service where the creator has no right to
    what it created."""
    questionnaire_search: Literal["auto", "off"] = "auto"
    """Whether to search for QuestionnaireResponses; `auto` stops for an hour when the service has
    rejected that search."""
    line_task_codes: tuple[str, ...] = ("OrderProcessingTask",)
    """Codes that the Task of a line may carry, if it carries any; the interface document shows none. An order with a line Task of
    another code, such as one for billing, is held until its code is listed here."""
    document_search: Literal["off", "tag"] = "off"
    """How a document is found whose upload got no reply: `tag` gives each Binary a tag of ours (`meta.tag`) and searches `_tag`,
    for a service that takes and searches tags; `off` uploads it again and lists the copy (`lab-agent results orphans`)."""
    paths: UrlTemplateSettings = Field(default_factory=UrlTemplateSettings)
    """Addresses at the service, where an installation differs from the interface document."""
    oauth: OAuthSettings
    """How to sign in."""
    contracts: dict[ContractCode, ContractSettings] = Field(default_factory=dict)
    """The contracts of the orders, by their codes."""

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        plain = [
            name
            for name, address in (("base_url", self.base_url), ("oauth.auth_url", self.oauth.auth_url))
            if address and address.startswith("http:") and not is_loopback(address)
        ]
        if plain and not self.allow_plain_http:
            raise ValueError(f"{' and '.join(plain)} would send tokens unencrypted; use https, or set allow_plain_http = true")
        return self

    @model_validator(mode="after")
    def _check_timeouts(self) -> Self:
        if self.connect_timeout > self.timeout or self.read_timeout > self.timeout:
            raise ValueError("connect_timeout and read_timeout must not be longer than timeout; lower them, or raise timeout")
        return self


def _placeholder_names(name: str, template: str) -> set[str]:
    try:
        return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}
    except ValueError as exc:
        raise ValueError(f"{name} has unbalanced braces") from exc
