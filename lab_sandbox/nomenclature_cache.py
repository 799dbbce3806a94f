"""Order rule 2: one specimen type for each test. The service knows the choices from the nomenclature that it forwards."""

from lab_sandbox.config import Contract, SandboxConfig
from lab_sandbox.errors import HttpError, Problems
from lab_sandbox.exact_json import Json, decode
from lab_sandbox.order_bundle import OrderBundle
from lab_sandbox.order_rules import specimens_of, study_of
from lab_sandbox.rule_helpers import find_code
from lab_sandbox.search_index import as_list

_MAX_BYTES = 20_000_000


class NomenclatureCache:
    """The specimen choices of each contract's items, from the latest nomenclature."""

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self._specimen_choices: dict[str, dict[str, frozenset[str]]] = {}

    def store(self, contract: str, nomenclature: bytes) -> None:
        """Stores the specimen types that each item without multiple_specimen offers."""
        if len(nomenclature) > _MAX_BYTES:
            return
        try:
            items = decode(nomenclature)
        except HttpError:
            return
        single = [one for one in as_list(items) if isinstance(one, dict) and not one.get("multiple_specimen")]
        self._specimen_choices[contract] = {str(one.get("id")): _alternative_specimens(one) for one in single}

    def check_specimen_types(self, bundle: OrderBundle, contract: Contract | None, problems: Problems) -> None:
        """A test with a choice of specimen types is ordered with one of them."""
        choices = self._specimen_choices.get(contract.code, {}) if contract else {}
        for line in bundle.of_type("ProcedureRequest"):
            study = study_of(line, self._config) or ""
            specimens, system = specimens_of(line, bundle), self._config.system("specimen-type")
            types = {find_code(one.resource.get("type"), system) for one in specimens}
            chosen = sorted(str(code) for code in types if code in choices.get(study, frozenset()))
            if len(chosen) > 1:
                text = f"study {study} needs exactly one of its specimen types, not {', '.join(chosen)}; order it as two items"
                problems.add(f"{line.element}.specimen", "one-specimen-type", text)


def _alternative_specimens(item: Json) -> frozenset[str]:
    """Specimen types that are a choice, without the required ones."""
    chosen, required = (
        {str(one.get("specimen_code")) for one in as_list(item.get(name)) if isinstance(one, dict)}
        for name in ("specimen", "required_specimen")
    )
    return frozenset(chosen - required)
