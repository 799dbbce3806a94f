"""Upgrades of a database with rows in every table: from every schema, several at once, and while programs work on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from lab_agent.operations.hosts import SchemaProbe
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import SchemaInUseError, SchemaMismatchError
from lab_agent.store.crypto import new_key
from lab_agent.store.program_records import ProgramKind, RunningProgram
from lab_agent.store.schema import _alembic_config, check_schema, upgrade
from lab_agent.store.schema_versions import head_revision, known_revisions
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.forked_programs import process_context
from tests.harness.schemas import ADDITIVE, REBUILT, closing_engine, content, describe, fill, kept, next_schemas, upgrade_to
from tests.integration.store.conftest import UnitOfWorkRunner, with_store

_KEY = new_key()


def test_each_migration_names_the_oldest_program_that_can_go_on() -> None:
    scripts = ScriptDirectory.from_config(_alembic_config())
    assert {script.revision for script in scripts.walk_revisions()} == known_revisions(), "each is in the file of its name"
    assert scripts.get_current_head() == head_revision()
    for script in scripts.walk_revisions():
        oldest = getattr(script.module, "oldest_program", None)
        assert oldest in known_revisions(), f"{script.revision} names no `oldest_program`"
        assert oldest <= script.revision


FIRST, *LATER = sorted(known_revisions())


@pytest.mark.parametrize("first", [FIRST, *(pytest.param(each, marks=pytest.mark.slow) for each in LATER)])
def test_upgrade_from_every_schema_keeps_every_row(url: str, fresh: str, first: str) -> None:
    upgrade_to(url, first)
    fill(url)
    before = content(url)
    assert all(before.values())
    upgrade(url)
    upgrade(fresh)
    kept(before, after := content(url))
    assert describe(url) == describe(fresh)
    if "order_search" not in before:  # orders get the numbers by which they are found
        numbers = ["orders.key", "orders.task_id", "orders.requisition_value", "lines.key", "lines.task_id", "lines.accession"]
        numbers += ["label_uses.barcode", "work_orders.accession"]
        assert [each["terms"].splitlines() for each in after["order_search"]] == [numbers]
        if url.startswith("sqlite"):
            with closing_engine(url) as engine, engine.connect() as connection:
                found = text("SELECT count(*) FROM order_search_index WHERE order_search_index MATCH '\"uses.bar\"'")
                assert connection.scalar(found) == 1


def test_schemas_to_come_keep_every_row(url: str, fresh: str, tmp_path: Path) -> None:
    upgrade_to(url, max(known_revisions()))
    fill(url)
    before = content(url)
    with next_schemas(tmp_path, upto=REBUILT):
        upgrade(url)
        upgrade(fresh)
    kept(before, content(url))
    assert content(url)["orders"][0]["next_name"] == "of orders.key"
    assert describe(url) == describe(fresh)


def find_what_former_programs_lack(url: str, before: str, after: str) -> list[str]:
    """What a program that knows the schema `before` alone would stumble over in `after`."""
    found: list[str] = []
    upgrade_to(url, before)
    with closing_engine(url) as engine, engine.connect() as connection:
        former = _constraints(inspect(connection))
    upgrade_to(url, after)
    with closing_engine(url) as engine, engine.connect() as connection:
        later = _constraints(inspect(connection))
    for table, (columns, unique, references) in former.items():
        if table not in later:
            found.append(f"table {table} is gone")
            continue
        now, unique_now, references_now = later[table]
        still = columns.keys() & now.keys()
        found += [f"{table}.{name} is gone" for name in columns.keys() - still]
        found += [f"{table}.{name} is another" for name in still if now[name][0] != columns[name][0]]
        found += [f"{table}.{name} may not be null any more" for name in still if columns[name][1] > now[name][1]]
        found += [
            f"{table}.{name} has to be given" for name in now.keys() - columns.keys() if not now[name][1] and now[name][2] is None
        ]
        found += [f"{table}: {each} must be unique" for each in unique_now - unique]
        found += [f"{table}: {each} must be there" for each in references_now - references]
    return found


def _constraints(looked: Any) -> dict[str, Any]:
    return {
        name: (
            {each["name"]: (str(each["type"]), each["nullable"], each["default"]) for each in looked.get_columns(name)},
            {str(each["column_names"]) for each in looked.get_indexes(name) if each["unique"]}
            | {str(each["column_names"]) for each in looked.get_unique_constraints(name)},
            {str(each["constrained_columns"]) for each in looked.get_foreign_keys(name)},
        )
        for name in looked.get_table_names()
    }


def test_migrations_that_serve_former_programs_are_additive(tmp_path: Path) -> None:
    scripts = list(ScriptDirectory.from_config(_alembic_config()).walk_revisions())
    for script in (each for each in scripts if each.module.oldest_program < each.revision):
        database = f"sqlite:///{tmp_path / script.revision}.db"
        assert find_what_former_programs_lack(database, script.module.oldest_program, script.revision) == []
    with next_schemas(tmp_path, upto=REBUILT):
        assert find_what_former_programs_lack(f"sqlite:///{tmp_path}/a.db", head_revision_of_package(), ADDITIVE) == []
        assert find_what_former_programs_lack(f"sqlite:///{tmp_path}/b.db", ADDITIVE, REBUILT) == [
            "table next_things is gone",
            "orders.next_note is gone",
        ]


def head_revision_of_package() -> str:
    return max(each for each in known_revisions() if each < ADDITIVE)


# --- programs of the former schema


def program(schema: str, *, kind: ProgramKind = ProgramKind.AGENT, age: float = 1.0) -> RunningProgram:
    beat = datetime.now(UTC) - timedelta(seconds=age)
    return RunningProgram(name=f"x-{schema}", kind=kind, host="lab-2", pid=77, schema=schema, beat_at=beat, stale_after=60.0)


async def change_programs(url: str, work: Callable[[UnitOfWork], None]) -> None:
    await with_store(url, lambda store: UnitOfWorkRunner(store)(work), _KEY)


async def told_schema(url: str) -> list[ConditionId]:
    async def look(store: Store) -> list[ConditionId]:
        await store.verify()
        return [each.condition for each in await SchemaProbe(store).look()]

    return list(await with_store(url, look, _KEY))


async def test_additive_schema_serves_the_former_program(url: str, tmp_path: Path) -> None:
    assert not upgrade(url).is_newer
    head = head_revision()
    await change_programs(url, lambda uow: uow.programs.save(program(head)))
    with next_schemas(tmp_path):
        done = upgrade(url)
        assert (done.before, done.after, done.is_newer) == (head, ADDITIVE, False)
    found = check_schema(url)
    assert (found.database, found.program, found.is_newer) == (ADDITIVE, head, True)
    assert await told_schema(url) == [ConditionId.STORE_NEWER_SCHEMA]
    with next_schemas(tmp_path / "newer"):
        assert await told_schema(url) == []
    again = upgrade(url)
    assert (again.after, again.is_newer) == (ADDITIVE, True)
    assert check_schema(url).database == ADDITIVE


@pytest.mark.parametrize("kind", list(ProgramKind))
async def test_upgrade_that_does_not_serve_a_running_program_changes_nothing(url: str, tmp_path: Path, kind: ProgramKind) -> None:
    upgrade(url)
    running = program(head_revision(), kind=kind)
    await change_programs(url, lambda uow: uow.programs.save(running))
    before = describe(url), content(url)
    with next_schemas(tmp_path, upto=REBUILT):
        with pytest.raises(SchemaInUseError, match=rf"lab-{kind.value} on lab-2 \(process 77, schema 0\d+\).* for 60 seconds"):
            upgrade(url)
        assert (describe(url), content(url)) == before
        await change_programs(url, lambda uow: uow.programs.remove(running.name))
        assert upgrade(url).after == REBUILT
    with pytest.raises(SchemaMismatchError, match="install the newer program"):
        check_schema(url)
    with pytest.raises(SchemaMismatchError, match="install the newer program"):
        upgrade(url)


async def test_program_that_was_killed_is_in_the_way_for_a_minute_only(url: str, tmp_path: Path) -> None:
    upgrade(url)
    await change_programs(url, lambda uow: uow.programs.save(program(head_revision(), age=61)))
    with next_schemas(tmp_path, upto=REBUILT):
        assert upgrade(url).after == REBUILT


async def test_program_of_the_schema_before_is_served_by_the_next_step(url: str, tmp_path: Path) -> None:
    """A schema is widened first, and narrowed when no program needs the old form any more."""
    upgrade(url)
    with next_schemas(tmp_path, upto=REBUILT):
        narrowing = schema_file(REBUILT)
        narrowing.write_text(narrowing.read_text().replace('oldest_program = "9002"', 'oldest_program = "9001"'))
        upgrade_to(url, ADDITIVE)
        await change_programs(url, lambda uow: uow.programs.save(program(ADDITIVE)))
        assert upgrade(url).after == REBUILT
    with pytest.raises(SchemaMismatchError, match="install the newer program"):
        check_schema(url)


def schema_file(revision: str) -> Path:
    from lab_agent.store import schema_versions  # noqa: PLC0415 - its folder is another one inside `next_schemas`

    (found,) = (schema_versions.MIGRATIONS_FOLDER / "versions").glob(f"{revision}_*.py")
    return found


# --- several at once


def _upgrade_in_process(url: str, folder: Path, start: Any) -> None:
    with next_schemas(folder, upto=REBUILT):
        start.wait()
        upgrade(url)


@pytest.mark.slow
@pytest.mark.parametrize("with_data", [False, True], ids=["new", "with data"])
def test_four_upgrades_at_once_are_one(url: str, fresh: str, tmp_path: Path, with_data: bool) -> None:
    before: Any = {}
    if with_data:
        upgrade_to(url, min(known_revisions()))
        fill(url)
        before = content(url)
    context = process_context()
    start = context.Barrier(4)
    folders = [tmp_path / str(number) for number in range(4)]
    processes = [context.Process(target=_upgrade_in_process, args=(url, folder, start)) for folder in folders]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0, 0, 0, 0]
    with next_schemas(tmp_path, upto=REBUILT):
        upgrade(fresh)
    assert describe(url) == describe(fresh)
    if with_data:
        kept(before, content(url))
