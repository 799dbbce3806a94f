package stu3;

import ca.uhn.fhir.rest.annotation.ConditionalUrlParam;
import ca.uhn.fhir.rest.annotation.Create;
import ca.uhn.fhir.rest.annotation.Delete;
import ca.uhn.fhir.rest.annotation.History;
import ca.uhn.fhir.rest.annotation.IdParam;
import ca.uhn.fhir.rest.annotation.RawParam;
import ca.uhn.fhir.rest.annotation.Read;
import ca.uhn.fhir.rest.annotation.ResourceParam;
import ca.uhn.fhir.rest.annotation.Search;
import ca.uhn.fhir.rest.annotation.Update;
import ca.uhn.fhir.rest.api.MethodOutcome;
import ca.uhn.fhir.rest.api.server.IBundleProvider;
import ca.uhn.fhir.rest.api.server.RequestDetails;
import ca.uhn.fhir.rest.server.IResourceProvider;
import ca.uhn.fhir.rest.server.SimpleBundleProvider;
import java.util.List;
import java.util.Map;
import org.hl7.fhir.dstu3.model.IdType;
import org.hl7.fhir.dstu3.model.Resource;
import org.hl7.fhir.instance.model.api.IBaseResource;

/** The interactions of one resource type, over the resources in memory. */
public class Provider<T extends IBaseResource> implements IResourceProvider {
    private final String type;
    private final Resources resources;

    Provider(String type, Resources resources) {
        this.type = type;
        this.resources = resources;
    }

    @Override
    public Class<? extends IBaseResource> getResourceType() {
        return resources.context.getResourceDefinition(type).getImplementingClass();
    }

    @Create
    public MethodOutcome create(@ResourceParam T resource, @ConditionalUrlParam String condition, RequestDetails request) {
        List<Resource> matches = condition == null ? List.of() : resources.search(type, Resources.query(condition));
        if (!matches.isEmpty()) {
            return outcome(Resources.onlyOne(matches), false);
        }
        return outcome(resources.create(type, (Resource) resource, request.getFhirServerBase()), true);
    }

    @Update
    public MethodOutcome update(@IdParam IdType id, @ResourceParam T resource, RequestDetails request) {
        return outcome(resources.update(type, id, (Resource) resource, request.getFhirServerBase()), false);
    }

    @Delete
    public MethodOutcome delete(@IdParam IdType id) {
        resources.delete(type, id);
        return new MethodOutcome(id);
    }

    @Read(version = true)
    public Resource read(@IdParam IdType id) {
        return resources.read(type, id);
    }

    @History
    public IBundleProvider history(@IdParam IdType id) {
        return new SimpleBundleProvider(resources.history(type, id));
    }

    @Search(allowUnknownParams = true)
    public IBundleProvider search(@RawParam Map<String, List<String>> criteria) {
        return new SimpleBundleProvider(resources.search(type, criteria == null ? Map.of() : criteria));
    }

    private static MethodOutcome outcome(Resource resource, boolean created) {
        MethodOutcome outcome = new MethodOutcome(resource.getIdElement(), created);
        outcome.setResource(resource);
        return outcome;
    }
}
