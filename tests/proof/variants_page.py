"""Known-bad variants for the proof of the status page."""

from __future__ import annotations

from tests.proof.mutants import Mutant

VARIANTS = (
    Mutant(
        name="patient_in_the_address",
        what="puts the name of a patient who is searched for into the address",
        file="lab_agent/status/templates/patient_search.html",
        old='<form class="card" method="post" action="/orders/patient"',
        new='<form class="card" method="get" action="/orders/patient"',
        found_by="page",
        tests=("acceptance/test_status_page.py::test_order_is_found_and_its_patient_revealed",),
    ),
    Mutant(
        name="pale_texts",
        what="writes what is less important in a grey that is hard to read",
        file="lab_agent/status/static/style.css",
        old="  --paper: #f4f6f6; --card: #ffffff; --ink: #17211f; --quiet: #52605e;",
        new="  --paper: #f4f6f6; --card: #ffffff; --ink: #17211f; --quiet: #a2b0ae;",
        found_by="page",
        tests=("integration/status/test_accessibility.py::test_no_page_has_a_fault",),
    ),
    Mutant(
        name="attempts_counted_afterwards",
        what="counts an attempt to sign in only after its password was checked",
        file="lab_agent/password_attempts.py",
        old="        self._failures[key] = (count + 1, now)\n",
        new="        self._failures[key] = (count, now)\n",
        found_by="page",
        tests=("integration/status/test_login.py::test_parallel_guesses_are_reserved_before_checked",),
    ),
    Mutant(
        name="failed_address_blocks_the_right",
        what="makes everybody wait who comes from an address that failed",
        file="lab_agent/status/login.py",
        old="attempts.check(name, address, now, verify)",
        new="attempts.check(address, address, now, verify)",
        found_by="page",
        tests=("integration/status/test_login.py::test_failed_address_blocks_nobody_behind_it",),
    ),
    Mutant(
        name="guesses_at_the_api_are_free",
        what="lets a client's password be guessed at the API without a wait",
        file="lab_api/auth.py",
        old='self._attempts.check(f"{address} {name}", address, self._now(), verify)',
        new="self._attempts.check(credential, address, self._now(), verify)",
        found_by="page",
        tests=("integration/lab_api/test_auth.py::test_password_guessing_throttled_known_client_served",),
    ),
)
