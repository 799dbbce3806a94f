"""Order rule 2, as far as the service can see: it forwards the nomenclature, so it knows what has a choice of specimen."""

from collections import Counter

from lab_sandbox.config import Contract, SandboxConfig
from lab_sandbox.draft import Draft
from lab_sandbox.index import listed
from lab_sandbox.outcome import Problems, Refusal
from lab_sandbox.shapes import code_in, reference_of
from lab_sandbox.wire import Json, decode

_MOST_BYTES = 20_000_000


class Offers:
    """What the laboratory's nomenclature last said about each contract's items."""

    def __init__(self, config: SandboxConfig) -> None:
        self._config = config
        self._choices: dict[str, dict[str, frozenset[str]]] = {}

    def learn(self, contract: str, nomenclature: bytes) -> None:
        """Remembers, per item without multiple_specimen, the specimen types to choose one from."""
        if len(nomenclature) > _MOST_BYTES:
            return
        try:
            items = decode(nomenclature)
        except Refusal:
            return
        single = [one for one in listed(items) if isinstance(one, dict) and not one.get("multiple_specimen")]
        self._choices[contract] = {str(one.get("id")): _choice(one) for one in single}

    def check(self, draft: Draft, contract: Contract | None, problems: Problems) -> None:
        """Each test with a choice of specimen is one basket item with one chosen specimen type."""
        choices = self._choices.get(contract.code, {}) if contract else {}
        for line in draft.of("ProcedureRequest"):
            study = code_in(line.resource.get("code"), self._config.system("nomenclature")) or ""
            specimens = [draft.at(reference_of(one), "Specimen") for one in listed(line.resource.get("specimen"))]
            types = Counter(code_in(one.resource.get("type"), self._config.system("specimen-type")) for one in specimens if one)
            chosen = sorted(str(code) for code in types if code in choices.get(study, frozenset()))
            if len(chosen) > 1:
                text = f"study {study} takes exactly one of its specimen types, {', '.join(chosen)} came; order two items"
                problems.add(f"{line.element}.specimen", "one-specimen-type", text)


def _choice(item: Json) -> frozenset[str]:
    """Specimen types that are a choice; what is mandatory anyway is not."""
    chosen, required = (
        {str(one.get("specimen_code")) for one in listed(item.get(name)) if isinstance(one, dict)}
        for name in ("specimen", "required_specimen")
    )
    return frozenset(chosen - required)
