"""Makes resources small: order resources look alike, so a shared dictionary packs each to a third or a fourth."""

import zlib
from typing import Final

_META_SAMPLE = (
    '"meta":{"versionId":"1","lastUpdated":"2024-01-01T00:00:00.000000Z","security":[{"system":"http://127.0.0.1:8480/security/owner",'
    '"code":"3f0c0d0e-5a5e-4b53-9c8e-1c7a40d6c001"},{"system":"http://127.0.0.1:8480/security/read",'
    '"code":"8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"},{"system":"http://127.0.0.1:8480/security/updatebody",'
    '"code":"8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"}]}'
)
_DICTIONARY: Final = (
    '{"resourceType":"QuestionnaireResponse","status":"completed","item":[{"linkId":"","text":"","answer":[{"valueCoding":{"code":"",'
    '"system":""}},{"valueInteger":1}]}]{"resourceType":"Patient","name":[{"family":"","given":["","-"]}],"telecom":[{"system":"phone",'
    '"value":"+","use":"mobile"}],"gender":"female","birthDate":"1980-01-01"}{"resourceType":"Observation","status":"final",'
    '"code":{"coding":[{"system":"http://loinc.org","code":"718-7"}]},"valueQuantity":{"value":1.20,"unit":"g/L",'
    '"system":"http://unitsofmeasure.org","code":"g/L"},"referenceRange":[{"low":{"value":1},"high":{"value":2}}]'
    '{"resourceType":"DiagnosticReport","identifier":[{"system":"","value":""}],"status":"final","effectiveDateTime":"2024-01-01T08:00:00+00:00",'
    '"issued":"2024-01-01T08:00:00+00:00","result":[{"reference":"observation/"}],"presentedForm":[{"contentType":"application/pdf","url":"fhir/Binary/"}]'
    '{"resourceType":"Specimen","type":{"coding":[{"system":"http://127.0.0.1:8480/terminology/specimen-type","code":"1"}]},'
    '"collection":{"collectedDateTime":"2024-01-01T08:00:00+00:00","method":{"coding":[{"system":"http://127.0.0.1:8480/terminology/'
    'treatment_protocol","code":""}]}},"container":[{"identifier":[{"system":"http://codes.lab.example/labels","value":"1000000001"}],'
    '"type":{"coding":[{"system":"http://127.0.0.1:8480/terminology/specimen_type","code":""}]},"specimenQuantity":{"value":3}}],'
    '"extension":[{"url":"http://127.0.0.1:8480/extra/supportingInfo","valueString":""}]{"resourceType":"ProcedureRequest",'
    '"identifier":[{"system":"","value":""}],"requisition":{"system":"","value":""},"supportingInfo":[{"identifier":{"system":'
    '"http://codes.lab.example/contract","value":"C-100"}}],"status":"active","code":{"coding":[{"system":"http://127.0.0.1:8480/'
    'terminology/nomenclature","code":""}],"text":""},"subject":{"reference":"patient/"},"occurrenceDateTime":"2024-01-01T08:00:00+00:00",'
    '"specimen":[{"reference":"specimen/"}],"note":[{"text":""}]{"resourceType":"Task","status":"requested","intent":"order",'
    '"code":{"coding":[{"system":"http://127.0.0.1:8480/terminology/task_type","code":"OrderProcessingTask"}]},"basedOn":[{"reference":'
    '"procedurerequest/"}],"partOf":[{"reference":"task/"}],"status":"completed","status":"cancelled","output":[{"valueString":""}],"id":"'
    + _META_SAMPLE
).encode()


def compress_body(body: bytes) -> bytes:
    """Serialised resource -> what is kept."""
    packer = zlib.compressobj(level=2, wbits=-15, zdict=_DICTIONARY)
    return packer.compress(body) + packer.flush()


def decompress_body(packed: bytes) -> bytes:
    """What is kept -> the serialised resource, byte for byte."""
    unpacker = zlib.decompressobj(wbits=-15, zdict=_DICTIONARY)
    return unpacker.decompress(packed) + unpacker.flush()
