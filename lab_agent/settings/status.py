"""`[status]`: where the status page listens, and the ways to sign in there.

`[status.oidc]` and `[status.proxy]` are off until their first key is set.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, FilePath, SecretStr, field_validator, model_validator

from lab_agent.settings.groups import AbsoluteUrl, Basic, Port, Seconds, SettingsGroup
from lab_agent.shared.url_origin import is_loopback, origin_of

RoleName = Literal["viewer", "operator", "admin"]


def _check_network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as exc:
        raise ValueError("is not an address such as 10.0.0.5 or a network such as 10.0.7.0/24") from exc
    return text


NetworkText = Annotated[str, AfterValidator(_check_network)]
"""An IP address, or a network with its length."""


class OidcSettings(SettingsGroup):
    """Signing in at the status page with OpenID Connect: the accounts of the laboratory's own identity provider. Off unless
    `issuer` is set.

    Who has an account of the same name here (`lab-agent user add`) has that account's role, everybody else the highest role that
    `roles` gives.
    """

    issuer: AbsoluteUrl | None = None
    """Address of the identity provider; `/.well-known/openid-configuration` below it describes the rest. https, or http on this
    machine."""
    client_id: str | None = None
    """Client id that the provider has for the status page."""
    client_secret: SecretStr | None = None
    """Client secret, where the provider issued one; without it the page is a public client, which PKCE protects."""
    public_url: AbsoluteUrl | None = None
    """Address under which browsers reach the status page, without a path. Register it at the provider with
    `/sign-in/oidc/return` behind it."""
    scope: str = "openid profile"
    """Scopes to request, separated by blanks; `openid` is among them. Some providers send groups for a scope of theirs only."""
    name_claim: Annotated[str, Field(min_length=1)] = "preferred_username"
    """Claim with the user's name. It names the account here: use one that users cannot change themselves."""
    role_claim: Annotated[str, Field(min_length=1)] = "groups"
    """Claim with the user's groups or roles, a text or a list of texts. A dot leads into an object: `realm_access.roles`."""
    roles: dict[str, RoleName] = Field(default_factory=dict)
    """Value of `role_claim` to `viewer`, `operator` or `admin`. Without any, only users with an account here can sign in."""
    timeout: Seconds = 5.0
    """Seconds that one call to the provider may take."""
    ca_file: FilePath | None = None
    """Certificates to trust for the provider, in PEM. If not set, those of the system."""

    @field_validator("scope")
    @classmethod
    def _check_scope(cls, scope: str) -> str:
        if "openid" not in scope.split():
            raise ValueError("lacks `openid`, without which the provider does not say who signed in")
        return scope

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str | None) -> str | None:
        if url is not None and (url.count("/") != 2 or "?" in url or "#" in url):
            raise ValueError("has a path; write https://host or https://host:port alone, as the page has no prefix")
        return url

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.issuer is None:
            return self
        if missing := [name for name in ("client_id", "public_url") if not getattr(self, name)]:
            raise ValueError(f"an issuer needs {' and '.join(missing)} as well")
        if origin_of(self.issuer).scheme == "http" and not is_loopback(self.issuer):
            raise ValueError("issuer must be an https address (plain http is for this machine only)")
        return self

    @property
    def is_on(self) -> bool:
        """Whether users can sign in so."""
        return self.issuer is not None


class ProxySettings(SettingsGroup):
    """Signing in at the status page by a reverse proxy, which checks who it is and names the user in a header. Off unless
    `header` is set.

    The proxy must replace this header in every request that it passes on: whoever can send it through the proxy is whom it names.
    """

    header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]*$")] | None = None
    """Header with the name of the user, such as `X-Remote-User`."""
    trusted_addresses: tuple[NetworkText, ...] = ()
    """Addresses or networks (`10.0.0.5`, `10.0.7.0/24`) whose connections may send the header; from elsewhere it is ignored. What
    counts is where the connection comes from, not X-Forwarded-For."""
    role: RoleName | None = None
    """Role of users without an account here. If not set, only users with an account (`lab-agent user add`) get in."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.header is not None and not self.trusted_addresses:
            raise ValueError("a header needs trusted_addresses as well: the addresses of the proxy")
        return self

    @property
    def is_on(self) -> bool:
        """Whether users can sign in so."""
        return self.header is not None

    @property
    def trusted_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The trusted addresses, each as a network."""
        return tuple(map(ip_network, self.trusted_addresses))


class StatusSettings(SettingsGroup):
    """The status page, `/healthz`, `/readyz` and `/metrics`."""

    host: str = "127.0.0.1"
    """Address to listen on. The pages show patient data to users who signed in: keep them on this machine, or behind TLS."""
    port: Port = 8481
    """Port to listen on."""
    session_hours: Annotated[float, Field(gt=0, le=72)] = 8.0
    """Hours after which a user has to sign in again."""
    environment: Basic[Literal["sandbox", "stage", "production"]] = "production"
    """Which exchange service this is, for the badge on every page: `sandbox`, `stage` or `production`."""
    laboratory: Basic[str] = ""
    """Name of the laboratory, on every page."""
    language: Literal["en", "de", "ru"] = "en"
    """Language of the pages where a browser asks for none of ours: `en`, `de` or `ru`."""
    read_only: bool = False
    """Whether nobody may do anything on the page, whatever the role: it only shows."""
    password: bool = True
    """Whether users can sign in with the password that `lab-agent user add` asked for. `false` needs `[status.oidc]` or
    `[status.proxy]`."""
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    proxy: ProxySettings = Field(default_factory=ProxySettings)

    @model_validator(mode="after")
    def _check_ways(self) -> Self:
        if not (self.password or self.oidc.is_on or self.proxy.is_on):
            raise ValueError("password is false, and there is no other way to sign in: set oidc.issuer or proxy.header")
        return self
