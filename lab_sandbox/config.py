"""What the service in a box is told: who takes part, under which addresses, and how strict it is."""

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
    """Laboratories: the public address of their web API; the four basket paths are appended to it."""
    authorization: str | None = None
    """Laboratories: the whole Authorization header that the service sends with forwarded basket requests."""


class Contract(_ConfigModel):
    """A contract between a partner and a laboratory, known by its code."""

    code: str = Field(min_length=1)
    partner: str
    laboratory: str
    id: str = ""

    def resource_id(self) -> str:
        """The id of the Contract resource: as configured, or made from the code, so that it is the same after a restart."""
        return self.id or str(uuid.uuid5(uuid.NAMESPACE_URL, f"contract:{self.code}"))


class TokenSettings(_ConfigModel):
    """How access tokens behave ("Authentication"; lifetimes are not shown there, hence settings)."""

    lifetime_seconds: float = Field(default=3600, gt=0)
    refresh_lifetime_seconds: float = Field(default=30 * 24 * 3600, gt=0)
    code_lifetime_seconds: float = Field(default=300, gt=0)
    send_expires_in: bool = True
    rotate_refresh: bool = True
    reuse_revokes: bool = False
    """Whether a refresh token that is shown a second time ends the whole sign-in."""
    require_pkce: bool = False
    allow_basic: bool = True
    """Whether API calls may carry login and password as HTTP Basic instead of a token."""


class RuleSettings(_ConfigModel):
    """How the service answers where the interface leaves a choice, and which of its checks are off."""

    stale_code: Literal[409, 412] = 412
    no_right_code: Literal[403, 404] = 403
    reference_style: Literal["lower", "canonical"] = "lower"
    questionnaire_search: bool = True
    page_size: int = Field(default=50, ge=1)
    max_page_size: int = Field(default=500, ge=1)
    max_body_bytes: int = Field(default=20_000_000, ge=1)
    history_limit: int = Field(default=5, ge=0)
    forward_timeout_seconds: float = Field(default=30, gt=0)
    off: tuple[SwitchableRule, ...] = ()
    """Ids of rules that are not checked, as they stand in the diagnostics of a refusal."""


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
    """The whole configuration; every key has a default, and the defaults make a working demo world."""

    host: str = "127.0.0.1"
    port: int = Field(default=8480, ge=0, le=65535)
    base_url: str = AUTO
    """The service's API address as it stands in code systems; ends in a slash. `auto`: http://<host>:<port>/."""
    auth_url: str = AUTO
    listening: str = ""
    """Where the server is found; settled together with the port, and counted as its own address beside base_url."""
    lab_codes_url: str = "http://codes.lab.example"
    second_labels_system: str = "http://codes.lab.example/second-labels"
    data: str | None = None
    """A file that the resources are kept in; without it they live in memory only."""
    faults: str | None = None
    """A TOML file of faults to play from the start."""
    fault_admin: bool = False
    log_requests: bool = False
    """Whether each request is logged: method, path, status and the faults that happened to it."""
    counterparties: tuple[Counterparty, ...] = Field(default_factory=_demo_counterparties)
    contracts: tuple[Contract, ...] = Field(default_factory=_demo_contracts)
    tokens: TokenSettings = TokenSettings()
    rules: RuleSettings = RuleSettings()

    @field_validator("base_url", "auth_url", "lab_codes_url")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if value != AUTO and (parts.scheme not in {"http", "https"} or not parts.netloc):
            raise ValueError(f"an address like http://127.0.0.1:8480/ is expected, came: {value}")
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
        """The same configuration with `auto` addresses settled for the address that the server listens on."""
        here = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        base = f"{here}/" if self.base_url == AUTO else f"{self.base_url.rstrip('/')}/"
        auth = _origin(base) if self.auth_url == AUTO else self.auth_url.rstrip("/")
        return self.model_copy(update={"host": host, "port": port, "base_url": base, "auth_url": auth, "listening": f"{here}/"})

    def resolve_addresses(self) -> "SandboxConfig":
        """The same configuration without `auto`, for apps that are used in-process."""
        return self.resolve_addresses_for(self.host, self.port)

    @property
    def own_addresses(self) -> tuple[str, ...]:
        """Addresses under which an absolute reference is one of ours."""
        return (self.base_url, self.listening) if self.listening else (self.base_url,)

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
    """The configuration cannot be used; the text names each key and what is wrong with it."""


def load_config(path: Path | None) -> SandboxConfig:
    """Reads a TOML file (or takes the defaults when there is none); `ConfigError` lists everything that is wrong."""
    if path is None:
        return SandboxConfig()
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path}: not TOML ({exc})") from exc
    return read_config(raw, str(path))


def read_config(raw: dict[str, Any], source: str) -> SandboxConfig:
    """Plain data -> configuration; `ConfigError` lists everything that is wrong, by key."""
    try:
        return SandboxConfig.model_validate(raw)
    except ValidationError as exc:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'all'}: {one['msg']}" for one in exc.errors()]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from exc


def _check_unique(values: list[Any], name: str) -> None:
    given = [value for value in values if value is not None]
    doubled = {value for value in given if given.count(value) > 1}
    if doubled:
        raise ValueError(f"{name}: given twice: {', '.join(sorted(map(str, doubled)))}")


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
