"""Delivery: from a result file to the end of its order on the service, one report of five observations."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bench import Bench, FloorRequest, open_bench
from benchmarks.child_process import Json
from benchmarks.measurement import Measurement, RunOptions, measure_counts, measure_ratio, measure_shares
from benchmarks.sample_order import ORDER_MARK
from benchmarks.workspace import CODES

_TESTS = (("6690-2", "6.20", "10*9/L"), ("2160-0", "71", "umol/L"), ("1742-6", "22.5", "U/L"), ("3016-3", "1.84", "m[IU]/L"),
          ("6301-6", "1.02", "{INR}"))  # fmt: skip
"""LOINC code, value and unit of an observation for each line."""
_LOINC = "http://loinc.org"


def measure(options: RunOptions) -> list[Measurement]:
    """Measure deliveries against their 18 requests."""
    with open_bench() as bench:
        requests = delivery_requests(bench)
        bench.run_delivery(write_result, options.choose(5, 20))
        bench.run_floor(requests, 20)
        count = options.choose(20, 60)
        return [
            *measure_ratio(
                f"{len(requests)} requests",
                lambda: bench.run_floor(requests, count),
                lambda: bench.run_delivery(write_result, count),
                rounds=options.choose(1, 4),
            ),
            *measure_counts(
                bench.delivery_counts(write_result, options.choose(10, 40)), most_statements=60, most_transactions=12
            ),
            *measure_shares(bench.delivery_profile(write_result, count)),
        ]


def write_result(folder: Path, order: Json) -> None:
    """Write the final report about all lines of an order, as the file of the laboratory system."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    report = {
        "report_id": f"report-{order['key']}",
        "version": 1,
        "status": "final",
        "order": order["key"],
        "lines": [line["key"] for line in order["lines"]],
        "effective": now,
        "issued": now,
        "observations": [
            {"id": code, "code": {"system": _LOINC, "code": code}, "value_quantity": {"value": value, "unit": unit}}
            for code, value, unit in _TESTS
        ],
    }
    file = folder / f"{order['key']}.part"
    file.write_text(json.dumps(report))
    file.rename(file.with_suffix(".json"))


def delivery_requests(bench: Bench) -> list[FloorRequest]:
    """What such a delivery needs at least: five observations, the report, and each Task read and written."""
    observations = [_create("Observation", number, _observation(*test)) for number, test in enumerate(_TESTS)]
    results = [{"reference": f"Observation/{ORDER_MARK}-o{number}"} for number, _ in enumerate(_TESTS)]
    based_on = [{"reference": name} for name in bench.sample["bodies"] if name.startswith("procedurerequest/")]
    report = _create("DiagnosticReport", 0, {"status": "final", "basedOn": based_on, "result": results})
    return [*observations, report, *_task_requests(bench)]


def _task_requests(bench: Bench) -> list[FloorRequest]:
    headers = {"Content-Type": "application/fhir+json", "If-Match": 'W/"1"'}
    requests = []
    for name in (*bench.sample["line_tasks"], bench.sample["order_task"]):
        body = bench.sample["bodies"][name]
        requests += [FloorRequest("GET", f"fhir/{name}"), FloorRequest("PUT", f"fhir/{name}", body, headers)]
    return requests


def _observation(code: str, value: str, unit: str) -> Json:
    return {
        "status": "final",
        "code": {"coding": [{"system": _LOINC, "code": code}]},
        "valueQuantity": {"value": value, "unit": unit},
    }


def _create(kind: str, number: int, content: Json) -> FloorRequest:
    system, value = f"{CODES}/{kind.lower()}", f"floor-{ORDER_MARK}-{number}"
    now = datetime.now(UTC).isoformat(timespec="seconds")
    body = {
        "resourceType": kind,
        "identifier": [{"system": system, "value": value}],
        "subject": {"reference": f"patient/{ORDER_MARK}-p0"},
        "issued": now,
        **content,
    }
    headers = {"Content-Type": "application/fhir+json", "If-None-Exist": f"identifier={system}|{value}"}
    return FloorRequest("POST", f"fhir/{kind}", json.dumps(body), headers)
