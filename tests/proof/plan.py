"""The proofs: what each claims, and which tests are it. Every long test (`@pytest.mark.proof`) belongs to one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A claim, and the long tests that try it. `tests` are files below `tests/`; `name` is for the command line.

    `short_seconds`: what its short form takes on a quiet machine of two cores; what takes longest is begun first.
    `processes`: how many of its tests run side by side in full length; more than one for what mostly waits. `in_full`: a figure
    that says more of a shorter run than its share, and its number in full. `about`: files that it is about besides the programs.
    """

    name: str
    claim: str
    tests: tuple[str, ...]
    short_seconds: int = 0
    processes: int = 1
    in_full: tuple[str, int] | None = None
    about: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """A figure of a proof for the README: its number stands before `text`."""

    proof: str
    figure: str
    text: str


PROOFS = (
    Proof(
        name="kills",
        claim="The agent and the API are killed at any moment, by each adapter and on both databases: each order once, each "
        "result digit for digit",
        tests=("proof/test_kills.py", "acceptance/test_crash_recovery.py", "acceptance/test_delivery_crashes.py"),
        short_seconds=110,
        processes=4,
    ),
    Proof(
        name="system_calls",
        claim="Each write, sync, rename and removal of an intake and a delivery fails once, or is the last: none lost or twice",
        tests=("proof/test_system_calls.py",),
        short_seconds=50,
    ),
    Proof(
        name="adapters",
        claim="Each adapter alone is killed at random moments: no order handed over twice, no result lost",
        tests=(
            "integration/lis/test_crash_recovery.py",
            "integration/lis/hl7v2/test_crash_recovery.py",
            "integration/lis/hl7v2/test_hostile_peers.py",
            "integration/lis/hl7v2/test_adapter.py",
        ),
        short_seconds=45,
    ),
    Proof(
        name="days",
        claim="Simulated days with outages, edits, withdrawals, corrections, refusals, two workers and restarts keep every law",
        tests=("simulation/test_order_lifecycles.py", "proof/test_days.py"),
        in_full=("days", 10_000),
        short_seconds=60,
        processes=2,
    ),
    Proof(
        name="workers",
        claim="Several workers on one PostgreSQL: stopped beyond their leases, cut off, its server restarted and failed over",
        tests=(
            "acceptance/test_several_workers.py",
            "acceptance/test_differing_clocks.py",
            "proof/test_fencing.py",
        ),
        short_seconds=150,
    ),
    Proof(
        name="bad_service",
        claim="Each fault of the service alone and in pairs: every order comes to the same end as without",
        tests=("proof/test_bad_service.py", "integration/exchange/test_authenticator_simulation.py"),
        short_seconds=35,
    ),
    Proof(
        name="poison",
        claim="One bad order, result, document, file, message, row or catalogue among a thousand: 999 pass, one is told",
        tests=("proof/test_poison.py", "incidents/test_incidents.py"),
        short_seconds=95,
    ),
    Proof(
        name="soak",
        claim="A month of a busy laboratory with retention: database, memory, files and the age of the oldest work stay flat",
        tests=("proof/test_soak.py", "acceptance/demo/test_many_orders.py", "integration/lab_sandbox/test_scale.py"),
        in_full=("orders", 600_000),
        short_seconds=100,
    ),
    Proof(
        name="values",
        claim="Values, versions and Tasks that others edit arrive as they left, whatever comes in between",
        tests=(
            "integration/results/test_version_simulation.py",
            "integration/workflow/test_task_updates.py",
            "unit/rules/test_partner_orders.py",
            "unit/catalogue/spreadsheet/test_xlsx.py",
            "acceptance/test_sent_bodies.py",
        ),
        short_seconds=20,
    ),
    Proof(
        name="api",
        claim="Random requests to the API and the sandbox get documented answers; labels of several processes are unique",
        tests=(
            "integration/lab_api/test_openapi_fuzzing.py",
            "integration/lab_api/test_label_allocation.py",
            "integration/lab_api/test_connection_limits.py",
            "integration/lab_sandbox/test_fuzzing.py",
        ),
        short_seconds=145,
    ),
    Proof(
        name="store",
        claim="Backups during writes are whole, killed upgrades change nothing, a restored database does nothing twice",
        tests=(
            "integration/store/test_backups.py",
            "integration/store/test_killed_upgrades.py",
            "integration/store/test_concurrency.py",
            "acceptance/test_restore.py",
        ),
        short_seconds=90,
    ),
    Proof(
        name="peers",
        claim="Foreign FHIR and HL7 v2 software understands what is sent, and is understood",
        tests=("integration/hapi/test_stu3_server.py", "integration/lis/hl7v2/test_hapi.py"),
        short_seconds=100,
    ),
    Proof(
        name="conformance",
        claim="A fault that breaks the sentence of a row of the conformance page is found by a test that the row names",
        tests=("proof/test_conformance.py",),
        about=("docs/conformance.md",),
        short_seconds=10,
    ),
    Proof(
        name="mutation",
        claim="Each small change of records, rules or catalogue (an operator, a constant, an argument, a transition) is found by "
        "unit tests, or is listed with its reason",
        tests=("proof/test_mutation.py",),
        short_seconds=75,
    ),
    Proof(
        name="page",
        claim="What people do on the status page works on the real programs, also without scripts, and axe finds no fault",
        tests=("acceptance/test_status_page.py", "integration/status/test_accessibility.py"),
        short_seconds=110,
    ),
    Proof(
        name="deployment",
        claim="Installed by its pages on a real systemd, built as the Dockerfile says, and run by every transport",
        tests=(
            "acceptance/deployment/test_install_docs.py",
            "acceptance/deployment/test_failed_units.py",
            "acceptance/deployment/test_dockerfile.py",
            "acceptance/deployment/test_sbom.py",
            "acceptance/demo/test_transports.py",
            "acceptance/demo/test_runs.py",
        ),
        about=("docs", "debian", "systemd", "Dockerfile", ".dockerignore", "compose.yaml"),
        short_seconds=25,
    ),
)

HEADLINES = (
    Headline("kills", "kills", "kills of every program, by each adapter, on both databases: no order lost, none done twice"),
    Headline("adapters", "kills", "kills of each adapter alone: nothing handed over twice, no result lost"),
    Headline("system_calls", "faults", "faults of the system calls of an intake and a delivery: one fails, or is the last one"),
    Headline("days", "days", "simulated days with outages, edits, withdrawals and restarts: every law kept at every step"),
    Headline("workers", "stopped_beyond_the_lease", "workers stopped beyond their leases, PostgreSQL restarted and failed over"),
    Headline("bad_service", "pairs_of_faults", "pairs of faults of the service: every order came to the same end as without"),
    Headline("poison", "incidents_told", "incidents, each told within its time with its cause and its mend"),
    Headline("soak", "orders", "orders in a simulated month with retention: database, memory and files stay flat"),
    Headline("api", "requests", "random requests at the public API: documented answers, no 500"),
    Headline("mutation", "found", "small changes of the pure packages found by their unit tests; the others listed with reasons"),
    Headline("store", "killed_upgrades", "upgrades of the database killed at a statement: all or nothing"),
)
"""What the README shows of the proofs."""
