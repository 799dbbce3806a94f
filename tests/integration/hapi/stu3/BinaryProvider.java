package stu3;

import ca.uhn.fhir.rest.annotation.ConditionalUrlParam;
import ca.uhn.fhir.rest.annotation.Create;
import ca.uhn.fhir.rest.annotation.ResourceParam;
import ca.uhn.fhir.rest.api.MethodOutcome;
import ca.uhn.fhir.rest.api.server.RequestDetails;
import org.hl7.fhir.dstu3.model.Binary;

/** Named by its own type, since by that alone HAPI knows that a body of any other content type is the document itself. */
public final class BinaryProvider extends Provider<Binary> {
    BinaryProvider(Resources resources) {
        super("Binary", resources);
    }

    @Create
    @Override
    public MethodOutcome create(@ResourceParam Binary binary, @ConditionalUrlParam String condition, RequestDetails request) {
        return super.create(binary, condition, request);
    }
}
