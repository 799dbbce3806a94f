"""`lab-agent outbox …`: the jobs to be done outside the agent. What operators decide about one is in `job_actions`."""

from __future__ import annotations

from typing import Annotated

import typer

from lab_agent.cli.context import CommandContext, ConfigOption, JsonOption, LimitOption, OffsetOption, run_with_store
from lab_agent.cli.lazy_commands import CommandSource, lazy_group
from lab_agent.cli.output import Row, print_list, print_remaining
from lab_agent.domain.records import Job, JobKind
from lab_agent.domain.state_machines import OPEN_JOBS, JobState
from lab_agent.ports.queries import DEFAULT_PAGE_SIZE, Page

_ACTIONS = {
    "show": CommandSource(
        "lab_agent.cli.job_actions:show",
        "Show one job: why it waits or fails, since when, what to do, and what the service said.",
    ),
    "retry": CommandSource("lab_agent.cli.job_actions:retry", "Run a job (again) now. Prints what that does first."),
    "dismiss": CommandSource("lab_agent.cli.job_actions:dismiss", "Dismiss a job: it is never done."),
    "done": CommandSource("lab_agent.cli.job_actions:done", "Mark a job as done, because you know that it has happened."),
}
app = typer.Typer(
    help="The outbox: jobs to be done at the service and the laboratory system.", no_args_is_help=True, cls=lazy_group(_ACTIONS)
)


@app.command("list")
def list_jobs(
    config: ConfigOption = None,
    state: Annotated[list[JobState] | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    kind: Annotated[list[JobKind] | None, typer.Option("--kind", help="Only jobs of this kind.")] = None,
    include_ended: Annotated[bool, typer.Option("--all", help="Include jobs that have ended.")] = False,
    limit: LimitOption = DEFAULT_PAGE_SIZE,
    offset: OffsetOption = 0,
    as_json: JsonOption = False,
) -> None:
    """List jobs that have not ended, oldest first."""
    states = state or (list(JobState) if include_ended else sorted(OPEN_JOBS))

    async def work(context: CommandContext) -> Page[Job]:
        return await context.queries.jobs(states=states, kinds=kind or (), limit=limit, offset=offset)

    page = run_with_store(config, work)
    print_list([job_row(job) for job in page.items], as_json=as_json, empty_text="Nothing is waiting.", json_rows=page.items)
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
        "due": job.due_at,
        "reason": job.reason,
    }
