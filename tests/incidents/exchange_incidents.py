"""What goes wrong at the exchange service."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.conditions.ids import ConditionId
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory

POLL = "GET /fhir/Task?*status=requested*"


@incident(ConditionId.EXCHANGE_UNAVAILABLE, sample=True)
def exchange_answers_503(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 503})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_UNAVAILABLE)
def exchange_switched_off(lab: Laboratory) -> Iterator[None]:
    lab.stop("service")
    yield
    lab.start_service()


@incident(ConditionId.EXCHANGE_UNAVAILABLE)
def exchange_hangs(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "hang", "seconds": 20})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_UNAVAILABLE)
def exchange_resets_connections(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "reset"})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_UNAVAILABLE, affected=["1 order to fetch"])
def exchange_goes_down_with_an_order_half_read(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 503, "route": "GET /fhir/Task?*part-of=*"})
    lab.place_order()
    lab.wait_until_logged("order_seen")
    lab.fault({"kind": "status", "status": 503})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_ASKS_TO_WAIT)
def exchange_asks_to_wait(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 429, "retry_after": 20})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_SIGN_IN)
def sign_in_is_refused(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "revoke_token"}, {"kind": "status", "status": 400, "route": "POST /connect/token"})
    yield
    lab.fault()
    lab.restart_agent()  # a running one asks again after a while only


@incident(ConditionId.EXCHANGE_SIGN_IN)
def token_cannot_be_sent(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "expire_token"}, {"kind": "bad_token", "route": "POST /connect/token"})
    yield
    lab.fault()
    lab.restart_agent()  # a running one asks again after a while only


@incident(ConditionId.EXCHANGE_POLL, sample=True)
def poll_is_rejected(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "status", "status": 400, "route": POLL})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_POLL_CUT_OFF)
def next_page_is_not_found(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "small_pages", "route": POLL, "size": 1}, {"kind": "status", "status": 404, "route": f"{POLL}&_after=*"})
    lab.place_order()
    lab.place_order()
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_FOREIGN_LINKS)
def next_links_lead_elsewhere(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "foreign_next", "route": POLL})
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_UNREADABLE_TASKS)
def task_is_no_json(lab: Laboratory) -> Iterator[None]:
    lab.fault({"kind": "poison_task", "route": POLL})
    lab.place_order()
    yield
    lab.fault()


@incident(ConditionId.EXCHANGE_SEARCH_NOT_FILTERED, "order_tasks")
def search_is_not_filtered(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.fault({"kind": "ignore_search_parameters", "route": POLL})
    yield
    lab.fault()
