"""`$CreateDiagnosticRequest`: checks the bundle, replaces its local references, and stores all of it or nothing."""

from collections.abc import Mapping
from uuid import uuid4

from lab_sandbox.access_rights import parse_grants
from lab_sandbox.config import Contract, Counterparty, SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json, decode_stored
from lab_sandbox.nomenclature_cache import NomenclatureCache
from lab_sandbox.order_bundle import BundleEntry, OrderBundle, parse_order_bundle
from lab_sandbox.order_rules import check_order
from lab_sandbox.references import Ref, is_local_reference, iter_references, parse_reference, replace_local_references
from lab_sandbox.resource_store import ResourceStore, StoredResource
from lab_sandbox.resources import ResourceService
from lab_sandbox.rule_helpers import check_arrays, check_reference_targets, reference_text
from lab_sandbox.search_index import as_list
from lab_sandbox.stu3_rules import check_stu3

_GrantSet = set[tuple[str, str]]


class OrderService:
    """Creates orders from bundles, and finds an order by one of its lines."""

    def __init__(
        self, resources: ResourceService, store: ResourceStore, config: SandboxConfig, nomenclature_cache: NomenclatureCache
    ) -> None:
        self._resources = resources
        self._store = store
        self._config = config
        self._nomenclature_cache = nomenclature_cache

    def create(self, bundle: Json, caller: Counterparty) -> list[StoredResource]:
        """The stored resources of the order, as ordered in the bundle; `HttpError` lists all problems, and nothing is stored."""
        problems = Problems(frozenset(self._config.rules.off))
        order = parse_order_bundle(bundle, problems)
        contract = check_order(order, self._config, caller, problems)
        self._nomenclature_cache.check_specimen_types(order, contract, problems)
        self._check_structure(order, problems)
        self._check_references(order, caller, problems)
        grants = {entry.full_url: self._parse_grants(entry, contract, problems) for entry in order.entries}
        problems.raise_if_any()
        return self._store_order(order, grants, caller)

    def find_by_line(self, line: StoredResource) -> list[StoredResource]:
        """All resources of the order that a ProcedureRequest belongs to."""
        lines = [line]
        order_tasks: list[StoredResource] = []
        for task in self._find_all("Task", "based-on", line.ref):
            parents = [parse_reference(reference_text(one)) for one in as_list(decode_stored(task.body).get("partOf"))]
            order_tasks += [found for ref in parents if ref and (found := self._resources.find(ref))]
        tasks = [task for parent in order_tasks[:1] for task in self._find_all("Task", "part-of", parent.ref)]
        if tasks:
            lines = [found for task in tasks for found in self._referenced_resources(task, "basedOn")]
        specimens = {found.ref: found for one in lines for found in self._referenced_resources(one, "specimen")}
        answers = [found for one in lines for found in self._find_all("QuestionnaireResponse", "subject", one.ref)]
        return [*lines, *order_tasks[:1], *tasks, *specimens.values(), *answers]

    def _store_order(self, bundle: OrderBundle, grants: Mapping[str, _GrantSet], caller: Counterparty) -> list[StoredResource]:
        refs = {entry.full_url: Ref(entry.type, str(uuid4())) for entry in bundle.entries}
        by_local = {local: ref.format(self._config.reference_style) for local, ref in refs.items()}
        with self._store.transaction():
            return [
                self._resources.create(
                    entry.type,
                    replace_local_references(entry.resource, by_local),
                    caller,
                    grants[entry.full_url],
                    refs[entry.full_url].id,
                )
                for entry in bundle.entries
            ]

    def _check_structure(self, bundle: OrderBundle, problems: Problems) -> None:
        for entry in bundle.entries:
            check_arrays(entry.type, entry.resource, entry.element, problems)
            if self._config.strict:
                check_stu3(entry.type, entry.resource, entry.element, self._config.own_addresses, problems)
            check_reference_targets(
                entry.type, entry.resource, entry.element, lambda text: self._target_type(text, bundle), problems
            )

    def _target_type(self, text: str, bundle: OrderBundle) -> str | None:
        target = bundle.find(text) or parse_reference(text, self._config.own_addresses)
        return target.type if target is not None else None

    def _check_references(self, bundle: OrderBundle, caller: Counterparty, problems: Problems) -> None:
        for entry in bundle.entries:
            found = [(f"{entry.element}.{path}", text) for path, text in iter_references(entry.resource)]
            for element, text in found:
                if is_local_reference(text) and bundle.find(text) is None:
                    problems.add(element, "local-reference", f"the bundle has no entry with the fullUrl {text}", "not-found")
            self._resources.check_references([one for one in found if not is_local_reference(one[1])], caller, problems)

    def _parse_grants(self, entry: BundleEntry, contract: Contract | None, problems: Problems) -> _GrantSet:
        grants = parse_grants(entry.resource.get("meta"), self._config, problems, f"{entry.element}.meta")
        if entry.type == "Task" and contract is not None:
            for right in ("read", "updatebody"):
                if (right, contract.laboratory) not in grants:
                    text = (
                        f"every Task must grant read and updatebody to the laboratory ({contract.laboratory}); {right} is missing"
                    )
                    problems.add(f"{entry.element}.meta.security", "task-rights", text, "required")
        return grants

    def _referenced_resources(self, stored: StoredResource, name: str) -> list[StoredResource]:
        refs = [
            parse_reference(reference_text(one), self._config.own_addresses)
            for one in as_list(decode_stored(stored.body).get(name))
        ]
        return [found for ref in refs if ref and (found := self._resources.find(ref))]

    def _find_all(self, kind: str, param: str, ref: Ref) -> list[StoredResource]:
        return self._store.find(kind, [(param, [ref.key()])], lambda _: True, limit=10_000)
