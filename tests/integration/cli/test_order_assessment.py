"""`orders judge`, `refuse`, `refuse-line`, `accept-line`: what an operator sees of an assessment, and what they decide."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from lab_agent.orders.patient_data import pack_identity
from lab_agent.orders.records import LineRecord, WorkOrder
from lab_agent.rules.engine import RULES
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId
from lab_agent.shared.state_machines import LineState, OrderState, WorkOrderState
from tests.harness.paths import CATALOGUE
from tests.integration.cli.conftest import Cli, LaboratoryFolder, make_order
from tests.unit.fhir.sample import Change, graph_of, order_wire

KEY = OrderKey("RJUDGED000000001")
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SYSTEMS = {
    'base_url = "http://127.0.0.1:9/"': 'base_url = "https://exchange.example/api/"',
    'lab_codes_url = "http://codes.lab.example"': 'lab_codes_url = "https://lab.example/codes"',
    'second_labels_system = "http://codes.lab.example/second-labels"': 'second_labels_system = "https://lab.example/second-labels"',
    'laboratory = "our-guid"': 'laboratory = "lab-guid"',
}


def put_order(lab: LaboratoryFolder, state: OrderState, *changes: Change, key: OrderKey = KEY, **fields: Any) -> None:
    text = lab.config.read_text(encoding="utf-8")
    for old, new in SYSTEMS.items():
        text = text.replace(old, new)
    lab.config.write_text(text, encoding="utf-8")
    parts = graph_of(order_wire(*changes)).to_json()

    def write(uow: Any) -> None:
        uow.orders.add(make_order(key, state=state, seen_at=NOW, contract="C-100", received=parts.medical, **fields))
        uow.vault.save_identity(key, pack_identity(parts.identification), at=NOW)

    lab.write(write)


def test_order_assessed_from_store_without_exchange(cli: Cli, lab: LaboratoryFolder) -> None:
    """A good order, and one with a fault, are assessed from what is stored; nothing is written."""

    def spoil(wire: dict[str, Any]) -> None:
        wire["resources"]["ProcedureRequest/pr1"]["code"]["coding"][0]["code"] = "999.999"

    put_order(lab, OrderState.HANDED_OVER)
    put_order(lab, OrderState.HELD, spoil, key=OrderKey("RSPOILT"))
    assert cli("catalogue", "import", str(CATALOGUE), stdin="y\n").code == 0
    before = cli("orders", "show", KEY, "--json").out
    output = cli("orders", "judge", KEY, "--json").json()
    assert (output["judged_from"], output["held_because"], output["findings"]) == ("store", None, [])
    assert output["routed_to"] == dict.fromkeys(output["accepted"], "folder")
    assert (len(output["accepted"]), len(output["silent"])) == (2, len(RULES))
    assert cli("orders", "show", KEY, "--json").out == before
    output = cli("orders", "judge", "RSPOILT", "--json").json()
    (finding,) = [each for each in output["findings"] if each["rule"] == "line.item"]
    assert (finding["severity"], finding["where"].startswith("ProcedureRequest[0].code")) == ("refuse", True)
    shown = cli("orders", "judge", "RSPOILT")
    assert (shown.code, "999.999 is not in the nomenclature" in shown.out) == (0, True)


def test_order_never_fetched_is_told_and_so_is_an_outage(cli: Cli, lab: LaboratoryFolder) -> None:
    lab.write(lambda uow: uow.orders.add(make_order(KEY)))
    for more, said in ((), "--fetch"), (("--fetch",), "127.0.0.1"):
        done = cli("orders", "judge", KEY, *more)
        assert (done.code, said in done.err) == (1, True)


def test_held_order_rejected_manually(cli: Cli, lab: LaboratoryFolder) -> None:
    put_order(lab, OrderState.HELD)
    assert cli("orders", "refuse", KEY, "--reason", "we never do this", "--by", "eve").code == 0
    shown = cli("orders", "show", KEY, "--json").json()
    assert shown["state"] == "rejected"
    assert {tuple(line["output"]) for line in shown["lines"]} == {("we never do this",)}
    assert [job["kind"] for job in shown["jobs"]] == ["update_line_task", "update_line_task"]
    again = cli("orders", "refuse", KEY, "--reason", "again")
    assert (again.code, "only a held order" in again.err) == (1, True)


CAUSE = "specimen.collected-ahead"
HELD = {"reason": "ahead", "held_since": NOW, "hold_cause": CAUSE}


def ahead(wire: dict[str, Any]) -> None:
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = "2999-03-02T08:30:00+03:00"


@pytest.mark.slow
def test_orders_held_by_a_rule_are_released_together(cli: Cli, lab: LaboratoryFolder) -> None:
    """Each is assessed: what the rule finds is overridden, what it does not find any more is left out with the reason."""
    two, mended, other = [OrderKey(f"RAHEAD000000000{number}") for number in (1, 2)], OrderKey("RMENDED"), OrderKey("ROTHER")
    for key in two:
        put_order(lab, OrderState.HELD, ahead, key=key, **HELD)
    put_order(lab, OrderState.HELD, key=mended, **HELD)
    put_order(lab, OrderState.HELD, ahead, key=other, **{**HELD, "hold_cause": "no_contract"})
    assert cli("catalogue", "import", str(CATALOGUE), stdin="y\n").code == 0
    release = ("orders", "release", "--cause", CAUSE, "--note", "the clinic's clock is wrong", "--by", "eve")

    asked = cli(*release)  # nobody answers the question
    assert (asked.code, f"3 × order: each goes on in spite of {CAUSE}" in asked.out) == (2, True), asked
    assert len(cli("orders", "list", "--state", "held", "--json").json()) == 4

    done = cli(*release, "--yes")
    assert (done.code, "done: 2" in done.out) == (0, True), done
    assert "1 left as they are: not held for this any more" in done.out
    for key in two:
        assert cli("orders", "judge", key, "--json").json()["held_because"] is None
        events = cli("orders", "show", key, "--json").json()["timeline"]
        assert [(each["by"], "the clinic's clock is wrong" in each["what"]) for each in events if each["by"]] == [("eve", True)]
    for key in (mended, other):
        assert not any(each["by"] for each in cli("orders", "show", key, "--json").json()["timeline"])
    assert cli("orders", "judge", other, "--json").json()["held_because"]

    again = cli(*release, "--yes", "--json").json()
    assert again["done"] == 0


@pytest.mark.parametrize(("command", "state"), [("refuse-line", "rejected"), ("accept-line", "accepted")])
def test_late_line_decided_manually(cli: Cli, lab: LaboratoryFolder, command: str, state: str) -> None:
    put_order(lab, OrderState.HANDED_OVER)
    line = LineRecord(
        key=LineKey("LLATE"), order=KEY, task_id=ResourceId("late"), procedure_request_id=ResourceId("pr9"),
        state=LineState.HELD, changed_at=NOW,
    )  # fmt: skip
    part = WorkOrder(order=KEY, adapter="folder", state=WorkOrderState.HANDED_OVER, changed_at=NOW)
    lab.write(lambda uow: (uow.orders.add_line(line), uow.orders.save_work_order(part)))
    reason = ["--reason", "came too late"] if command == "refuse-line" else []
    assert cli("orders", command, "LLATE", *reason, "--by", "eve").code == 0
    shown = json.loads(cli("orders", "show", KEY, "--json").out)
    assert [each["state"] for each in shown["lines"]] == [state]
    assert shown["timeline"][-1]["by"] == "eve"
    assert cli("orders", command, "LLATE", *reason).code == 1
    assert command == "refuse-line" or cli("orders", command, "LLATE", "--adapter", "foldr").code == 2


@pytest.mark.slow
def test_daemon_rejects_impossible_rule_settings(cli: Cli, lab: LaboratoryFolder) -> None:
    text = lab.config.read_text(encoding="utf-8")
    for setting, said in (
        ('[rules.severities]\n"order.contract-known" = "refuse"', "is not allowed for this rule"),
        ('[rules]\nmessages = "xx"', "xx.toml: cannot be read"),
    ):
        lab.config.write_text(f"{text}\n{setting}\n", encoding="utf-8")
        done = cli("run")
        assert (done.code != 0, said in done.err) == (True, True), setting
