"""Access rights in meta.security, where codes are counterparty guids ("Authentication", point 8).

`$meta-add` grants rights afterwards, in the form of FHIR's own operation (Parameters, valueMeta.security).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from lab_sandbox.config import SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json

RIGHTS: Final = ("owner", "read", "readhistory", "updatebody")


@dataclass(frozen=True)
class AccessRights:
    """Who holds which right on one resource."""

    owner: str
    grants: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    """Pairs of (right, guid) without the owner."""

    def allows(self, right: str, guid: str, *, creator_rights: bool = True) -> bool:
        """Whether this right was granted; no right implies another.

        The creator has the right `owner`, with which it grants rights, and with `creator_rights` every other one.
        """
        return (right, guid) in self.grants or (guid == self.owner and (creator_rights or right == "owner"))

    def with_grants(self, more: Iterable[tuple[str, str]]) -> AccessRights:
        """A copy with more rights; nothing is revoked, and the owner stays."""
        return AccessRights(self.owner, self.grants | {pair for pair in more if pair[0] != "owner"})

    def security_labels(self, base_url: str) -> list[dict[str, str]]:
        """meta.security as responses carry it: systems `{base_url}security/<right>`, the owner first."""
        pairs = [("owner", self.owner), *sorted(self.grants)]
        return [{"system": f"{base_url}security/{right}", "code": guid} for right, guid in pairs]


def parse_grants(meta: Any, config: SandboxConfig, problems: Problems, element: str) -> set[tuple[str, str]]:
    """meta.security of a request (short names or full systems) as pairs of (right, guid); problems name the element."""
    security = meta.get("security", []) if isinstance(meta, dict) else []
    if not isinstance(security, list):
        problems.add(f"{element}.security", "rights-shape", "must be an array of objects with system and code")
        return set()
    grants = set()
    for position, entry in enumerate(security):
        pair = _parse_grant(entry, config.base_url)
        path = f"{element}.security[{position}]"
        if pair is None:
            problems.add(
                path, "rights-shape", f"needs a system (one of {', '.join(RIGHTS)}) and a code (the guid of a counterparty)"
            )
        elif config.counterparty(pair[1]) is None:
            problems.add(f"{path}.code", "rights-guid", f"no counterparty has the guid {pair[1]}")
        else:
            grants.add(pair)
    return grants


def _parse_grant(entry: Any, base_url: str) -> tuple[str, str] | None:
    if not isinstance(entry, dict):
        return None
    system, code = entry.get("system"), entry.get("code")
    if not isinstance(system, str) or not isinstance(code, str):
        return None
    prefix = f"{base_url.rstrip('/')}/security/"
    right = system.removeprefix(prefix)
    return (right, code) if right in RIGHTS else None


def parse_meta_add(parameters: Json, config: SandboxConfig) -> set[tuple[str, str]]:
    """The granted rights as pairs of (right, guid); `HttpError` (422) lists what is wrong with them."""
    problems = Problems(frozenset(config.rules.off))
    given = parameters.get("parameter")
    metas = [one.get("valueMeta") for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    grants = {pair for meta in metas for pair in parse_grants(meta, config, problems, "Parameters.parameter.valueMeta")}
    if not grants:
        problems.add("Parameters.parameter", "meta-add", "valueMeta.security with system and code is required", "required")
    problems.raise_if_any()
    return grants
