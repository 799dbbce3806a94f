"""Known-bad variants for the proof `days`, and some for `values` and `api`."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_HISTORIES = "integration/results/test_whose_value.py"
_DAYS = ("proof/test_days.py::test_laws_hold_after_every_step_of_every_day",)

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="result_acknowledged_before_commit",
        what="lets the laboratory's system forget a result while it is being stored",
        file="lab_agent/workflow/result_inbox.py",
        old="        new = await self.store.run(lambda uow: self._store_message(uow, message, content))\n",
        new="        new = True\n\n"
        "        async def store() -> None:\n"
        "            for _ in range(20):\n"
        "                await asyncio.sleep(0)\n"
        "            await self.store.run(lambda uow: self._store_message(uow, message, content))\n\n"
        "        asyncio.ensure_future(store())\n",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="late_owner_ends_its_job",
        what="writes the end of a job whose lease another worker has taken over",
        file="lab_agent/worker/job_lease.py",
        old="            uow.jobs.release(ended)\n",
        new="            uow.jobs.release(replace(ended, fencing_token=uow.jobs.get(ended.id).fencing_token))\n",
        found_by="days",
        tests=_DAYS,
        share=0.11,  # a day in twenty shows it
    ),
    Mutant(
        name="unknown_outcome_not_verified",
        what="does again what was not answered, without a look whether it was done",
        file="lab_agent/worker/job_runner.py",
        old="return self.claimed.job.state is JobState.OUTCOME_UNKNOWN and not self.claimed.job.safe_to_retry",
        new="return False",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="joined_by_filler_alone",
        what="takes a result for the newest order of the laboratory's number, whatever tube it names",
        file="lab_agent/workflow/order_lookup.py",
        old="    common = set.intersection(*(set(name.orders) for name in known))\n",
        new="    filler = [set(name.orders[:1]) for name in known if name.kind == 'accession']\n"
        "    common = set.intersection(*(filler or [set(name.orders) for name in known]))\n",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="newest_order_of_a_tube",
        what="takes a result for the newest order of its tube or number, whatever it is about",
        file="lab_agent/workflow/order_lookup.py",
        old="    return replace(choose(newest_first, join_limited(map(str, known))), unknown=unknown)\n",
        new="    return LookupResult(newest_first[0], unknown=unknown)\n",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="weaker_name_believed",
        what="believes the tube that a new version of a report names more than the order to which the report went",
        file="lab_agent/workflow/order_lookup.py",
        old="    if not common:\n        return LookupResult(problem=",
        new="    common = common or set(known[0].orders)\n    if not common:\n        return LookupResult(problem=",
        found_by="values",
        tests=(f"{_HISTORIES}::test_report_stays_with_its_order",),
    ),
    Mutant(
        name="later_time_wins",
        what="drops what its own time calls older, whatever it says and whenever it came",
        file="lab_agent/workflow/result_versions.py",
        old='        return "" if is_older is not arrived_later or is_numbered else differing_content(version, self.delivered)\n',
        new='        return ""\n',
        found_by="values",
        tests=(f"{_HISTORIES}::test_later_message_of_earlier_time_is_not_dropped",),
    ),
    Mutant(
        name="repeat_by_content_alone",
        what="takes a message for a repeat whose name and content came before, whatever was said of its report since",
        file="lab_agent/workflow/result_inbox.py",
        old="or is_repeat(content, said, earlier, newest) else name\n",
        new="or True else name\n",
        found_by="values",
        tests=(f"{_HISTORIES}::test_last_message_is_what_clinic_reads",),
    ),
    Mutant(
        name="lower_case_references",
        what="writes references in small letters, ids and all",
        file="lab_agent/fhir/reference_spelling.py",
        old="        return self.as_read.get(ref) or self._spell_by_example(ref)\n",
        new="        return (self.as_read.get(ref) or self._spell_by_example(ref)).lower()\n",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="rejected_order_handed_over",
        what="hands the other lines over where one bad line is to reject the whole order",
        file="lab_agent/workflow/order_decision.py",
        old="    if cancel_whole_order and invalid:\n",
        new="    if cancel_whole_order and invalid and not rejected:\n",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="older_version_after_its_correction",
        what="delivers a version of a report over the newer one that is on the service",
        file="lab_agent/workflow/result_matching.py",
        old="        if others.delivered is not None:\n            conflict",
        new="        if False and others.delivered is not None:\n            conflict",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="withdrawn_line_not_cancelled",
        what="does not tell the laboratory's system of a withdrawal once it has the order",
        file="lab_agent/workflow/line_lifecycle.py",
        old="    if lines and (part.state is WorkOrderState.HANDED_OVER or _is_submit_started(uow, part)):\n",
        new="    if lines and _is_submit_started(uow, part):\n",
        found_by="days",
        tests=_DAYS,
    ),
    Mutant(
        name="float_on_the_way_in",
        what="reads fractional numbers by way of a float, so that 1.20 becomes 1.2",
        file="lab_agent/exact_json.py",
        old="_decoder = msgspec.json.Decoder(float_hook=Decimal)\n",
        new="_decoder = msgspec.json.Decoder(float_hook=lambda digits: Decimal(repr(float(digits))))\n",
        found_by="values",
        tests=("integration/results/test_round_trip.py",),
    ),
    Mutant(
        name="notes_of_others_dropped",
        what="sends a Task back without the notes that the partner made on it",
        file="lab_agent/fhir/task_update.py",
        old='    changed = {**body, "status": status}\n',
        new='    changed = {**{name: part for name, part in body.items() if name != "note"}, "status": status}\n',
        found_by="values",
        tests=("integration/workflow/test_task_updates.py::test_partner_edits_survive_conflicts",),
    ),
    Mutant(
        name="labels_issued_twice",
        what="gives a basket the labels again that are on the tubes of an order",
        file="lab_agent/catalogue_service/label_allocation.py",
        old="    if any(each.used_at for each in newest.values()):\n",
        new="    if False and newest:\n",
        found_by="api",
        tests=("integration/lab_api/test_label_allocation.py::test_used_label_never_allocated_again",),
    ),
)
