"""The sandbox's settings: who takes part, under which addresses, and how strict the service is."""

import tomllib
import uuid
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lab_sandbox.rule_ids import SwitchableRule

AUTO = "auto"

CLINIC_GUID = "3f0c0d0e-5a5e-4b53-9c8e-1c7a40d6c001"
LABORATORY_GUID = "8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"


class _ConfigModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Counterparty(_ConfigModel):
    """A registered organisation and its card ("What the service does", point 2)."""

    guid: str = Field(min_length=1, pattern=r"^\S+$")
    name: str
    kind: Literal["partner", "laboratory"]
    login: str | None = None
    password: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    redirect_uris: tuple[str, ...] = ()
    address: str | None = None
    """Laboratories: the public address of their web API, to which the four basket paths are appended. Partners: where each
    notification is posted."""
    authorization: str | None = None
    """Laboratories: the Authorization header that the service sends with forwarded basket requests."""


class Contract(_ConfigModel):
    """A contract between a partner and a laboratory, identified by its code."""

    code: str = Field(min_length=1)
    partner: str
    laboratory: str
    id: str = ""

    def resource_id(self) -> str:
        """The id of the Contract resource: as configured, or derived from the code, so that it survives a restart."""
        return self.id or str(uuid.uuid5(uuid.NAMESPACE_URL, f"contract:{self.code}"))


class TokenSettings(_ConfigModel):
    """How tokens behave ("Authentication"; lifetimes are settings because the interface does not give any)."""

    lifetime_seconds: float = Field(default=3600, gt=0)
    refresh_lifetime_seconds: float = Field(default=30 * 24 * 3600, gt=0)
    code_lifetime_seconds: float = Field(default=300, gt=0)
    send_expires_in: bool = True
    rotate_refresh: bool = True
    reuse_revokes: bool = False
    """Whether the reuse of a refresh token ends the whole sign-in."""
    require_pkce: bool = False
    allow_basic: bool = False
    """Whether API calls may carry login and password as HTTP Basic instead of a token, which the interface does not name."""


class RuleSettings(_ConfigModel):
    """How the service answers where the interface leaves a choice, and which rules are switched off."""

    stale_code: Literal[409, 412] = 412
    no_right_code: Literal[403, 404] = 403
    reference_style: Literal["lower", "canonical"] = "lower"
    creator_rights: bool = True
    """Whether a creator may use its resource without an entry in meta.security: a laboratory in full, a partner to update it.

    A partner always needs the right to read, and every creator may grant rights.
    """
    questionnaire_search: bool = True
    json_binary: Literal["document", "resource"] = "document"
    """What a body with Content-Type application/json is for a Binary: as in STU3 the document itself, or the resource."""
    write_response: Literal["representation", "minimal", "OperationOutcome"] = "representation"
    """The body of the response to a create or update that does not ask for one with Prefer."""
    search_age_seconds: float | None = Field(default=None, ge=0)
    """Maximum age of search results; each search is remembered for a part of it, at random. Default: 0, or 60 if strict."""
    seed: int = 0
    """Makes chance repeatable."""
    page_size: int = Field(default=50, ge=1)
    max_page_size: int = Field(default=500, ge=1)
    max_body_bytes: int = Field(default=20_000_000, ge=1)
    history_limit: int = Field(default=5, ge=0)
    forward_timeout_seconds: float = Field(default=30, gt=0)
    off: tuple[SwitchableRule, ...] = ()
    """Ids of rules that are not checked, as given in the diagnostics of a rejection."""


def _demo_counterparties() -> tuple[Counterparty, ...]:
    clinic = Counterparty(
        guid=CLINIC_GUID,
        name="clinic",
        kind="partner",
        login="clinic",
        password="demo-clinic-password",  # noqa: S106
        client_id="clinic-app",
        client_secret="demo-clinic-secret",  # noqa: S106
        redirect_uris=("http://127.0.0.1:8484/callback",),
    )
    laboratory = Counterparty(
        guid=LABORATORY_GUID,
        name="laboratory",
        kind="laboratory",
        login="laboratory",
        password="demo-laboratory-password",  # noqa: S106
        client_id="lab-agent",
        client_secret="demo-laboratory-secret",  # noqa: S106
        redirect_uris=("http://127.0.0.1:8485/callback",),
        address="http://127.0.0.1:8482",
        authorization="Bearer demo-lab-api-token",
    )
    return clinic, laboratory


def _demo_contracts() -> tuple[Contract, ...]:
    return tuple(Contract(code=code, partner=CLINIC_GUID, laboratory=LABORATORY_GUID) for code in ("C-100", "C-200"))


class SandboxConfig(_ConfigModel):
    """All settings; the defaults make a working demo configuration."""

    host: str = "127.0.0.1"
    port: int = Field(default=8480, ge=0, le=65535)
    base_url: str = AUTO
    """The service's API address as used in code systems; ends in a slash. `auto`: http://<host>:<port>/."""
    auth_url: str = AUTO
    listening: str = ""
    """The address that the server listens on; set once the port is known, and treated as its own address beside base_url."""
    lab_codes_url: str = "http://codes.lab.example"
    second_labels_system: str = "http://codes.lab.example/second-labels"
    tolerance_tests: tuple[str, ...] = ()
    """Codes of glucose tolerance tests, whose samples need their times; the nomenclature does not tell them from others."""
    strict: bool = False
    """Whether the service refuses and does what an STU3 server does, beyond the interface document; see docs/sandbox.md."""
    data: str | None = None
    """A file that stores the resources; without it they are in memory only."""
    faults: str | None = None
    """A TOML file with a fault plan that is active from the start."""
    fault_admin: bool = False
    log_requests: bool = False
    """Whether each request is logged, with method, path, status and injected faults."""
    counterparties: tuple[Counterparty, ...] = Field(default_factory=_demo_counterparties)
    contracts: tuple[Contract, ...] = Field(default_factory=_demo_contracts)
    tokens: TokenSettings = TokenSettings()
    rules: RuleSettings = RuleSettings()

    @field_validator("base_url", "auth_url", "lab_codes_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value != AUTO and (parts.scheme not in {"http", "https"} or not parts.netloc):
            raise ValueError(f"must be an address like http://127.0.0.1:8480/, not {value}")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        kinds = {party.guid: party.kind for party in self.counterparties}
        for contract in self.contracts:
            for guid, kind in ((contract.partner, "partner"), (contract.laboratory, "laboratory")):
                if kinds.get(guid) != kind:
                    raise ValueError(f"contract {contract.code}: {guid} is not the guid of a {kind}")
        for name in ("guid", "login", "client_id"):
            _check_unique([getattr(party, name) for party in self.counterparties], f"counterparties.{name}")
        _check_unique([contract.code for contract in self.contracts], "contracts.code")
        return self

    def resolve_addresses_for(self, host: str, port: int) -> "SandboxConfig":
        """A copy with `auto` addresses replaced, for a server that listens on this host and port."""
        listening = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        base = f"{listening}/" if self.base_url == AUTO else f"{self.base_url.rstrip('/')}/"
        auth = _origin(base) if self.auth_url == AUTO else self.auth_url.rstrip("/")
        return self.model_copy(
            update={"host": host, "port": port, "base_url": base, "auth_url": auth, "listening": f"{listening}/"}
        )

    def resolve_addresses(self) -> "SandboxConfig":
        """A copy without `auto`, for in-process use."""
        return self.resolve_addresses_for(self.host, self.port)

    @property
    def own_addresses(self) -> tuple[str, ...]:
        """Addresses under which an absolute reference leads to this service."""
        return (self.base_url, self.listening) if self.listening else (self.base_url,)

    @property
    def reference_style(self) -> Literal["lower", "canonical"]:
        """How references in resources are written."""
        return "canonical" if self.strict else self.rules.reference_style

    @property
    def search_age_seconds(self) -> float:
        """Maximum age of search results."""
        age = self.rules.search_age_seconds
        return (60.0 if self.strict else 0.0) if age is None else age

    @property
    def is_json_binary_document(self) -> bool:
        """Whether a Binary sent as application/json is the document itself."""
        return self.strict or self.rules.json_binary == "document"

    def system(self, name: str) -> str:
        """A code system of the service: `{base_url}terminology/<name>`."""
        return f"{self.base_url}terminology/{name}"

    def lab_system(self, name: str) -> str:
        """A laboratory-side code system: `{lab_codes_url}/<name>`."""
        return f"{self.lab_codes_url.rstrip('/')}/{name}"

    def counterparty(self, guid: str) -> Counterparty | None:
        """The counterparty with this guid, or None."""
        return next((party for party in self.counterparties if party.guid == guid), None)

    def contract(self, code: str) -> Contract | None:
        """The contract with this code, or None."""
        return next((contract for contract in self.contracts if contract.code == code), None)


class ConfigError(Exception):
    """Invalid settings; the text names each key and what is wrong with it."""


def load_config(path: Path | None) -> SandboxConfig:
    """Reads a TOML file, or takes the defaults without one; `ConfigError` lists everything that is wrong."""
    if path is None:
        return SandboxConfig()
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not valid TOML: {exc}") from exc
    return read_config(raw, str(path))


def read_config(raw: dict[str, Any], source: str) -> SandboxConfig:
    """Settings from plain data; `ConfigError` lists everything that is wrong, by key."""
    try:
        return SandboxConfig.model_validate(raw)
    except ValidationError as exc:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in exc.errors()]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from exc


def _check_unique(values: list[Any], name: str) -> None:
    given = [value for value in values if value is not None]
    duplicates = {value for value in given if given.count(value) > 1}
    if duplicates:
        raise ValueError(f"{name}: used twice: {', '.join(sorted(map(str, duplicates)))}")


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
