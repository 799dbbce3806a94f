"""Reading results, and comparing them digit by digit."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from lab_sandbox.partner.errors import (
    InvalidJsonError,
    Json,
    PartnerError,
    ServiceRefusedError,
    decode,
    encode,
)
from lab_sandbox.partner.result_reader import find_differences, value_fields

CODE = {"system": "http://loinc.org", "code": "718-7", "display": "Hemoglobin"}
REPORTED = {
    "id": "1",
    "code": CODE,
    "status": "final",
    "value_quantity": {"value": Decimal("1.20"), "unit": "g/L", "comparator": "<"},
    "reference_ranges": [{"low": {"value": Decimal("1.00")}, "text": "adults"}],
}
SENT = {
    "resourceType": "Observation",
    "code": {"coding": [CODE]},
    "status": "final",
    "valueQuantity": {"value": Decimal("1.20"), "unit": "g/L", "comparator": "<", "system": "additional fields are allowed"},
    "referenceRange": [{"low": {"value": Decimal("1.00")}, "text": "adults"}],
}


def with_value(**quantity: object) -> Json:
    return {**SENT, "valueQuantity": {**SENT["valueQuantity"], **quantity}}


def test_complete_result_has_no_differences():
    assert find_differences(REPORTED, decode(encode(SENT))) == []
    assert value_fields(SENT) == ["valueQuantity"]


@pytest.mark.parametrize(
    ("observation", "path"),
    [
        (with_value(value=Decimal("1.2")), "valueQuantity.value"),
        (with_value(value=Decimal("1.200")), "valueQuantity.value"),
        (with_value(value="1.20"), "valueQuantity.value"),
        (with_value(unit="g/l"), "valueQuantity.unit"),
        (with_value(comparator=None), "valueQuantity.comparator"),
        ({**SENT, "status": "amended"}, "status"),
        ({**SENT, "code": {"coding": []}}, "code"),
        ({**SENT, "referenceRange": []}, "referenceRange[0]"),
        ({**SENT, "referenceRange": [{"low": {"value": 1}, "text": "adults"}]}, "referenceRange[0].low.value"),
        ({key: value for key, value in SENT.items() if key != "valueQuantity"}, "valueQuantity"),
    ],
)
def test_every_difference_names_its_field(observation: Json, path: str):
    assert [one.split(":")[0] for one in find_differences(REPORTED, observation)] == [path]


def test_same_instant_in_another_zone_is_equal():
    reported = {"code": CODE, "status": "final", "value_date_time": "2026-03-04T12:00:00+03:00"}
    sent = {"code": {"coding": [CODE]}, "status": "final", "valueDateTime": "2026-03-04T09:00:00Z"}
    assert find_differences(reported, sent) == []
    assert find_differences(reported, {**sent, "valueDateTime": "2026-03-04T09:00:01Z"})


def test_invalid_json_reported():
    for data in (b"", b"<html>", b"\xff", b'{"a": NaN}', b'{"a": 1e99999999999999999999}', b"[" * 100_000):
        with pytest.raises(InvalidJsonError):
            decode(data)


async def test_unknown_contract_named_in_error(client):
    client.account = replace(client.account, contract="C-999")
    with pytest.raises(PartnerError, match="contract C-999"):
        await client.contract_id()
    with pytest.raises(ServiceRefusedError, match="404"):
        await client.nomenclature()
