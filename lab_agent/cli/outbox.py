"""`lab-agent outbox …`: the jobs to be done outside the agent. What operators decide about one is in `job_actions`."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    WideOption,
    run_with_store,
)
from lab_agent.cli.lazy_commands import CommandSource, lazy_group
from lab_agent.cli.output import Row, print_list, print_remaining
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.shared.state_machines import OPEN_JOBS, JobState
from lab_agent.store.read_models import DEFAULT_PAGE_SIZE, Page

_ACTIONS = {
    "show": CommandSource(
        "lab_agent.cli.job_actions:show",
        "Show one job: why it waits or fails, since when, what to do, and what the service said.",
    ),
    "retry": CommandSource(
        "lab_agent.cli.job_actions:retry", "Run a job (again) now, or all that fail of a cause. Prints what that does first."
    ),
    "dismiss": CommandSource(
        "lab_agent.cli.job_actions:dismiss", "Dismiss a job, or all that were set aside of a cause: it is never done."
    ),
    "done": CommandSource("lab_agent.cli.job_actions:done", "Mark a job as done, because you know that it has happened."),
}
app = typer.Typer(
    help="The outbox: jobs to be done at the service and the laboratory system.", no_args_is_help=True, cls=lazy_group(_ACTIONS)
)
_JOB_COLUMNS = ("job", "kind", "state", "cause", "reason", "order", "due", "attempts", "lis", "first_due", "target")


@app.command("list")
def list_jobs(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: ConfigOption = None,
    state: Annotated[list[JobState] | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    kind: Annotated[list[JobKind] | None, typer.Option("--kind", help="Only jobs of this kind.")] = None,
    cause: Annotated[FailureCause | None, typer.Option("--cause", help="Only jobs that fail of this cause.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="Only jobs for this laboratory system.")] = None,
    include_ended: Annotated[bool, typer.Option("--all", help="Include jobs that have ended.")] = False,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List jobs that have not ended, those first that were due first."""
    chosen = choose_columns(_JOB_COLUMNS, columns, wide=wide)
    states = state or (list(JobState) if include_ended else sorted(OPEN_JOBS))

    async def work(context: CommandContext) -> Page[Job]:
        found = context.queries.jobs(states=states, kinds=kind or (), cause=cause, system=system, limit=limit, offset=offset)
        return await found

    page = run_with_store(config, work)
    print_list(
        [job_row(job) for job in page.items],
        as_json=as_json,
        columns=chosen,
        empty_text="Nothing is waiting.",
    )
    print_remaining(page)


def job_row(job: Job) -> Row:
    """A row of the list of jobs."""
    return {
        "job": job.id,
        "kind": job.kind,
        "state": job.state,
        "order": job.order,
        "lis": job.payload.get("adapter"),
        "target": job.target,
        "attempts": job.attempts,
        "cause": job.failure_cause,
        "first_due": job.first_due_at,
        "due": job.due_at,
        "reason": job.reason,
    }
