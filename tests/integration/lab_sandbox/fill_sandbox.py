"""Fills a sandbox in-process with three-line orders and their results, and prints memory and times as one line of JSON.

It runs as a program of its own, so that the memory it reports is that of the sandbox alone.
"""

import json
import resource
import sys
import time

from lab_sandbox import updates
from lab_sandbox.app import create_app
from lab_sandbox.search import parse_search
from tests.integration.lab_sandbox.world import make_config, observation, order_bundle, patient, report


def fill(count, open_orders):
    config = make_config()
    service = create_app(config).state.service
    clinic, laboratory = config.counterparties[0], config.counterparties[1]
    for number in range(count):
        made = updates.create(service, "Patient", patient(), clinic)
        created = service.orders.create(order_bundle(made.ref.id, 3), clinic)
        if number >= count - open_orders:
            continue
        for line in (json.loads(one.body) for one in created if one.ref.type == "ProcedureRequest"):
            value = updates.create(service, "Observation", observation(), laboratory)
            updates.create(service, "DiagnosticReport", report(line, result=[{"reference": value.ref.key()}]), laboratory)
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
    service, laboratory = fill(count, open_orders=20)

    def poll():
        query = parse_search("Task", [("status", "requested"), ("code", "OrderProcessingTask")], service.config)
        found = service.store.find("Task", query.criteria, lambda access: access.allows("read", laboratory.guid), limit=51)
        assert len(found) == 20
        return found

    order = poll()[-1].ref

    def lines():
        assert len(service.store.find("Task", [("part-of", [order.key()])], lambda _: True, limit=51)) == 3

    result = {
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "poll_ms": mean_milliseconds(poll),
        "part_of_ms": mean_milliseconds(lines),
    }
    print(json.dumps(result))  # noqa: T201 - the output of this program


if __name__ == "__main__":
    main(int(sys.argv[1]))
