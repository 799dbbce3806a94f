"""The staging tables, and the SQL that creates them in a given dialect.

Values, quantities and times are text: no other type preserves `1.20`, or an offset, on every database. The LIS reads the order
tables and may write `taken_at` and `taken_by` of an order (its claim); it fills the result tables, and sets `ready` of a result
to 1 as the last step. Everything else is the agent's to write.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Column, Date, DateTime, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, Text, func
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT
from sqlalchemy.engine import Dialect, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.schema import CreateIndex, CreateTable, SchemaItem

from lab_agent.shared.errors import Problem, SettingsError

MYSQL_DIALECTS = ("mysql", "mariadb")
_KEY_LENGTH = 20
_DATE_TIME_LENGTH = 40
_NUMBER_LENGTH = 64
_CODE_LENGTH = 100
_NAME_LENGTH = 255
_LONG_TEXT = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_LONG_BINARY = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
"""MySQL's TEXT and BLOB end at 64 kB, and what is longer may be cut off silently."""
_MYSQL_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4"}
"""Transactions, and every character: the default of a MySQL or MariaDB server may be MyISAM and latin1."""
_MYSQL_NOTE = """\
-- A packet holds a whole value: set max_allowed_packet of the server (16 MB by default) to 64M, or to one and a half
-- times the largest document, and the same for the client that writes the results.
"""


@dataclass(frozen=True, slots=True)
class StagingTables:
    """The tables of one adapter."""

    metadata: MetaData
    orders: Table
    patients: Table
    lines: Table
    specimens: Table
    containers: Table
    line_specimens: Table
    answers: Table
    cancellations: Table
    results: Table
    values: Table
    documents: Table
    not_performed: Table
    accessions: Table


def make_tables(prefix: str, schema: str | None) -> StagingTables:
    """Make the tables, all names beginning with `prefix`."""
    metadata = MetaData(schema=schema)
    orders = _orders_table(metadata, prefix)
    results = _results_table(metadata, prefix)
    tables = StagingTables(
        metadata,
        orders,
        _patients_table(metadata, prefix, orders),
        _lines_table(metadata, prefix, orders),
        *_specimen_tables(metadata, prefix, orders),
        _answers_table(metadata, prefix, orders),
        _cancellations_table(metadata, prefix),
        results,
        *_result_child_tables(metadata, prefix, results),
    )
    for table in metadata.sorted_tables:
        table.dialect_kwargs.update({f"{name}_{key}": _MYSQL_OPTIONS[key] for name in MYSQL_DIALECTS for key in _MYSQL_OPTIONS})
    return tables


def _orders_table(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}orders",
        metadata,
        Column(
            "order_key",
            String(_KEY_LENGTH),
            primary_key=True,
            comment="the agent's key of the order, which never changes",
        ),
        Column("requisition", String(_NAME_LENGTH), nullable=False),
        Column("requisition_system", String(_NAME_LENGTH)),
        Column("contract", String(_CODE_LENGTH), nullable=False),
        Column("ordered_at", String(_DATE_TIME_LENGTH), nullable=False, comment="ISO 8601 with offset"),
        Column("notifications", String(_NAME_LENGTH), comment="sms=true, email=false"),
        Column("document", _LONG_TEXT, nullable=False, comment="the whole order as JSON of the published schema"),
        Column("created_at", DateTime, nullable=False, server_default=func.current_timestamp()),
        Column("taken_at", DateTime, comment="written by the LIS: when it took the order"),
        Column("taken_by", String(_CODE_LENGTH), comment="written by the LIS: who took it (its claim)"),
    )


def _patients_table(metadata: MetaData, prefix: str, orders: Table) -> Table:
    return Table(
        f"{prefix}patients",
        metadata,
        _order_key_column(orders, primary_key=True),
        Column("patient_id", String(_NAME_LENGTH), comment="id of the Patient on the exchange service"),
        Column("patient_id_system", String(_NAME_LENGTH)),
        Column("identifiers", _LONG_TEXT, comment="the partner's own numbers of the patient: system|value, one a line"),
        Column("anonymous", Integer, nullable=False, comment="1: family holds ten digits, the given names are -"),
        Column("family", String(_NAME_LENGTH)),
        Column("given", String(_NAME_LENGTH)),
        Column("second_given", String(_NAME_LENGTH)),
        Column("other_names", _LONG_TEXT, comment="further names with their use, one a line"),
        Column("gender", String(_KEY_LENGTH)),
        Column("birth_date", Date, comment="null where the year or month alone is known: the document of the order has it"),
        Column("phone", String(_NAME_LENGTH)),
        Column("email", String(_NAME_LENGTH)),
        Column("global_system", String(_NAME_LENGTH)),
        Column("global_identifier", String(_NAME_LENGTH)),
    )


def _lines_table(metadata: MetaData, prefix: str, orders: Table) -> Table:
    return Table(
        f"{prefix}order_lines",
        metadata,
        Column("line_key", String(_KEY_LENGTH), primary_key=True),
        _order_key_column(orders),
        Column("position", Integer, nullable=False),
        Column("item", String(_CODE_LENGTH), nullable=False, comment="code of the nomenclature"),
        Column("lab_code", String(_CODE_LENGTH), comment="the laboratory's own code"),
        Column("caption", _LONG_TEXT),
        Column("other_codes", _LONG_TEXT, comment="further codes of the test: system|code, one a line"),
        Column("identifier", String(_NAME_LENGTH), comment="the partner's own number of the line"),
        Column("identifier_system", String(_NAME_LENGTH)),
        Column("ordered_at", String(_DATE_TIME_LENGTH), nullable=False),
        Column("notes", _LONG_TEXT),
        Column("old_order_number", String(_NAME_LENGTH)),
    )


def _specimen_tables(metadata: MetaData, prefix: str, orders: Table) -> tuple[Table, Table, Table]:
    specimens = Table(
        f"{prefix}specimens",
        metadata,
        _order_key_column(orders, primary_key=True),
        Column("specimen_id", String(_CODE_LENGTH), primary_key=True),
        Column("type", String(_CODE_LENGTH)),
        Column("body_site", String(_CODE_LENGTH)),
        Column("collected_at", String(_DATE_TIME_LENGTH)),
        Column("collected_until", String(_DATE_TIME_LENGTH), comment="the end, if it was collected over a period"),
        Column("method", _LONG_TEXT),
        Column("supporting_info", _LONG_TEXT),
    )
    containers = Table(
        f"{prefix}containers",
        metadata,
        _order_key_column(orders, primary_key=True),
        Column("specimen_id", String(_CODE_LENGTH), primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("barcode", String(_CODE_LENGTH), index=True),
        Column("second_barcode", String(_CODE_LENGTH)),
        Column("other_identifiers", _LONG_TEXT, comment="further numbers of the tube: system|value, one a line"),
        Column("type", String(_CODE_LENGTH)),
        Column("quantity", String(_NUMBER_LENGTH), comment="exact decimal"),
    )
    links = Table(
        f"{prefix}line_specimens",
        metadata,
        _order_key_column(orders, primary_key=True),
        Column("line_key", String(_KEY_LENGTH), primary_key=True),
        Column("specimen_id", String(_CODE_LENGTH), primary_key=True),
    )
    return specimens, containers, links


def _answers_table(metadata: MetaData, prefix: str, orders: Table) -> Table:
    return Table(
        f"{prefix}answers",
        metadata,
        _order_key_column(orders, primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
        Column("link_id", String(_NAME_LENGTH), nullable=False),
        Column("path", _LONG_TEXT, comment="groups and questions down to this one, with the number of a repeat: drugs[2]/dose"),
        Column("question", _LONG_TEXT),
        Column("answer", _LONG_TEXT, comment="one row for each answer (false and 0 are answers)"),
        Column("answer_system", String(_NAME_LENGTH), comment="code system, if the answer is a code"),
        Column("answer_unit", String(_NAME_LENGTH), comment="unit, if the answer is an amount"),
    )


def _cancellations_table(metadata: MetaData, prefix: str) -> Table:
    return Table(
        f"{prefix}cancellations",
        metadata,
        Column("line_key", String(_KEY_LENGTH), primary_key=True),
        Column("order_key", String(_KEY_LENGTH), nullable=False, index=True),
        Column("reason", _LONG_TEXT, nullable=False),
        Column("created_at", DateTime, nullable=False, server_default=func.current_timestamp()),
        Column("taken_at", DateTime, comment="written by the LIS"),
    )


def _results_table(metadata: MetaData, prefix: str) -> Table:
    table = Table(
        f"{prefix}results",
        metadata,
        Column("id", Integer, primary_key=True),
        Column(
            "kind", String(_KEY_LENGTH), nullable=False, server_default="report", comment="report, rejection or accession_update"
        ),
        Column(
            "document",
            _LONG_TEXT,
            comment="the whole message as JSON of the published schema (other columns are then ignored)",
        ),
        Column("report_id", String(_NAME_LENGTH), comment="the laboratory's own id of the report (the same for its corrections)"),
        Column("version", Integer),
        Column("status", String(_KEY_LENGTH), comment="registered, partial, preliminary or final"),
        Column("order_key", String(_KEY_LENGTH)),
        Column("accession", String(_CODE_LENGTH)),
        Column("barcode", String(_CODE_LENGTH)),
        Column("line_keys", _LONG_TEXT, comment="lines that it is about, separated by spaces"),
        Column("items", _LONG_TEXT, comment="item codes that it is about, separated by spaces"),
        Column("completes", _LONG_TEXT, comment="line keys or item codes that it completes, separated by spaces"),
        Column("effective_at", String(_DATE_TIME_LENGTH), comment="ISO 8601"),
        Column("issued_at", String(_DATE_TIME_LENGTH), comment="ISO 8601"),
        Column("patient_family", String(_NAME_LENGTH), comment="whose it is: the family name, or the whole name"),
        Column("patient_given", String(_NAME_LENGTH), comment="given names, separated by spaces"),
        Column("patient_birth_date", String(_DATE_TIME_LENGTH), comment="1980-02-29, 1980-02 or 1980"),
        Column("patient_sex", String(_KEY_LENGTH), comment="male, female, other or unknown, or M, F, O, U"),
        Column("patient_id", String(_NAME_LENGTH)),
        Column("patient_id_system", String(_NAME_LENGTH), comment="as the order has it, without one, it is not compared"),
        Column("collect_again", Integer, comment="1: a rejection that asks for new biomaterial"),
        Column("ready", Integer, nullable=False, server_default="0", comment="the LIS sets it to 1 when all rows are written"),
        Column("created_at", DateTime, nullable=False, server_default=func.current_timestamp()),
        Column("claimed_by", String(_CODE_LENGTH), comment="written by the agent"),
        Column("claimed_at", DateTime, comment="written by the agent"),
        Column("processed_at", DateTime, comment="written by the agent: it has committed the message"),
        Column("fault", _LONG_TEXT, comment="written by the agent: why it rejected the result (correct it and set this to NULL)"),
    )
    Index(f"{prefix}results_open", table.c.processed_at, table.c.ready)
    return table


def _result_child_tables(metadata: MetaData, prefix: str, results: Table) -> tuple[Table, Table, Table, Table]:
    values = Table(
        f"{prefix}result_values",
        metadata,
        *_child_key_columns(results),
        Column("observation_id", String(_CODE_LENGTH)),
        Column("code", String(_CODE_LENGTH)),
        Column("code_system", String(_NAME_LENGTH), comment="LOINC if NULL"),
        Column("code_text", _LONG_TEXT),
        Column("observation_status", String(_KEY_LENGTH), comment="final if NULL"),
        Column(
            "value_type", String(_KEY_LENGTH), comment="quantity, text, code, datetime or time (guessed from the value if NULL)"
        ),
        Column("value", _LONG_TEXT, comment="exact: 1.20 stays 1.20"),
        Column("comparator", String(2)),
        Column("unit", String(_CODE_LENGTH)),
        Column("low", String(_NUMBER_LENGTH)),
        Column("high", String(_NUMBER_LENGTH)),
        Column("range_text", _LONG_TEXT),
        Column("flag", String(_KEY_LENGTH)),
        Column("method", _LONG_TEXT),
        Column("specimen", String(_CODE_LENGTH), comment="barcode, or id of a specimen"),
        Column("note", _LONG_TEXT),
        Column("observed_at", String(_DATE_TIME_LENGTH)),
    )
    documents = Table(
        f"{prefix}result_documents",
        metadata,
        *_child_key_columns(results),
        Column("content", _LONG_BINARY, comment="the document (or url)"),
        Column("url", _LONG_TEXT),
        Column("content_type", String(_CODE_LENGTH), comment="application/pdf if NULL"),
        Column("language", String(_KEY_LENGTH)),
        Column("title", _LONG_TEXT),
    )
    not_performed = Table(
        f"{prefix}result_not_performed",
        metadata,
        *_child_key_columns(results),
        Column("line_key", String(_KEY_LENGTH)),
        Column("item", String(_CODE_LENGTH)),
        Column("reason", _LONG_TEXT, comment="shown to the clinic"),
    )
    accessions = Table(
        f"{prefix}result_accessions",
        metadata,
        *_child_key_columns(results),
        Column("number", String(_CODE_LENGTH)),
        Column("line_key", String(_KEY_LENGTH)),
        Column("item", String(_CODE_LENGTH)),
        Column("barcode", String(_CODE_LENGTH)),
    )
    return values, documents, not_performed, accessions


def _order_key_column(orders: Table, *, primary_key: bool = False) -> Column[str]:
    return Column("order_key", String(_KEY_LENGTH), ForeignKey(orders.c.order_key), primary_key=primary_key, nullable=False)


def _child_key_columns(results: Table) -> tuple[SchemaItem, ...]:
    return (
        Column("result_id", Integer, ForeignKey(results.c.id), primary_key=True),
        Column("position", Integer, primary_key=True, autoincrement=False),
    )


DIALECTS = ("postgresql", "mysql", "mssql", "oracle", "sqlite")
"""Dialects included in SQLAlchemy; others come with their own packages."""


def create_statements(dialect: str, prefix: str, schema: str | None = None) -> str:
    """Return the statements, each ending in a semicolon. Raises `SettingsError` for a dialect that is not installed."""
    sql_dialect = _load_dialect(dialect)
    tables = make_tables(prefix, schema).metadata.sorted_tables
    statements = [str(CreateTable(table).compile(dialect=sql_dialect)).strip() for table in tables]
    indexes = sorted((index for table in tables for index in table.indexes), key=lambda index: str(index.name))
    statements += [str(CreateIndex(index).compile(dialect=sql_dialect)).strip() for index in indexes]
    note = _MYSQL_NOTE if sql_dialect.name in MYSQL_DIALECTS else ""
    return note + "".join(f"{statement};\n\n" for statement in statements).rstrip() + "\n"


def dialect_name(url: str) -> str:
    """The dialect that a database address names. Raises `SettingsError`."""
    try:
        return make_url(url).get_backend_name()
    except ArgumentError as exc:
        raise SettingsError((Problem("url", "is not a database address", "write dialect+driver://user@host/database"),)) from exc


def _load_dialect(name: str) -> Dialect:
    try:
        made: Dialect = registry.load({"mariadb": "mysql"}.get(name, name))()
    except NoSuchModuleError as exc:
        problem = Problem("dialect", f"unknown dialect {name}", f"use one of {', '.join(DIALECTS)}")
        raise SettingsError((problem,)) from exc
    return made
