"""Write every generated page, the files for Prometheus and Grafana, and the templates of units: `python -m tools.docs`."""

from __future__ import annotations

from pathlib import Path

from lab_agent.rules.engine import RULES
from tools.docs.alert_rules import render_alert_rules
from tools.docs.commands import commands_page
from tools.docs.conditions import render_conditions_page
from tools.docs.configuration import built_in_adapter_settings, settings_page
from tools.docs.dashboard import render_dashboard
from tools.docs.dialects import read_dialects, render_dialects_page
from tools.docs.metrics import render_metrics_page
from tools.docs.rules import render_rules_page
from tools.docs.states import states_page
from tools.docs.unit_templates import UNITS, render_unit_templates

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = Path(__file__).parents[2] / "config" / "monitoring"


def main() -> None:
    """Write the pages into `docs/`, and the files of other programs into `config/monitoring/` and `systemd/`."""
    pages = {
        "commands.md": commands_page(),
        "conditions.md": render_conditions_page(),
        "configuration.md": settings_page(built_in_adapter_settings()),
        "dialects.md": render_dialects_page(read_dialects()),
        "metrics.md": render_metrics_page(),
        "rules.md": render_rules_page(RULES),
        "states.md": states_page(),
    }
    for name, text in pages.items():
        (DOCS / name).write_text(text, encoding="utf-8")
    MONITORING.mkdir(exist_ok=True)
    (MONITORING / "lab-agent.rules.yml").write_text(render_alert_rules(), encoding="utf-8")
    (MONITORING / "lab-agent-dashboard.json").write_text(render_dashboard(), encoding="utf-8")
    for name, text in render_unit_templates():
        (UNITS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
