"""The OpenAPI document of the four endpoints: the interface's tables as schemas, with examples.

The endpoints read and write JSON themselves, so that decimals keep their digits; these models describe and do not convert.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Code = str | int


class SpecimenOption(BaseModel):
    """A biomaterial type to choose from."""

    description: str
    specimen_code: int
    specimen_name: str
    bodysite_code: str | None
    bodysite_name: str
    container_type: str | None
    container_name: str


class NomenclatureItem(BaseModel):
    """An orderable test."""

    id: str
    caption: str
    allow_multiple_items: bool
    lab_id: str
    lab_caption: str
    group: str
    description: str
    patient_preparation: list[str]
    multiple_specimen: bool
    specimen: list[SpecimenOption]
    required_specimen: list[SpecimenOption]
    price: float


class EffectivePeriod(BaseModel):
    """When a status applies."""

    start: str
    end: str


class DelayDuration(BaseModel):
    """How much longer a test takes."""

    value: str
    unit: Literal["h"]


class TurnaroundItem(BaseModel):
    """How long a test takes at the moment."""

    id: str
    status: Literal["available", "delayed", "stopped"]
    time: float
    caption: str
    effectivePeriod: EffectivePeriod | None  # noqa: N815 - the interface's name
    delayDuration: DelayDuration | None  # noqa: N815 - the interface's name


class Option(BaseModel):
    """One answer of a choice."""

    system: str
    code: str


class QuestionnaireItem(BaseModel):
    """A question, or a group of them."""

    linkId: str  # noqa: N815 - the interface's name
    text: str
    type: Literal["group", "string", "choice"]
    required: bool
    repeats: bool
    item: list[QuestionnaireItem] = []
    option: list[Option] = []


class Questionnaire(BaseModel):
    """The questions of a basket; `item` is left out when nothing is asked."""

    resourceType: Literal["Questionnaire"]  # noqa: N815 - the interface's name
    status: Literal["active"]
    item: QuestionnaireItem = Field(default=None)  # type: ignore[assignment]


class Collection(BaseModel):
    """How much is taken, and how."""

    quantity: float
    method: str


class Instruction(BaseModel):
    """A storage or transport instruction."""

    description: str


class ContainerOut(BaseModel):
    """A container."""

    description: str
    type: str


class Tube(BaseModel):
    """One tube."""

    label: str | None
    code: int
    collection: Collection
    processing: list[Instruction]
    container: list[ContainerOut]
    guids: list[str]
    supportingInfo: str  # noqa: N815 - the interface's name


class Preanalytics(BaseModel):
    """The tubes of a basket."""

    specimens: list[Tube]


class QuestionnaireRequestItem(BaseModel):
    """A chosen test."""

    id: Code
    specimen_code: Code | list[Code] | None = None
    bodysite_code: Code | None = None
    container_type: Code | None = None


class QuestionnaireRequest(BaseModel):
    """A whole basket."""

    contract: Code
    analyticsrequests: list[QuestionnaireRequestItem] = Field(min_length=1)


class PreanalyticsRequestItem(QuestionnaireRequestItem):
    """A chosen test."""

    guid: str | None = None


class PreanalyticsRequest(BaseModel):
    """A whole basket."""

    contract: Code
    analyticsrequests: list[PreanalyticsRequestItem] = Field(min_length=1)
    includetransportcontainer: bool | None = False


class Issue(BaseModel):
    """One problem."""

    severity: Literal["fatal", "error", "warning", "information"]
    code: str
    diagnostics: str


class OperationOutcome(BaseModel):
    """Why a request was rejected."""

    resourceType: Literal["OperationOutcome"]  # noqa: N815 - the interface's name
    issue: list[Issue]


_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": OperationOutcome, "description": "Malformed request"},
    401: {"model": OperationOutcome, "description": "No valid credentials"},
    404: {"model": OperationOutcome, "description": "Unknown contract"},
    429: {"model": OperationOutcome, "description": "Too many requests; Retry-After says when to try again"},
    503: {"model": OperationOutcome, "description": "Temporarily unavailable; Retry-After says when to try again"},
}
_BASKET_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    **_ERROR_RESPONSES,
    408: {"model": OperationOutcome, "description": "The body did not arrive in time"},
    413: {"model": OperationOutcome, "description": "The body is too large"},
    415: {"model": OperationOutcome, "description": "The body is not sent as application/json, or is compressed"},
    422: {"model": OperationOutcome, "description": "The basket contradicts the catalogue; each issue names its position"},
}
_CONTRACT_PARAMETER = {
    "name": "contract",
    "in": "query",
    "required": True,
    "schema": {"type": "string"},
    "description": "Contract code",
}
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}]
_EXAMPLE_BASKET = {
    "contract": "C-100",
    "analyticsrequests": [
        {"id": "002.002", "guid": "8c5f3b0e-0a53-4a55-9a5c-2f9f0f1d0001"},
        {"id": "002.001", "specimen_code": "13", "guid": "8c5f3b0e-0a53-4a55-9a5c-2f9f0f1d0002"},
    ],
}


def _list_operation(model: Any) -> dict[str, Any]:
    extra = {"parameters": [_CONTRACT_PARAMETER], "security": _SECURITY}
    unchanged: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified"}}
    return {"responses": {200: {"model": model}, **unchanged, **_ERROR_RESPONSES}, "openapi_extra": extra}


def _basket_operation(request: type[BaseModel], response: type[BaseModel]) -> dict[str, Any]:
    schema = request.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inline_refs(schema, inner), "example": _EXAMPLE_BASKET}}
    extra = {"requestBody": {"required": True, "content": content}, "security": _SECURITY}
    return {"responses": {200: {"model": response}, **_BASKET_ERROR_RESPONSES}, "openapi_extra": extra}


def _inline_refs(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references replaced by what they name: a request body has no place for definitions of its own."""
    if isinstance(schema, list):
        return [_inline_refs(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline_refs(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    return {key: _inline_refs(each, definitions) for key, each in schema.items()}


NOMENCLATURE = _list_operation(list[NomenclatureItem])
ETA = _list_operation(list[TurnaroundItem])
QUESTIONNAIRE = _basket_operation(QuestionnaireRequest, Questionnaire)
PREANALYTICS = _basket_operation(PreanalyticsRequest, Preanalytics)
_SECURITY_SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}


def add_security(document: dict[str, Any], token_path: str | None) -> dict[str, Any]:
    """Add how clients authenticate; `token_path` is where they fetch short-lived tokens, if they may."""
    schemes: dict[str, Any] = dict(_SECURITY_SCHEMES)
    if token_path:
        schemes["oauth"] = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": token_path, "scopes": {}}}}
        for path in document["paths"].values():
            for operation in path.values():
                operation["security"] = [*operation["security"], {"oauth": []}]
    document.setdefault("components", {})["securitySchemes"] = schemes
    return document
