"""Whatever a partner sends, it is assessed: no exception, no name or birth date in a message, no line forgotten."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fhir.sample import order_wire, parsed, places
from tests.unit.rules.sample import judge

SCALARS = st.none() | st.booleans() | st.integers() | st.decimals(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=6
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_order_is_assessed_without_error(data: st.DataObject) -> None:
    wire = order_wire()
    parts = (wire["order_task"], *wire["line_tasks"], wire["resources"], wire["questionnaire_responses"])
    found = [(owner, key) for part in parts for owner, key in places(part) if key != "id"]
    for owner, key in data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=3)):
        if key in owner or isinstance(owner, list):
            owner[key] = data.draw(JUNK)
    wire["resources"] = {name: body for name, body in wire["resources"].items() if isinstance(body, dict)}
    wire["questionnaire_responses"] = [each for each in wire["questionnaire_responses"] if isinstance(each, dict)]
    hash(parsed(lambda sample: sample.update(wire)))
    judgement = judge(lambda sample: sample.update(wire))
    assert set(judgement.lines) == {"t1", "t2"}
    for finding in judgement.findings():
        assert "Lovelace" not in finding.message
        assert "1990-12-10" not in finding.message
