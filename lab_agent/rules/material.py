"""What a Specimen says about itself: type, body site, time point. Shared by the rules that compare it with the catalogue."""

from __future__ import annotations

from lab_agent.catalogue.supporting_info import SupportingInfo, parse_supporting_info
from lab_agent.domain.received import ReceivedSpecimen
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules.case import RuleContext, best_coding


def specimen_type_code(context: RuleContext, specimen: ReceivedSpecimen) -> str | None:
    """The biomaterial type; None where there is none, or only one of a foreign system."""
    system = context.facts.systems.specimen_type
    coding = best_coding(specimen.type.coding, system)
    return coding.code if coding and system.match(coding.system) is not SystemMatch.FOREIGN else None


def specimen_supporting_info(context: RuleContext, specimen: ReceivedSpecimen) -> SupportingInfo:
    """What its supportingInfo says; empty where it has none."""
    system = context.facts.systems.supporting_info
    ours = (each.value for each in specimen.extensions if system.match(each.url) is not SystemMatch.FOREIGN)
    return parse_supporting_info(next((value for value in ours if value), ""))


def specimen_repeat_key(context: RuleContext, specimen: ReceivedSpecimen) -> tuple[str | None, str | None, frozenset[str]]:
    """What makes a repeat: biomaterial type, body site, and container types (silence on allow_multiple_items)."""
    sites = [coding.code for coding in specimen.body_site.coding]
    containers = frozenset(coding.code for each in specimen.containers for coding in each.type.coding)
    return (
        specimen_type_code(context, specimen),
        (sites[0] if sites else specimen_supporting_info(context, specimen).bodysite_code),
        containers,
    )
