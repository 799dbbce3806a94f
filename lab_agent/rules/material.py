"""What a Specimen says about itself: type, body site, time point. Shared by the rules that compare it with the catalogue."""

from __future__ import annotations

from lab_agent.catalogue.supporting_info import SupportingInfo, read
from lab_agent.domain.received import ReceivedSpecimen
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules.case import Case, coding_of


def type_code(case: Case, specimen: ReceivedSpecimen) -> str | None:
    """The biomaterial type; None where there is none, or only one of a foreign system."""
    system = case.facts.systems.specimen_type
    coding = coding_of(specimen.type.coding, system)
    return coding.code if coding and system.match(coding.system) is not SystemMatch.FOREIGN else None


def info(case: Case, specimen: ReceivedSpecimen) -> SupportingInfo:
    """What its supportingInfo says; empty where it has none."""
    system = case.facts.systems.supporting_info
    ours = (each.value for each in specimen.extensions if system.match(each.url) is not SystemMatch.FOREIGN)
    return read(next((value for value in ours if value), ""))


def taken(case: Case, specimen: ReceivedSpecimen) -> tuple[str | None, str | None, frozenset[str]]:
    """What makes a repeat: biomaterial type, body site, and container types (silence on allow_multiple_items)."""
    sites = [coding.code for coding in specimen.body_site.coding]
    containers = frozenset(coding.code for each in specimen.containers for coding in each.type.coding)
    return type_code(case, specimen), (sites[0] if sites else info(case, specimen).bodysite_code), containers
