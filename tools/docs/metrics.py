"""The page of metrics, from the registries of both programs."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from lab_agent.shared.metrics import Metrics
from lab_api.metrics import ApiMetrics

_HEAD = """# Metrics

Made by `python -m tools.docs` from the program. [Monitoring](monitoring.md) says how they are read, and what to do about them.
No label names a patient.
"""


def render_metrics_page() -> str:
    """Write the page."""
    parts = (
        ("lab-agent, at `status.port`", Metrics().registry),
        ("lab-api, at `api.port`, each process its own", ApiMetrics().registry),
    )
    return _HEAD + "".join(f"\n## {title}\n\n{_table(registry)}" for title, registry in parts)


def _table(registry: CollectorRegistry) -> str:
    rows = (
        f"| `{each.name}{'_total' if each.type == 'counter' else ''}` | {each.type} | {each.documentation} |\n"
        for each in sorted(registry.collect(), key=lambda each: each.name)
    )
    return "| Name | Kind | It shows |\n|---|---|---|\n" + "".join(rows)
