"""Whatever a laboratory system sends is rejected on arrival, or becomes valid STU3."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from lab_agent import exact_json
from lab_agent.domain.lab_messages import LabReport
from lab_agent.errors import DataInvalidError
from lab_agent.fhir.report_builder import plan_uploads, with_result_references
from lab_agent.serialization import load_message
from tests.harness.stu3_schema import find_violations
from tests.integration.results.test_round_trip import EXAMPLES, context

ODD = st.sampled_from(
    ["", " ", "  ", "a", "a b", "a  b", " a", "a ", "\t", "a\tb", "\n", "a\nb", "é", "\u00a0", "\u200b", "\x01", "https://x"]
)
TEXT = ODD | st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=4)
NUMBER = st.sampled_from(["0", "-0", "0.00", "-1", "1.20", "1e300", "1E-300", "1E+2", "-0.10", "1" * 60]) | st.decimals(
    -(10**12), 10**12, allow_nan=False
).map(str)
WHEN = st.sampled_from(
    ["0001-01-02T00:00:00+00:00", "9999-12-30T00:00:00Z", "2026-01-01T00:00:00.123456+03:00", "2026-01-01T00:00:00+23:59",
     "2026-01-01T24:00:00Z", "2026-01-01T00:00-15:30"]
)  # fmt: skip


def some(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


QUANTITY = some({"value": NUMBER}, comparator=st.sampled_from(["<", "<=", ">=", ">", "~", ""]), unit=TEXT, system=TEXT, code=TEXT)
CODING = some({"code": TEXT}, system=TEXT, display=TEXT)
CONCEPT = some({}, coding=st.lists(CODING, max_size=2), text=TEXT)
RANGE = some({}, low=QUANTITY, high=QUANTITY)
DOCUMENT = some(
    {}, url=st.sampled_from(["https://lab.example/1", "https://lab.example/a b", ""]) | TEXT, content_type=TEXT | st.just("a/b"),
    language=TEXT, title=TEXT
)  # fmt: skip
SERIES = some(
    {"origin": QUANTITY, "period": NUMBER, "dimensions": st.integers(-1, 2), "data": st.sampled_from(["1 2", "E U L"]) | TEXT},
    factor=NUMBER, lower_limit=NUMBER, upper_limit=NUMBER,
)  # fmt: skip
VALUES = {
    "value_quantity": QUANTITY,
    "value_codeable_concept": CONCEPT,
    "value_string": TEXT,
    "value_range": RANGE,
    "value_ratio": some({"numerator": QUANTITY, "denominator": QUANTITY}),
    "value_sampled_data": SERIES,
    "value_attachment": DOCUMENT,
    "value_time": st.sampled_from(["08:05", "23:59:59.123456", "24:00", "00:00:00"]),
    "value_date_time": WHEN,
    "value_period": some({}, start=WHEN, end=WHEN),
}
NORMAL = some({}, low=QUANTITY, high=QUANTITY, meaning=CONCEPT, age=RANGE, text=TEXT)


@st.composite
def observations(draw: st.DrawFn) -> dict[str, Any]:
    form = draw(st.sampled_from(sorted(VALUES)))
    more = draw(some({}, id=TEXT, method=CONCEPT, reference_ranges=st.lists(NORMAL, max_size=2), issued=WHEN, note=TEXT))
    return {"code": draw(some({"code": st.just("718-7")}, display=TEXT)), form: draw(VALUES[form]), **more}


REPORT = some(
    {
        "report_id": TEXT | st.just("r"),
        "status": st.sampled_from(["registered", "partial", "preliminary", "final"]),
        "order": st.just("R1"),
        "effective": WHEN,
        "issued": WHEN,
        "observations": st.lists(observations(), max_size=1),
    },
    documents=st.lists(DOCUMENT, max_size=1),
)


@given(REPORT)
@settings(max_examples=10 * EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_accepted_message_produces_valid_stu3(tree: dict[str, Any]) -> None:
    """Whatever a laboratory system sends is rejected on receipt or becomes valid STU3."""
    try:
        read = load_message(exact_json.dumps(tree))
        assert isinstance(read, LabReport)
        plan = plan_uploads(read, context())
    except DataInvalidError:
        event("refused")
        return
    event("accepted")
    bodies = [*(each.body for each in plan.observations), with_result_references(plan.report, ["1"])]
    assert [find_violations(body, context().systems.nomenclature.url) for body in bodies] == [[]] * len(bodies)
