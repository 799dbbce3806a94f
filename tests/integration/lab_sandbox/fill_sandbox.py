"""Fills a sandbox in-process with three-line orders and their results, and prints memory and times as one line of JSON.

It runs as a program of its own, so that the memory it reports is that of the sandbox alone.
"""

import json
import resource
import sys
import time
from importlib import util
from pathlib import Path

from lab_sandbox import updates
from lab_sandbox.app import create_app
from lab_sandbox.search import parse_search


def load_helpers():
    spec = util.spec_from_file_location("sandbox_helpers", Path(__file__).with_name("conftest.py"))
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def fill(count, open_orders):
    helpers = load_helpers()
    config = helpers.make_config().model_copy(update={"base_url": helpers.BASE})
    service = create_app(config).state.service
    clinic, laboratory = config.counterparties[0], config.counterparties[1]
    for number in range(count):
        patient = updates.create(service, "Patient", helpers.patient(), clinic)
        created = service.orders.create(helpers.order_bundle(patient.ref.id, 3), clinic)
        if number >= count - open_orders:
            continue
        for line in (one for one in created if one.ref.type == "ProcedureRequest"):
            observation = updates.create(service, "Observation", helpers.observation(), laboratory)
            report = helpers.report(patient.ref.id, line.ref.id, result=[{"reference": observation.ref.key()}])
            updates.create(service, "DiagnosticReport", report, laboratory)
        for task in (one for one in created if one.ref.type == "Task"):
            body = json.loads(task.body) | {"status": "completed"}
            updates.update(service, task.ref, body, laboratory, task.etag())
    return service, laboratory


def mean_milliseconds(work, times=20):
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times * 1000


def main(count):
    started = time.perf_counter()
    service, laboratory = fill(count, open_orders=20)
    seconds = time.perf_counter() - started

    def poll():
        query = parse_search("Task", [("status", "requested"), ("code", "OrderProcessingTask")], service.config)
        found = service.store.find("Task", query.criteria, lambda access: access.allows("read", laboratory.guid), limit=51)
        assert len(found) == 20
        return found

    order = poll()[-1].ref

    def lines():
        found = service.store.find("Task", [("part-of", [order.key()])], lambda _: True, limit=51)
        assert len(found) == 3

    result = {
        "orders": count,
        "seconds": round(seconds, 1),
        "resources": sum(service.store.counts().values()),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "poll_ms": mean_milliseconds(poll),
        "part_of_ms": mean_milliseconds(lines),
        "read_ms": mean_milliseconds(lambda: service.resources.find(order)),
    }
    print(json.dumps(result))  # noqa: T201 - the output of this program


if __name__ == "__main__":
    main(int(sys.argv[1]))
