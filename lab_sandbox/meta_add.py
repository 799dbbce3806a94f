"""`$meta-add`: rights that are granted afterwards, as FHIR's own operation writes them (Parameters, valueMeta.security)."""

from lab_sandbox.config import SandboxConfig
from lab_sandbox.outcome import Problems
from lab_sandbox.rights import parse_grants
from lab_sandbox.wire import Json


def parse_meta_add(parameters: Json, config: SandboxConfig) -> set[tuple[str, str]]:
    """Pairs of (right, guid); a `Refusal` (422) names what is wrong with them."""
    problems = Problems(frozenset(config.rules.off))
    listed = parameters.get("parameter")
    metas = [one.get("valueMeta") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    known = {party.guid: party for party in config.counterparties}
    grants = {
        pair for meta in metas for pair in parse_grants(meta, config.base_url, known, problems, "Parameters.parameter.valueMeta")
    }
    if not grants:
        problems.add("Parameters.parameter", "meta-add", "valueMeta.security with system and code is required", "required")
    problems.raise_if_any()
    return grants
