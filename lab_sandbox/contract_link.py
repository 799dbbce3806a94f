"""ProcedureRequest.supportingInfo: the link to the contract, by reference or by identifier."""

from dataclasses import dataclass

from lab_sandbox.config import Contract, SandboxConfig
from lab_sandbox.index import as_list
from lab_sandbox.references import parse_reference
from lab_sandbox.shapes import reference_text
from lab_sandbox.wire import Json


@dataclass(frozen=True)
class ContractLink:
    """One link as it stands in a ProcedureRequest."""

    link_type: str
    """`reference` or `identifier`."""
    contract_key: str
    """The contract id, or the contract code."""
    contract: Contract | None
    """The contract that it leads to; None when there is no such contract."""


def find_contract_links(line: Json, config: SandboxConfig) -> list[ContractLink]:
    """All contract links of a ProcedureRequest; other supporting information is passed over."""
    system = config.lab_system("contract")
    found = []
    for info in as_list(line.get("supportingInfo")):
        identifier = info.get("identifier") if isinstance(info, dict) else None
        ref = parse_reference(reference_text(info), config.own_addresses)
        if ref is not None and ref.type == "Contract":
            by_id = next((one for one in config.contracts if one.resource_id() == ref.id), None)
            found.append(ContractLink("reference", ref.id, by_id))
        elif isinstance(identifier, dict) and identifier.get("system") == system:
            code = str(identifier.get("value"))
            found.append(ContractLink("identifier", code, config.contract(code)))
    return found
