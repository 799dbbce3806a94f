"""What is stored of one patient, or of the orders that were named: found by decrypting it, as nothing else names a patient."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab_agent import bootstrap
from lab_agent.cli.context import CommandContext
from lab_agent.operations.patient_erasure import ErasureTarget, look_at_orders, raw_message
from lab_agent.orders.patient_data import known_patient, reported_patient
from lab_agent.orders.patient_search import KnownPatient, MessageSearch, PatientCriteria, search_terms
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import InputError
from lab_agent.shared.ids import OrderKey
from lab_agent.store import patient_search
from lab_agent.store.opening import build_cipher
from lab_agent.store.patient_search import Sealed
from lab_agent.store.unit_of_work import Store

_MAX_FILE_BYTES = 20_000_000
_FOLDER_KEYS = frozenset({"folder", "orders", "results", "done", "failed"})
"""Keys of an adapter's table that name folders with whole messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundData:
    """What is about the patient: orders, results of no order, refused messages, files of adapters; and what cannot be read."""

    orders: tuple[ErasureTarget, ...]
    results: tuple[str, ...] = ()
    refused_messages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unreadable: int = 0


async def find_data(
    context: CommandContext, criteria: PatientCriteria | None, orders: Sequence[OrderKey], refused: Sequence[str]
) -> FoundData:
    """Find it, with the progress on standard error. Raises `StoreError` for an unknown order."""
    store = context.store
    search = _Search(store, context.settings, criteria, await patient_search.count_sealed(store))
    keys, results = {str(key) for key in orders}, list[str]()
    if criteria is not None:
        keys |= await search.find_orders()
        keys = await store.read(lambda connection: patient_search.find_same_patient(connection, sorted(keys)))
        results = await search.find_results()
    names = await store.read(lambda connection: patient_search.find_names(connection, sorted(keys)))
    about = MessageSearch(criteria, search_terms(names))
    if unknown := [key for key in refused if await _is_unknown(store, key)]:
        raise InputError(f"There is no refused message {unknown[0]}; `lab-agent results refused list` shows them.")
    messages = {*refused, *(await search.find_refused(about) if keys or criteria else ())}
    return FoundData(
        orders=await look_at_orders(store, [OrderKey(key) for key in sorted(keys)]),
        results=tuple(results),
        refused_messages=tuple(sorted(messages)),
        files=tuple(await asyncio.to_thread(lambda: sorted(find_files(context.settings, about)))),
        unreadable=search.unreadable,
    )


async def _is_unknown(store: Store, key: str) -> bool:
    return await store.run_read_only(lambda uow: uow.refused_messages.get(key) is None)  # type: ignore[arg-type]


class _Search:
    """Reads through what is sealed, and shows how far it is."""

    def __init__(self, store: Store, settings: Settings, criteria: PatientCriteria | None, total: int) -> None:
        self._store, self._settings, self._criteria, self._total = store, settings, criteria, total
        self._cipher = build_cipher(settings.store)
        self._done = self.unreadable = 0

    async def find_orders(self) -> set[str]:
        """Orders whose identification is that of the patient."""
        found: set[str] = set()
        async for portion in patient_search.read_identities(self._store, self._cipher):
            found |= {each.key for each in self._readable(portion) if self._is_patient(known_patient(each.content or b""))}
        return found

    async def find_results(self) -> list[str]:
        """Results of no order that name the patient: by name and birth date, or by an identifier, however the name is spelled."""
        named: list[str] = []
        async for portion in patient_search.read_reported_patients(self._store, self._cipher):
            if self._criteria is not None:
                readable = [(each.key, reported_patient(each.content or b"")) for each in self._readable(portion)]
                named += [key for key, patient in readable if patient is not None and _names(self._criteria, patient)]
        return await self._store.read(lambda connection: patient_search.find_unassigned(connection, named))

    async def find_refused(self, about: MessageSearch) -> set[str]:
        """Refused messages that name the patient, or one of the orders."""
        found: set[str] = set()
        async for portion in patient_search.read_refused_contents(self._store, self._cipher):
            for each in self._readable(portion):
                encoding = bootstrap.adapter_encoding(self._settings, each.source) if each.source else None
                if about.is_about(raw_message(each.content or b""), encoding):
                    found.add(each.key)
        return found

    def _is_patient(self, patient: Any) -> bool:
        if patient is None:
            self.unreadable += 1
            return False
        return self._criteria is not None and self._criteria.matches(patient)

    def _readable(self, portion: Sequence[Sealed]) -> Iterator[Sealed]:
        self._done += len(portion)
        if sys.stderr.isatty():
            sys.stderr.write(f"\rread {self._done} of {self._total}")
            sys.stderr.write("\n" if self._done >= self._total else "")
        for each in portion:
            if each.content is None:
                self.unreadable += 1
            else:
                yield each


def _names(wanted: PatientCriteria, patient: KnownPatient) -> bool:
    numbered = PatientCriteria(identifier=wanted.identifier, birth_date=wanted.birth_date)
    return wanted.matches(patient) or (bool(wanted.identifier) and numbered.matches(patient))


def find_files(settings: Settings, about: MessageSearch) -> Iterator[str]:
    """Files of adapters that are about the patient, in the folders that their tables name."""
    for name, table in settings.lis.tables.items():
        encoding = bootstrap.adapter_encoding(settings, name)
        for folder in dict.fromkeys(_folders(table)):
            for path in _files_in(folder):
                if (why := _why_about(path, about, encoding)) is not None:
                    yield f"{path}{why}"


def _why_about(path: Path, about: MessageSearch, encoding: str | None) -> str | None:
    """What to say behind the path of a file that is, or may be, about the patient; None for any other."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # the adapter has taken it meanwhile
        return None
    except OSError as exc:
        return f" (cannot be read: {exc.strerror})"
    return "" if about.is_about(content + b"\n" + path.name.encode("utf-8", "replace"), encoding) else None


def _folders(table: Mapping[str, Any]) -> Iterable[Path]:
    for key, value in table.items():
        if key in _FOLDER_KEYS and isinstance(value, str | Path):
            yield Path(value)


def _files_in(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError):  # the adapter has taken it meanwhile
            if path.is_file() and path.stat().st_size <= _MAX_FILE_BYTES:
                yield path
