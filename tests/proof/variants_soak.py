"""Known-bad variants for the proofs of the soak and of several workers."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_SOAK = ("proof/test_soak.py",)
_WORKERS = ("proof/test_fencing.py",)

VARIANTS = (
    Mutant(
        name="closed_orders_stay",
        what="never purges a closed order",
        file="lab_agent/store/retention.py",
        old="keys = self._connection.scalars(oldest_first).all()",
        new="keys = self._connection.scalars(oldest_first).all()[:0]",
        found_by="soak",
        tests=_SOAK,
    ),
    Mutant(
        name="expired_leases_are_not_seen",
        what="leaves what a lost worker had begun to that worker for ever",
        file="lab_agent/store/jobs.py",
        old='        expired = self._fetch(job_statements.EXPIRED_LEASES, {"at": now})\n',
        new="        expired: tuple[Job, ...] = ()\n",
        found_by="workers",
        tests=_WORKERS,
    ),
)
