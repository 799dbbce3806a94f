"""Known-bad variants that the proof `bad_service` must find."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_SERVICE = "proof/test_bad_service.py"

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="failed_put_counts_as_done",
        what="takes a Task as set though the service has answered its PUT with an error",
        file="lab_agent/workflow/task_updates.py",
        old='        await self.exchange.update("Task", desired.task_id, body, version=task.version)\n',
        new="        with suppress(Exception):\n"
        '            await self.exchange.update("Task", desired.task_id, body, version=task.version)\n',
        found_by="bad_service",
        tests=(f"{_SERVICE}::test_orders_end_the_same_with_every_pair_of_faults",),
    ),
    Mutant(
        name="token_follows_redirects",
        what="pins a redirect to the origin that it leads to, so that the token goes there",
        file="lab_agent/http_client.py",
        old="            url = _redirect_target(url, onward)\n",
        new="            url = base = str(httpx.URL(url).join(onward))\n",
        found_by="bad_service",
        tests=(f"{_SERVICE}::test_token_goes_nowhere_but_to_its_origin",),
    ),
    Mutant(
        name="each_process_refreshes",
        what="refreshes without the lease that the processes share",
        file="lab_agent/exchange/authenticator.py",
        old="            leased = unit.oauth_tokens.acquire_refresh_lease(self._owner, now=now, lease=lease)\n",
        new="            leased = True\n",
        found_by="bad_service",
        tests=(f"{_SERVICE}::test_fifty_refused_calls_in_three_processes_refresh_once",),
    ),
    Mutant(
        name="ended_renewal_is_waited_for",
        what="waits for a renewal of the sign-in that has ended and gave the token that was rejected: for ever, in one step",
        file="lab_agent/exchange/authenticator.py",
        old="            if self._renewal is None or self._renewal.done():",
        new="            if self._renewal is None:",
        found_by="bad_service",
        tests=("integration/exchange/test_authenticator.py::test_token_that_is_rejected_at_once_is_renewed_again",),
    ),
    Mutant(
        name="any_text_is_a_token",
        what="stores and sends whatever the authorization server calls an access token",
        file="lab_agent/ports/credential_repositories.py",
        old="    return len(text) <= MAX_TOKEN_LENGTH and _SENDABLE_TOKEN.fullmatch(text) is not None\n",
        new="    return bool(text)\n",
        found_by="bad_service",
        tests=("integration/exchange/test_authenticator.py::test_stored_token_no_header_can_hold_is_replaced",),
    ),
    Mutant(
        name="unexpected_errors_are_only_logged",
        what="logs what a task of the schedule stumbles over, and tries again at once, for ever",
        file="lab_agent/worker/schedule.py",
        old="            await self._record_fault(name, error)\n",
        new="",
        found_by="bad_service",
        tests=("integration/worker/test_queues_and_outages.py::test_unexpected_error_of_task_is_told_and_waits",),
    ),
    Mutant(
        name="leases_end_by_the_clock",
        what="takes a job from a worker that lives because our clock was set forward",
        file="lab_agent/worker/dispatcher.py",
        old="if found.has_expired_lease and self._can_trust_leases():",
        new="if found.has_expired_lease:",
        found_by="bad_service",
        tests=(f"{_SERVICE}::test_clock_that_jumps_loses_and_doubles_nothing",),
    ),
    Mutant(
        name="outage_outlasts_the_service",
        what="leaves what failed to its own long wait though the service answers again",
        file="lab_agent/worker/schedule.py",
        old="            uow.jobs.make_due(kind, now=clock.now(), failing_only=True)\n",
        new="            pass\n",
        found_by="bad_service",
        tests=(f"{_SERVICE}::test_service_away_for_a_day_is_asked_once_a_minute",),
    ),
)
