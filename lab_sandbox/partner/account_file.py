"""Where a clinic's account comes from: the settings of a sandbox, or a file of its own for a stage."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from lab_sandbox.config import Counterparty, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.errors import PartnerError

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class AccountSettings(BaseModel):
    """The file of a clinic's account. `test_environment` says that no patient is behind this address."""

    model_config = ConfigDict(extra="forbid")

    base_url: str
    auth_url: str
    login: str
    password: str
    client_id: str
    client_secret: str
    redirect_uri: str = ""
    guid: str
    laboratory: str
    contract: str
    lab_codes_url: str
    second_labels_system: str
    spelling: Literal["lower", "fhir"] = "lower"
    test_environment: bool = False


def read_account(path: Path) -> PartnerAccount:
    """Reads the file. Raises `PartnerError` where it is not valid, or is about an address with real patients."""
    try:
        settings = AccountSettings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise PartnerError(f"{path} cannot be read: {exc}") from exc
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg'].lower()}" for each in exc.errors())
        raise PartnerError(f"{path}: {problems}") from exc
    if not settings.test_environment and not is_local(settings.base_url):
        raise PartnerError(
            f"{path}: test orders go to a sandbox or a stage only. If {settings.base_url} is one, set test_environment = true."
        )
    values = settings.model_dump(exclude={"test_environment"})
    return PartnerAccount(
        **{**values, "base_url": f"{settings.base_url.rstrip('/')}/", "auth_url": settings.auth_url.rstrip("/")}
    )


def sandbox_account(config: SandboxConfig, contract: str | None = None) -> PartnerAccount:
    """The account of the clinic of a contract, or of the first one, as a sandbox with these settings knows it."""
    service = config.resolve_addresses()
    found = next((each for each in service.contracts if contract in {None, each.code}), None)
    if found is None:
        raise PartnerError(f"there is no contract {contract}, only {', '.join(each.code for each in service.contracts)}")
    clinic = service.counterparty(found.partner)
    if clinic is None or not clinic.redirect_uris:
        raise PartnerError(f"the partner of contract {found.code} has no redirect_uris. Set one.")
    return PartnerAccount(
        base_url=service.base_url,
        auth_url=service.auth_url,
        login=_require_field(clinic, "login"),
        password=_require_field(clinic, "password"),
        client_id=_require_field(clinic, "client_id"),
        client_secret=_require_field(clinic, "client_secret"),
        redirect_uri=clinic.redirect_uris[0],
        guid=clinic.guid,
        laboratory=found.laboratory,
        contract=found.code,
        lab_codes_url=service.lab_codes_url.rstrip("/"),
        second_labels_system=service.second_labels_system,
        spelling="fhir" if service.strict else "lower",
    )


def _require_field(clinic: Counterparty, name: str) -> str:
    value: str | None = getattr(clinic, name)
    if value is None:
        raise PartnerError(f"the partner {clinic.name} has no {name}. Set one.")
    return value


def is_local(address: str) -> bool:
    """Whether the address is on this machine."""
    return urlsplit(address).hostname in _LOOPBACK
