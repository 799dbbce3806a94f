"""All known-bad variants."""

from __future__ import annotations

from tests.proof import (
    variants_bad_service,
    variants_conformance,
    variants_conformance_calls,
    variants_conformance_orders,
    variants_conformance_results,
    variants_conformance_rules,
    variants_days,
    variants_deployment,
    variants_kills,
    variants_laboratory,
    variants_page,
    variants_peers,
    variants_poison,
    variants_soak,
    variants_system_calls,
)
from tests.proof.mutants import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *variants_kills.VARIANTS,
    *variants_system_calls.VARIANTS,
    *variants_days.VARIANTS,
    *variants_laboratory.VARIANTS,
    *variants_bad_service.VARIANTS,
    *variants_poison.VARIANTS,
    *variants_soak.VARIANTS,
    *variants_peers.VARIANTS,
    *variants_conformance.VARIANTS,
    *variants_conformance_orders.VARIANTS,
    *variants_conformance_results.VARIANTS,
    *variants_conformance_calls.VARIANTS,
    *variants_conformance_rules.VARIANTS,
    *variants_page.VARIANTS,
    *variants_deployment.VARIANTS,
)
