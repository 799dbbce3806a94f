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
)
