"""`$CreateDiagnosticRequest`: judge the bundle, replace its local addresses, keep it whole, answer with every id filled."""

from collections.abc import Mapping
from uuid import uuid4

from lab_sandbox.arrays import check_arrays
from lab_sandbox.config import Contract, Counterparty, SandboxConfig
from lab_sandbox.draft import Draft, Entry, read_draft
from lab_sandbox.index import listed
from lab_sandbox.line_rules import check_lines
from lab_sandbox.offers import Offers
from lab_sandbox.order_rules import check_order
from lab_sandbox.outcome import Problems
from lab_sandbox.references import Ref, each_reference, is_local, parse, replaced
from lab_sandbox.resources import Resources
from lab_sandbox.rights import read_grants
from lab_sandbox.shapes import reference_of
from lab_sandbox.shelf import Kept, Shelf
from lab_sandbox.targets import check_targets
from lab_sandbox.wire import Json, decode_stored

_Grants = set[tuple[str, str]]


class Orders:
    """Creates orders from bundles, and finds an order again by one of its lines."""

    def __init__(self, resources: Resources, shelf: Shelf, config: SandboxConfig, offers: Offers) -> None:
        self._resources = resources
        self._shelf = shelf
        self._config = config
        self._offers = offers

    def create(self, bundle: Json, caller: Counterparty) -> list[Kept]:
        """Every resource of the accepted order, in the bundle's order; a `Refusal` lists all that is wrong, and keeps nothing."""
        problems = Problems(frozenset(self._config.rules.off))
        draft = read_draft(bundle, problems)
        contract = check_order(draft, self._config, caller, problems)
        check_lines(draft, self._config, problems)
        self._offers.check(draft, contract, problems)
        self._check_shapes(draft, problems)
        self._check_references(draft, caller, problems)
        grants = {entry.local: self._grants(entry, contract, problems) for entry in draft.entries}
        problems.refuse_if_any()
        return self._keep(draft, grants, caller)

    def of_line(self, line: Kept) -> list[Kept]:
        """All resources of the order that a ProcedureRequest belongs to."""
        lines = [line]
        order_tasks: list[Kept] = []
        for task in self._all("Task", "based-on", line.ref):
            parents = [parse(reference_of(one)) for one in listed(decode_stored(task.body).get("partOf"))]
            order_tasks += [kept for ref in parents if ref and (kept := self._resources.peek(ref))]
        tasks = [task for parent in order_tasks[:1] for task in self._all("Task", "part-of", parent.ref)]
        if tasks:
            lines = [kept for task in tasks for kept in self._targets(task, "basedOn")]
        specimens = {kept.ref: kept for one in lines for kept in self._targets(one, "specimen")}
        answers = [kept for one in lines for kept in self._all("QuestionnaireResponse", "subject", one.ref)]
        return [*lines, *order_tasks[:1], *tasks, *specimens.values(), *answers]

    def _keep(self, draft: Draft, grants: Mapping[str, _Grants], caller: Counterparty) -> list[Kept]:
        refs = {entry.local: Ref(entry.type, str(uuid4())) for entry in draft.entries}
        by_local = {local: ref.written(self._config.rules.reference_style) for local, ref in refs.items()}
        with self._shelf.transaction():
            return [
                self._resources.create(
                    entry.type, replaced(entry.resource, by_local), caller, grants[entry.local], refs[entry.local].id
                )
                for entry in draft.entries
            ]

    def _check_shapes(self, draft: Draft, problems: Problems) -> None:
        for entry in draft.entries:
            check_arrays(entry.type, entry.resource, entry.element, problems)
            check_targets(entry.type, entry.resource, entry.element, lambda text: self._type_of(text, draft), problems)

    def _type_of(self, text: str, draft: Draft) -> str | None:
        inside, outside = draft.at(text), parse(text, self._config.own_addresses)
        if inside is not None:
            return inside.type
        return outside.type if outside is not None else None

    def _check_references(self, draft: Draft, caller: Counterparty, problems: Problems) -> None:
        for entry in draft.entries:
            for path, text in each_reference(entry.resource):
                element = f"{entry.element}.{path}"
                if is_local(text):
                    if draft.at(text) is None:
                        problems.add(element, "local-reference", f"no entry of the bundle has the fullUrl {text}", "not-found")
                    continue
                ref = parse(text, self._config.own_addresses)
                kept = self._resources.peek(ref) if ref else None
                if kept is None:
                    problems.add(element, "reference-known", f"{text} leads to no resource of this service", "not-found")
                elif not kept.access.may("read", caller.guid):
                    problems.add(element, "reference-right", f"no right to read {text}", "forbidden")

    def _grants(self, entry: Entry, contract: Contract | None, problems: Problems) -> _Grants:
        known = {party.guid: party for party in self._config.counterparties}
        grants = read_grants(entry.resource.get("meta"), self._config.base_url, known, problems, f"{entry.element}.meta")
        if entry.type == "Task" and contract is not None:
            for right in ("read", "updatebody"):
                if (right, contract.laboratory) not in grants:
                    text = f"all Tasks carry read and updatebody for the laboratory ({contract.laboratory}); {right} is missing"
                    problems.add(f"{entry.element}.meta.security", "task-rights", text, "required")
        return grants

    def _targets(self, kept: Kept, name: str) -> list[Kept]:
        refs = [parse(reference_of(one), self._config.own_addresses) for one in listed(decode_stored(kept.body).get(name))]
        return [found for ref in refs if ref and (found := self._resources.peek(ref))]

    def _all(self, kind: str, param: str, ref: Ref) -> list[Kept]:
        return self._shelf.find(kind, [(param, [ref.key()])], lambda _: True, limit=10_000)
