"""Every log line in the programs names fields that the allow-list knows, so that none is dropped in daily life."""

import ast

from lab_agent.logs import FIELDS
from tests.harness.paths import ROOT

LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def log_calls(source: str) -> list[ast.Call]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS]
    return [call for call in named if any(keyword.arg == "action" for keyword in call.keywords)]


def test_log_call_finder_finds_calls_with_fields():
    assert len(log_calls("log.info('x', action='y', patient=1)\nlog.info('plain')")) == 1


def test_log_call_fields_are_on_allow_list():
    unknown = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {keyword.arg}"
        for program in ("lab_agent", "lab_api")
        for path in sorted((ROOT / program).rglob("*.py"))
        for call in log_calls(path.read_text(encoding="utf-8"))
        for keyword in call.keywords
        if keyword.arg and keyword.arg not in FIELDS
    ]
    assert unknown == [], "add the field to lab_agent.logs.FIELDS if it can never identify a patient; else leave it out"
