"""What goes wrong at the exchange service, and with clocks that differ from its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from anyio.from_thread import start_blocking_portal

from lab_agent.shared.conditions.model import ConditionId
from tests.harness.recording_proxy import recording_proxy
from tests.incidents.catalogue_of_incidents import fault_incident, incident
from tests.incidents.laboratory import Laboratory

POLL = "GET /fhir/Task?*status=requested*"
DOWN = {"kind": "status", "status": 503}
TOKEN = "POST /connect/token"


@incident(ConditionId.EXCHANGE_UNAVAILABLE)
def exchange_switched_off(lab: Laboratory) -> Iterator[None]:
    lab.stop("service")
    yield
    lab.start("service")


def see_an_order_and_go_down(lab: Laboratory) -> None:
    lab.place_order()
    lab.wait_until_logged("order_seen")
    lab.fault(DOWN)


def place_two_orders(lab: Laboratory) -> None:
    lab.place_order()
    lab.place_order()


fault_incident("exchange_answers_503", ConditionId.EXCHANGE_UNAVAILABLE, DOWN, sample=True)
fault_incident("exchange_hangs", ConditionId.EXCHANGE_UNAVAILABLE, {"kind": "hang", "seconds": 20})
fault_incident("exchange_resets_connections", ConditionId.EXCHANGE_UNAVAILABLE, {"kind": "reset"})
fault_incident(
    "exchange_goes_down_with_an_order_half_read",
    ConditionId.EXCHANGE_UNAVAILABLE,
    {**DOWN, "route": "GET /fhir/Task?*part-of=*"},
    during=see_an_order_and_go_down,
    affected=["1 order to fetch"],
)
fault_incident("exchange_asks_to_wait", ConditionId.EXCHANGE_ASKS_TO_WAIT, {"kind": "status", "status": 429, "retry_after": 20})
fault_incident(
    "sign_in_is_refused",
    ConditionId.EXCHANGE_SIGN_IN,
    {"kind": "revoke_token"},
    {"kind": "status", "status": 400, "route": TOKEN},
    after=Laboratory.restart_agent,  # a running one asks again after a while only
)
fault_incident(
    "token_cannot_be_sent",
    ConditionId.EXCHANGE_SIGN_IN,
    {"kind": "expire_token"},
    {"kind": "bad_token", "route": TOKEN},
    after=Laboratory.restart_agent,
)
fault_incident("poll_is_rejected", ConditionId.EXCHANGE_POLL, {"kind": "status", "status": 400, "route": POLL}, sample=True)
fault_incident(
    "next_page_is_not_found",
    ConditionId.EXCHANGE_POLL_CUT_OFF,
    {"kind": "small_pages", "route": POLL, "size": 1},
    {"kind": "status", "status": 404, "route": f"{POLL}&_after=*"},
    during=place_two_orders,
)
fault_incident("next_links_lead_elsewhere", ConditionId.EXCHANGE_FOREIGN_LINKS, {"kind": "foreign_next", "route": POLL})
fault_incident(
    "task_is_no_json",
    ConditionId.EXCHANGE_UNREADABLE_TASKS,
    {"kind": "poison_task", "route": POLL},
    during=Laboratory.place_order,
)
fault_incident(
    "search_is_not_filtered",
    ConditionId.EXCHANGE_SEARCH_NOT_FILTERED,
    {"kind": "ignore_search_parameters", "route": POLL},
    subject="order_tasks",
    before=Laboratory.place_and_hand_over,
)


@incident(ConditionId.CLOCK_DIFFERS)
def our_clock_is_a_day_behind(lab: Laboratory) -> Iterator[None]:
    """The agent reaches the service through a proxy that changes the `Date` of its answers."""
    upstream = lab.workspace.service_url
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(recording_proxy(upstream)) as proxy:
        proxy.clock_ahead = timedelta(days=1)
        lab.change_setting("exchange", base_url=proxy.url)
        yield
        lab.change_setting("exchange", base_url=upstream)
