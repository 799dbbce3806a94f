package stu3;

import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.rest.server.exceptions.PreconditionFailedException;
import ca.uhn.fhir.rest.server.exceptions.ResourceGoneException;
import ca.uhn.fhir.rest.server.exceptions.ResourceNotFoundException;
import ca.uhn.fhir.rest.server.exceptions.ResourceVersionConflictException;
import ca.uhn.fhir.rest.server.exceptions.UnprocessableEntityException;
import ca.uhn.fhir.util.ResourceReferenceInfo;
import ca.uhn.fhir.util.UrlUtil;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.hl7.fhir.dstu3.model.IdType;
import org.hl7.fhir.dstu3.model.Resource;
import org.hl7.fhir.instance.model.api.IBaseReference;
import org.hl7.fhir.instance.model.api.IIdType;

/** Every resource with all its versions; a reference must lead to one of them, and is kept as {@code Type/id}. */
final class Resources {
    static final List<String> TYPES = List.of(
            "Patient", "Contract", "Task", "ProcedureRequest", "Specimen", "QuestionnaireResponse", "Binary", "Observation",
            "DiagnosticReport");

    final FhirContext context;
    private final Matcher matcher;
    private final Map<String, List<Resource>> versions = new LinkedHashMap<>(); // "Type/id": oldest first; null is a deletion
    private int lastId;

    Resources(FhirContext context) {
        this.context = context;
        this.matcher = new Matcher(context);
    }

    synchronized Resource create(String type, Resource resource, String base) {
        return keep(type, String.valueOf(++lastId), resource, base);
    }

    synchronized Resource update(String type, IdType id, Resource resource, String base) {
        String current = read(type, id.toVersionless()).getIdElement().getVersionIdPart();
        if (id.hasVersionIdPart() && !id.getVersionIdPart().equals(current)) { // HAPI hands If-Match over as the id's version
            throw new ResourceVersionConflictException("the current version is " + current);
        }
        return keep(type, id.getIdPart(), resource, base);
    }

    synchronized void delete(String type, IdType id) {
        read(type, id.toVersionless());
        versions.get(type + "/" + id.getIdPart()).add(null);
    }

    synchronized Resource read(String type, IdType id) {
        List<Resource> found = versions.get(type + "/" + id.getIdPart());
        if (found == null) {
            throw new ResourceNotFoundException(id);
        }
        int number = id.hasVersionIdPart() ? Integer.parseInt(id.getVersionIdPart()) : found.size();
        if (number < 1 || number > found.size()) {
            throw new ResourceNotFoundException(id);
        }
        if (found.get(number - 1) == null) {
            throw new ResourceGoneException(id);
        }
        return found.get(number - 1);
    }

    synchronized List<Resource> history(String type, IdType id) {
        read(type, id.toVersionless());
        List<Resource> newestFirst = new ArrayList<>(versions.get(type + "/" + id.getIdPart()));
        Collections.reverse(newestFirst);
        return newestFirst;
    }

    synchronized List<Resource> search(String type, Map<String, List<String>> criteria) {
        List<Resource> found = new ArrayList<>();
        for (Map.Entry<String, List<Resource>> each : versions.entrySet()) {
            Resource newest = each.getValue().get(each.getValue().size() - 1);
            if (each.getKey().startsWith(type + "/") && newest != null && matcher.matches(type, newest, criteria)) {
                found.add(newest);
            }
        }
        return found;
    }

    static Map<String, List<String>> query(String condition) {
        Map<String, List<String>> criteria = new LinkedHashMap<>();
        String query = condition.substring(condition.indexOf('?') + 1);
        UrlUtil.parseQueryString(query).forEach((name, values) -> criteria.put(name, Arrays.asList(values)));
        return criteria;
    }

    static Resource onlyOne(List<Resource> matches) {
        if (matches.size() > 1) {
            throw new PreconditionFailedException("If-None-Exist matches " + matches.size() + " resources");
        }
        return matches.get(0);
    }

    private Resource keep(String type, String id, Resource resource, String base) {
        Resource kept = resource.copy();
        for (ResourceReferenceInfo reference : context.newTerser().getAllResourceReferences(kept)) {
            resolve(reference, base);
        }
        List<Resource> earlier = versions.computeIfAbsent(type + "/" + id, key -> new ArrayList<>());
        String version = String.valueOf(earlier.size() + 1);
        kept.setId(new IdType(type, id, version));
        kept.getMeta().setVersionId(version).setLastUpdated(new Date());
        earlier.add(kept);
        return kept;
    }

    private void resolve(ResourceReferenceInfo info, String base) {
        IBaseReference reference = info.getResourceReference();
        IIdType id = reference.getReferenceElement();
        if (id.isEmpty() || id.isLocal() || (id.isAbsolute() && !id.getBaseUrl().equals(base))) {
            return;
        }
        String type = id.getResourceType();
        if (type == null || !TYPES.contains(type)) {
            throw new UnprocessableEntityException("Invalid resource reference found at path[" + info.getName()
                    + "] - Resource type is unknown or not supported on this server - " + type);
        }
        if (!versions.containsKey(type + "/" + id.getIdPart())) {
            throw new UnprocessableEntityException(
                    "Resource " + type + "/" + id.getIdPart() + " not found, specified in path: " + info.getName());
        }
        reference.setReference(type + "/" + id.getIdPart());
    }
}
