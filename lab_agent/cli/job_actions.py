"""`lab-agent outbox …`: one job, why it waits or fails, and what operators decide about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, JsonOption, operator_name, run_with_store
from lab_agent.cli.group_actions import AllOf, GroupCommand, YesOption, choose
from lab_agent.cli.outbox import job_row
from lab_agent.cli.output import Row, print_fields, print_json, print_line
from lab_agent.operations.audit_log import note_look
from lab_agent.orders import job_actions
from lab_agent.orders.group_actions import ActionOutcome
from lab_agent.orders.job_actions import JobGroup
from lab_agent.orders.pause_actions import load_pauses
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import AT_LABORATORY_SYSTEM, AttemptRecord, Job, JobKind, ServiceMessage
from lab_agent.queue.pauses import AdapterPause
from lab_agent.shared.conditions.table import explain
from lab_agent.shared.errors import InputError, StoreError, did_you_mean
from lab_agent.shared.ids import JobId
from lab_agent.shared.state_machines import OPEN_JOBS, JobState
from lab_agent.store.audit_records import AuditAction

JobArgument = Annotated[int, typer.Argument(metavar="JOB", help="Number of the job, as `outbox list` shows it.")]
OptionalJobArgument = Annotated[int | None, typer.Argument(metavar="[JOB]", help="Number of the job, as `outbox list` shows it.")]
JobCauseOption = Annotated[
    str | None,
    typer.Option("--cause", metavar="CAUSE", help="All jobs that fail of this cause, instead of one; see `lab-agent status`."),
]
SystemOption = Annotated[str | None, typer.Option("--system", help="With --cause: only jobs for this laboratory system.")]
KindOption = Annotated[JobKind | None, typer.Option("--kind", help="With --cause: only jobs of this kind.")]
NoteOption = Annotated[str, typer.Option("--note", help="Your reason; it appears in the order's timeline.")]


def show(job: JobArgument, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show one job: why it waits or fails, since when, what to do, and what the service said.

    The service's own words may name a patient: they are kept encrypted, and purged with the order's identification data.
    """

    async def work(context: CommandContext) -> tuple[Job, tuple[ServiceMessage, ...], AdapterPause | None]:
        found = await context.queries.job(JobId(job))
        if found is None:
            raise _unknown_job(job)
        pause = await _find_pause(context, found)
        said = await job_actions.find_service_messages(context.store, found)
        if said:
            await note_look(context.store, AuditAction.SERVICE_WORDS_SHOWN, found.order or "", by=None, now=context.now)
        return found, said, pause

    shown, messages, pause = run_with_store(config, work)
    print_fields({**_job_fields(shown, messages), "waits_for": pause and _describe_pause(pause)}, as_json=as_json)


async def _find_pause(context: CommandContext, job: Job) -> AdapterPause | None:
    """The pause for which a job waits."""
    if job.kind not in AT_LABORATORY_SYSTEM or not job.is_waiting:
        return None
    return (await context.store.run_read_only(lambda uow: load_pauses(uow, [job.system]))).get(job.system)


def _describe_pause(pause: AdapterPause) -> str:
    return f"{pause.system} is paused, by {pause.by} since {pause.since:%Y-%m-%d %H:%M} UTC"


def retry(
    job: OptionalJobArgument = None,
    cause: JobCauseOption = None,
    system: SystemOption = None,
    kind: KindOption = None,
    config: ConfigOption = None,
    by: ByOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if a retry may do something twice.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a job (again) now, or all that fail of a cause. Prints what that does first.

    A handover whose outcome nobody knows is never retried together with others.
    """
    chosen = choose(job, cause, "the number of a job")
    if isinstance(chosen, AllOf):
        group = JobGroup(_known(chosen.cause), system, kind)
        _retry_group(group, config, operator_name(by), GroupCommand(yes, as_json))
        return

    async def work(context: CommandContext) -> Job:
        current = await context.queries.job(JobId(chosen))
        if current is None:
            raise _unknown_job(chosen)
        _confirm_retry(current, yes=yes, quiet=as_json)
        return await job_actions.retry_job(context.store, current.id, by=operator_name(by), now=context.now)

    _print_job(run_with_store(config, work), as_json=as_json)


def dismiss(  # noqa: PLR0913, PLR0917 - each is an option of the command
    note: NoteOption,
    job: OptionalJobArgument = None,
    cause: JobCauseOption = None,
    system: SystemOption = None,
    kind: KindOption = None,
    config: ConfigOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Dismiss a job, or all that were set aside of a cause: it is never done."""
    chosen = choose(job, cause, "the number of a job")
    if isinstance(chosen, AllOf):
        group = JobGroup(_known(chosen.cause), system, kind)
        _dismiss_group(group, note, config, operator_name(by), GroupCommand(yes, as_json))
        return

    async def work(context: CommandContext) -> Job:
        return await job_actions.dismiss_job(context.store, JobId(chosen), by=operator_name(by), note=note, now=context.now)

    _print_job(run_with_store(config, work), as_json=as_json)


def _retry_group(group: JobGroup, config: Path | None, by: str, command: GroupCommand) -> None:
    async def work(context: CommandContext) -> ActionOutcome | None:
        return await command.decide(
            job_actions.preview_retry(context.store, group),
            lambda: job_actions.retry_group(context.store, group, by=by, now=context.now),
        )

    command.print(run_with_store(config, work))


def _dismiss_group(group: JobGroup, note: str, config: Path | None, by: str, command: GroupCommand) -> None:
    async def work(context: CommandContext) -> ActionOutcome | None:
        return await command.decide(
            job_actions.preview_dismissal(context.store, group),
            lambda: job_actions.dismiss_group(context.store, group, by=by, note=note, now=context.now),
        )

    command.print(run_with_store(config, work))


def _known(cause: str) -> FailureCause:
    """Raise `InputError` for a cause that there is not."""
    try:
        return FailureCause(cause)
    except ValueError as exc:
        hint = did_you_mean(cause, FailureCause) or "`lab-agent status` lists what fails"
        raise InputError(f"There is no cause {cause!r} of failing jobs; {hint}. Nothing was changed.") from exc


def done(
    job: JobArgument, note: NoteOption, config: ConfigOption = None, by: ByOption = None, as_json: JsonOption = False
) -> None:
    """Mark a job as done, because you know that it has happened."""

    async def work(context: CommandContext) -> Job:
        return await job_actions.mark_job_done(context.store, JobId(job), by=operator_name(by), note=note, now=context.now)

    _print_job(run_with_store(config, work), as_json=as_json)


def _confirm_retry(job: Job, *, yes: bool, quiet: bool) -> None:
    """Print what a retry does; if it may submit an order twice, ask for confirmation."""
    if not quiet:
        print_line(f"job {job.id}: {job_actions.describe_retry(job.kind, job.state, job.payload.get('adapter'))}")
    if job.kind is not JobKind.SUBMIT_ORDER or job.state is not JobState.NEEDS_REVIEW or yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("this may submit the order a second time; add --yes if you are sure", param_hint="--yes")
    typer.confirm("Are you sure that the laboratory system does not have it?", abort=True)


def _print_job(job: Job, *, as_json: bool) -> None:
    if as_json:
        print_json(job_row(job))
    else:
        print_line(f"job {job.id} is {job.state.value} now")


def _unknown_job(job: int) -> StoreError:
    return StoreError(f"No job {job}; `lab-agent outbox list` lists them.")


def _attempt_line(said: ServiceMessage) -> str:
    return f"attempt {said.attempt} at {said.at:%Y-%m-%d %H:%M:%S} UTC: {said.answer}: {said.text}"


def _describe_attempt(attempt: AttemptRecord) -> str:
    status = "" if attempt.status is None else f"HTTP {attempt.status}"
    outcome = "did not fail" if attempt.cause is None else attempt.cause.value
    parts = ", ".join(part for part in (attempt.call, status, f"{attempt.milliseconds} ms", outcome) if part)
    return f"attempt {attempt.number} at {attempt.at:%Y-%m-%d %H:%M:%S} UTC: {parts}"


def _job_fields(job: Job, messages: tuple[ServiceMessage, ...]) -> Row:
    last = messages[-1] if messages else None
    open_job = job.state in OPEN_JOBS
    return {
        **job_row(job),
        "created": job.created_at,
        "changed": job.changed_at,
        "failing_since": job.failing_since,
        "cause": job.failure_cause,
        "what_to_do": explain(job.failure_cause.condition) if job.failure_cause else None,
        "a_retry": job_actions.describe_retry(job.kind, job.state, job.payload.get("adapter")) if open_job else None,
        "service_said": last and last.text,
        "said_at": last and last.at,
        "attempts": "\n".join(map(_describe_attempt, reversed(job.attempt_log))) or None,
        "said_before": "\n".join(_attempt_line(each) for each in reversed(messages[:-1])) or None,
    }
