"""Known-bad variants for the proofs that are older than their table: simulations, adapters, values, the API and the store."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_LIVES = ("simulation/test_order_lifecycles.py",)
_INPUTS = ("dialects/test_inputs.py",)
_ENDPOINT = "integration/lis/http/test_endpoint_limits.py"

VARIANTS = (
    Mutant(
        name="sent_statuses_are_not_recorded",
        what="sets the status of a Task without recording before that it is ours",
        file="lab_agent/workflow/task_updates.py",
        old="        await lease.mark_started(lambda uow: self._record_sent_status(uow, lease.job, desired.status))\n",
        new="",
        found_by="days",
        tests=_LIVES,
    ),
    Mutant(
        name="versions_overtake_each_other",
        what="delivers a version of a report while another one of it is on its way",
        file="lab_agent/workflow/result_versions.py",
        old="        return self.on_its_way or next("
        "(each for each in reversed(self.queued) if self.order.is_older(each, report)), None)\n",
        new="        return None\n",
        found_by="values",
        tests=("integration/results/test_version_simulation.py",),
    ),
    Mutant(
        name="baskets_asked_again_get_new_labels",
        what="gives a basket that is asked for again other labels than before",
        file="lab_agent/catalogue_service/label_allocation.py",
        old="        had = _newest_unused(uow.issued_labels.list_for_basket(key)) if key else {}\n",
        new="        had = dict[str, str]()\n",
        found_by="api",
        tests=("integration/lab_api/test_label_allocation.py::test_four_processes_allocate_unique_labels",),
    ),
    Mutant(
        name="running_match_counts_as_queued",
        what="takes a match that is being done, after its worker was killed, for one that is still to come",
        file="lab_agent/domain/job_records.py",
        old="        return self.state in CLAIMABLE_STATES and self.lease_until is None\n",
        new="        return self.state in CLAIMABLE_STATES\n",
        found_by="values",
        tests=("integration/results/test_version_order.py",),
    ),
    Mutant(
        name="upload_records_are_believed",
        what="believes that what it has uploaded is on the service, whatever that says",
        file="lab_agent/workflow/resource_upload.py",
        old="        return there is None or there.version != known.version\n",
        new="        return False\n",
        found_by="values",
        tests=("integration/workflow/test_restored_service.py",),
    ),
    Mutant(
        name="unknown_reports_are_taken_as_ours",
        what="goes on when the service has a report of ours that its database does not know, as of a second agent",
        file="lab_agent/workflow/restored_store.py",
        old="    note_restoration(uow, RestoreSign.OWN_REPORTS, now, before=before, found=found)\n",
        new="    return\n",
        found_by="values",
        tests=("integration/workflow/test_second_agent.py",),
    ),
    Mutant(
        name="work_of_another_agent_is_done_again",
        what="hands an order over though a line of it has a report of ours that its database does not know",
        file="lab_agent/workflow/handover.py",
        old="        if not loaded.is_unsure and (found := await self._find_other_maker(loaded, standing)):\n"
        "            return Withheld(found)\n",
        new="",
        found_by="values",
        tests=("integration/workflow/test_second_agent.py",),
    ),
    Mutant(
        name="older_tasks_were_put_back_by_a_person",
        what="holds lines whose Tasks a restored service has from before their reports",
        file="lab_agent/workflow/restored_service.py",
        old="    return bool(put_back) and reported is not None and all("
        "each is not None and each < reported for each in put_back)\n",
        new="    return False\n",
        found_by="values",
        tests=("integration/workflow/test_restored_service.py",),
    ),
    Mutant(
        name="uploads_are_not_looked_for",
        what="creates again what a lost reply has left open, without looking for it, and without If-None-Exist",
        file="lab_agent/workflow/resource_upload.py",
        old="            there = await self._find(upload) if self.verifying or upload.identifier.value in self.known else None\n"
        "            if there is None:\n"
        "                there = await self.exchange.create("
        "upload.resource_type, upload.body, if_none_exist=upload.identifier)\n",
        new="            there = await self.exchange.create(upload.resource_type, upload.body)\n",
        found_by="values",
        tests=("integration/results/test_version_simulation.py",),
    ),
    Mutant(
        name="edits_of_others_are_overwritten",
        what="writes a Task without what others have written into it",
        file="lab_agent/workflow/task_updates.py",
        old="        body = build_task_update(task.body, status=desired.status, outputs=desired.outputs, replaces=obsolete)\n",
        new='        names = ("resourceType", "id", "meta", "status", "code")\n'
        "        ours = {name: task.body[name] for name in names if name in task.body}\n"
        "        body = build_task_update(ours, status=desired.status, outputs=desired.outputs, replaces=obsolete)\n",
        found_by="values",
        tests=("integration/workflow/test_task_updates.py",),
    ),
    Mutant(
        name="answered_before_the_commit",
        what="answers units of work, and commits them later",
        file="lab_agent/store/group_commit.py",
        old="            transaction.end()\n            self._check(connection)\n",
        new="            self._answer(list(group), frozenset())\n            time.sleep(0.02)\n            transaction.end()\n"
        "            self._check(connection)\n",
        found_by="store",
        tests=("integration/store/test_concurrency.py::test_random_kills_lose_no_commit_nor_leave_fragments",),
    ),
    Mutant(
        name="upgrades_commit_each_migration",
        what="commits an upgrade of the database migration by migration",
        file="lab_agent/store/migrations/env.py",
        old="    transactional_ddl=True,\n",
        new="    transactional_ddl=True,\n"
        '    on_version_apply=lambda **_: context.config.attributes["connection"].exec_driver_sql("COMMIT"),\n',
        found_by="store",
        tests=("integration/store/test_killed_upgrades.py",),
    ),
    Mutant(
        name="reactive_is_resistant",
        what="takes S, I and R in OBX-8 for susceptibilities where no organism is",
        file="lab_agent/lis/hl7v2/results/obx_flags.py",
        old='            yield susceptibility if is_sure else "", code\n',
        new="            yield susceptibility, code\n",
        found_by="values",
        tests=_INPUTS,
    ),
    Mutant(
        name="second_value_is_a_comment",
        what="takes a text beside a value of the same code for its comment, which is not sent",
        file="lab_agent/lis/hl7v2/results/obx_reader.py",
        old="            if last and last == previous and observations:\n",
        new="            if observations and kinds.get(entry.number):\n"
        "                observations[-1] = replace(observations[-1], note=one.value_string)\n"
        "            elif last and last == previous and observations:\n",
        found_by="values",
        tests=_INPUTS,
    ),
    Mutant(
        name="controls_are_patients",
        what="reads runs of quality control as results of patients",
        file="lab_agent/lis/hl7v2/field_map.py",
        old="        rules = (*self.ignore, *self.quality_control)\n",
        new="        rules = self.ignore\n",
        found_by="values",
        tests=_INPUTS,
    ),
    Mutant(
        name="dead_letters_are_not_told",
        what="opens no alert for jobs that have failed for good",
        file="lab_agent/workflow/attention_alerts.py",
        old="        return [*waiting, *self._failure_alerts(uow, now)]\n",
        new="        return []\n",
        found_by="poison",
        tests=("incidents/test_incidents.py::test_sample_of_incidents_is_told",),
    ),
    Mutant(
        name="strangers_keep_their_room",
        what="lets whoever came first to the endpoint for results keep all of its room",
        file="lab_agent/lis/http/request_body.py",
        old="        return not (self.is_complete or self.is_dropped) and (self.rank, self.claim) > (other.rank, other.claim)\n",
        new="        return False\n",
        found_by="adapters",
        tests=(f"{_ENDPOINT}::test_strangers_large_bodies_leave_room",),
    ),
    Mutant(
        name="strangers_fill_the_memory",
        what="keeps bodies in memory before their signature is known",
        file="lab_agent/lis/http/request_body.py",
        old="_MAX_IN_MEMORY = 65_536\n",
        new="_MAX_IN_MEMORY = 2**40\n",
        found_by="adapters",
        tests=(f"{_ENDPOINT}::test_large_bodies_wait_outside_of_memory",),
    ),
    Mutant(
        name="turned_away_untold",
        what="tells nobody of posted messages that are turned away",
        file="lab_agent/lis/http/webhook.py",
        old="            await self.alerts.report(Trouble.TURNED_AWAY, text)\n",
        new="            log.debug(text)\n",
        found_by="adapters",
        tests=(f"{_ENDPOINT}::test_turned_away_message_told_by_alert",),
    ),
)
