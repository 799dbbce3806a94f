"""`lab-agent outbox …`: the jobs to be done outside the agent, and what operators decide about them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lab_agent.cli.context import (
    ByOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.output import Row, print_fields, print_json, print_line, print_list, print_remaining
from lab_agent.domain.ids import JobId
from lab_agent.domain.records import Job, JobKind, ServiceMessage
from lab_agent.domain.state_machines import OPEN_JOBS, JobState
from lab_agent.errors import StoreError
from lab_agent.ports.queries import DEFAULT_PAGE_SIZE, Page
from lab_agent.workflow import operator_jobs
from lab_agent.workflow.attention_alerts import cause_text

app = typer.Typer(help="The outbox: jobs to be done at the service and the laboratory system.", no_args_is_help=True)
JobArgument = Annotated[int, typer.Argument(metavar="JOB", help="Number of the job, as `outbox list` shows it.")]
NoteOption = Annotated[str, typer.Option("--note", help="Your reason; it appears in the order's timeline.")]


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
    print_list([_job_row(job) for job in page.items], as_json=as_json, empty_text="Nothing is waiting.", json_rows=page.items)
    print_remaining(page)


@app.command()
def show(job: JobArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one job: why it waits or fails, since when, what to do, and what the service said.

    The service's own words may name a patient: they are kept encrypted, and purged with the order's identification data.
    """

    async def work(context: CommandContext) -> tuple[Job, ServiceMessage | None]:
        found = await context.queries.job(JobId(job))
        if found is None:
            raise _unknown_job(job)
        return found, await operator_jobs.find_service_message(context.store, found)

    shown, message = run_with_store(config, work)
    print_fields(_job_fields(shown, message), as_json=as_json)


@app.command()
def retry(
    job: JobArgument,
    config: ConfigOption = None,
    by: ByOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if a retry may do something twice.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a job (again) now. Prints what that does first."""

    async def work(context: CommandContext) -> Job:
        current = await context.queries.job(JobId(job))
        if current is None:
            raise _unknown_job(job)
        _confirm_retry(current, yes=yes, quiet=as_json)
        return await operator_jobs.retry_job(context.store, current.id, by=operator_name(by), now=context.now)

    _print_job(run_with_store(config, work), as_json=as_json)


@app.command()
def dismiss(
    job: JobArgument, note: NoteOption, config: ConfigOption = None, by: ByOption = None, as_json: JsonOption = False
) -> None:
    """Dismiss a job: it is never done."""

    async def work(context: CommandContext) -> Job:
        return await operator_jobs.dismiss_job(context.store, JobId(job), by=operator_name(by), note=note, now=context.now)

    _print_job(run_with_store(config, work), as_json=as_json)


@app.command()
def done(
    job: JobArgument, note: NoteOption, config: ConfigOption = None, by: ByOption = None, as_json: JsonOption = False
) -> None:
    """Mark a job as done, because you know that it has happened."""

    async def work(context: CommandContext) -> Job:
        return await operator_jobs.mark_job_done(context.store, JobId(job), by=operator_name(by), note=note, now=context.now)

    _print_job(run_with_store(config, work), as_json=as_json)


def _confirm_retry(job: Job, *, yes: bool, quiet: bool) -> None:
    """Print what a retry does; if it may submit an order twice, ask for confirmation."""
    if not quiet:
        print_line(f"job {job.id}: {operator_jobs.describe_retry(job.kind, job.state, job.payload.get('adapter'))}")
    if job.kind is not JobKind.SUBMIT_ORDER or job.state is not JobState.NEEDS_REVIEW or yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this may submit the order a second time; add --yes if you are sure", param_hint="--yes")
    typer.confirm("Are you sure that the laboratory system does not have it?", abort=True)


def _print_job(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job)
    else:
        print_line(f"job {job.id} is {job.state.value} now")


def _unknown_job(job: int) -> StoreError:
    return StoreError(f"No job {job}; `lab-agent outbox list` lists them.")


def _job_fields(job: Job, message: ServiceMessage | None) -> Row:
    open_job = job.state in OPEN_JOBS
    return {
        **_job_row(job),
        "created": job.created_at,
        "changed": job.changed_at,
        "failing_since": job.failing_since,
        "cause": job.failure_cause,
        "what_to_do": cause_text(job.failure_cause) if job.failing_since and job.failure_cause else None,
        "a_retry": operator_jobs.describe_retry(job.kind, job.state, job.payload.get("adapter")) if open_job else None,
        "service_said": None if message is None else message.text,
        "said_at": None if message is None else message.at,
    }


def _job_row(job: Job) -> Row:
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
