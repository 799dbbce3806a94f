"""A dashboard for Grafana over the agent's metrics: `config/monitoring/lab-agent-dashboard.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
"""Columns of Grafana's grid."""
_LIS_LABELS = "adapter, operation"
_SELECT = '{instance=~"$instance"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel: its queries with their legends, a kind of Grafana's, a unit, and its place in a row of the grid."""

    title: str
    queries: Sequence[tuple[str, str]]
    about: str = ""
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    alert_above: float | None = None
    """The value from which on it is shown in red."""


PANELS = (
    Panel(
        title="Open conditions",
        queries=((f"sum by (condition, severity) (lab_agent_condition_open{_SELECT}) > 0", "{{severity}}: {{condition}}"),),
        about="What is wrong now; docs/conditions.md says what to do.",
        kind="bargauge",
        width=12,
        alert_above=1,
    ),
    Panel(
        title="Open for",
        queries=((f"time() - min by (condition) (lab_agent_condition_since_timestamp_seconds{_SELECT})", "{{condition}}"),),
        kind="bargauge",
        unit="s",
        width=6,
    ),
    Panel(
        title="What waits because of it",
        queries=((f"sum by (condition, what) (lab_agent_condition_affected{_SELECT})", "{{condition}}: {{what}}"),),
        kind="bargauge",
        width=6,
    ),
    Panel(
        title="Since the last poll",
        queries=((f"time() - max(lab_agent_last_poll_timestamp_seconds{_SELECT})", "age"),),
        kind="stat",
        unit="s",
        width=6,
        height=4,
        alert_above=900,
    ),
    Panel(
        title="Oldest open order and waiting job",
        queries=((f"max by (what) (lab_agent_oldest_age_seconds{_SELECT})", "{{what}}"),),
        kind="stat",
        unit="s",
        width=6,
        height=4,
    ),
    Panel(
        title="Database",
        queries=((f"min(lab_agent_store_reachable{_SELECT})", "reachable"),),
        about="1: it answers.",
        kind="stat",
        width=6,
        height=4,
    ),
    Panel(
        title="Event loop late by, at most",
        queries=((f"max by (instance) (lab_agent_loop_lag_seconds{_SELECT})", "{{instance}}"),),
        kind="stat",
        unit="s",
        width=6,
        height=4,
        alert_above=1,
    ),
    Panel(title="Unfinished orders", queries=((f"max by (state) (lab_agent_orders{_SELECT})", "{{state}}"),)),
    Panel(title="Unfinished results", queries=((f"max by (state) (lab_agent_reports{_SELECT})", "{{state}}"),)),
    Panel(title="Unfinished order lines", queries=((f"max by (state) (lab_agent_lines{_SELECT})", "{{state}}"),)),
    Panel(title="Jobs", queries=((f"max by (kind, state) (lab_agent_jobs{_SELECT})", "{{kind}}: {{state}}"),)),
    Panel(
        title="Calls to the exchange service, 95 of 100 faster than",
        queries=(
            (
                f"histogram_quantile(0.95, sum by (le, operation) (rate(lab_agent_exchange_call_seconds_bucket{_SELECT}[5m])))",
                "{{operation}}",
            ),
        ),
        unit="s",
    ),
    Panel(
        title="Calls to the exchange service, by outcome",
        queries=((f"sum by (outcome) (rate(lab_agent_exchange_call_seconds_count{_SELECT}[5m]))", "{{outcome}}"),),
        unit="reqps",
    ),
    Panel(
        title="Calls to laboratory systems, 95 of 100 faster than",
        queries=(
            (
                f"histogram_quantile(0.95, sum by (le, {_LIS_LABELS}) (rate(lab_agent_lis_call_seconds_bucket{_SELECT}[5m])))",
                "{{adapter}}: {{operation}}",
            ),
        ),
        unit="s",
    ),
    Panel(
        title="Calls to laboratory systems, by outcome",
        queries=(
            (
                f"sum by (adapter, outcome) (rate(lab_agent_lis_call_seconds_count{_SELECT}[5m]))",
                "{{adapter}}: {{outcome}}",
            ),
        ),
        unit="reqps",
    ),
    Panel(
        title="New orders an hour",
        queries=((f"sum(increase(lab_agent_orders_seen_total{_SELECT}[1h]))", "orders"),),
    ),
    Panel(
        title="Attempts of jobs, by how they ended",
        queries=((f"sum by (kind, outcome) (rate(lab_agent_job_attempts_total{_SELECT}[5m]))", "{{kind}}: {{outcome}}"),),
        unit="cps",
    ),
)


def render_dashboard() -> str:
    """Give the file."""
    dashboard = {
        "title": "lab-agent",
        "uid": "lab-agent",
        "description": "Made by `make docs` (tools/docs/dashboard.py).",
        "tags": ["lab-agent"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource_variable(), _instance_variable()]},
        "panels": list(_place_panels(PANELS)),
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _instance_variable() -> dict[str, Any]:
    query = "label_values(lab_agent_build_info, instance)"
    return {
        "name": "instance",
        "label": "Agent",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": "instances"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _place_panels(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Put them into the grid from left to right, row by row; those of a row are of one height."""
    numbers, x, y, height = count(1), 0, 0, 0
    for panel in panels:
        if x + panel.width > _WIDTH:
            x, y = 0, y + height
        yield _build_panel(panel, next(numbers), x, y)
        x, height = x + panel.width, panel.height


def _build_panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + place), "datasource": _DATASOURCE, "expr": query, "legendFormat": legend}
        for place, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "title": panel.title,
        "description": panel.about,
        "type": panel.kind,
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "thresholds": _thresholds(panel)}, "overrides": []},
        "options": {} if panel.kind == "timeseries" else {"reduceOptions": {"calcs": ["lastNotNull"]}},
    }


def _thresholds(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alert_above is not None:
        steps.append({"color": "red", "value": panel.alert_above})
    return {"mode": "absolute", "steps": steps}


if __name__ == "__main__":
    sys.stdout.write(render_dashboard())
