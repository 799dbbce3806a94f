package stu3;

import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.RuntimeSearchParam;
import ca.uhn.fhir.model.api.IQueryParameterOr;
import ca.uhn.fhir.rest.param.TokenParam;
import ca.uhn.fhir.rest.api.QualifiedParamList;
import ca.uhn.fhir.rest.server.exceptions.InvalidRequestException;
import java.util.List;
import java.util.Map;
import org.hl7.fhir.dstu3.model.CodeableConcept;
import org.hl7.fhir.dstu3.model.Coding;
import org.hl7.fhir.dstu3.model.IdType;
import org.hl7.fhir.dstu3.model.Identifier;
import org.hl7.fhir.dstu3.model.Reference;
import org.hl7.fhir.dstu3.model.Resource;
import org.hl7.fhir.instance.model.api.IBase;
import org.hl7.fhir.instance.model.api.IPrimitiveType;

/** Searches by the token and reference parameters of STU3; the paths are those of HAPI's definitions. */
final class Matcher {
    private final FhirContext context;

    Matcher(FhirContext context) {
        this.context = context;
    }

    boolean matches(String type, Resource resource, Map<String, List<String>> criteria) {
        for (Map.Entry<String, List<String>> criterion : criteria.entrySet()) {
            if (criterion.getKey().startsWith("_")) {
                continue; // _count, _format
            }
            RuntimeSearchParam parameter = context.getResourceDefinition(type).getSearchParam(criterion.getKey());
            if (parameter == null) {
                throw new InvalidRequestException("Unknown search parameter \"" + criterion.getKey() + "\" for " + type);
            }
            for (String value : criterion.getValue()) {
                if (!matchesAny(resource, parameter, value)) {
                    return false;
                }
            }
        }
        return true;
    }

    private boolean matchesAny(Resource resource, RuntimeSearchParam parameter, String value) {
        for (String alternative : QualifiedParamList.splitQueryStringByCommasIgnoreEscape(null, value)) {
            TokenParam token = new TokenParam();
            token.setValueAsQueryToken(context, parameter.getName(), null, alternative);
            for (String path : parameter.getPath().split("\\|")) {
                for (IBase found : context.newTerser().getValues(resource, path.trim())) {
                    if (found instanceof Reference ? leadsTo((Reference) found, alternative) : carries(found, token)) {
                        return true;
                    }
                }
            }
        }
        return false;
    }

    private static boolean leadsTo(Reference reference, String wanted) {
        IdType found = new IdType(reference.getReference());
        IdType asked = new IdType(wanted);
        return asked.getIdPart().equals(found.getIdPart())
                && (!asked.hasResourceType() || asked.getResourceType().equalsIgnoreCase(found.getResourceType()));
    }

    private static boolean carries(IBase found, TokenParam token) {
        if (found instanceof CodeableConcept) {
            return ((CodeableConcept) found).getCoding().stream().anyMatch(each -> carries(each, token));
        }
        if (found instanceof Coding) {
            return same(token, ((Coding) found).getSystem(), ((Coding) found).getCode());
        }
        if (found instanceof Identifier) {
            return same(token, ((Identifier) found).getSystem(), ((Identifier) found).getValue());
        }
        return found instanceof IPrimitiveType && same(token, null, ((IPrimitiveType<?>) found).getValueAsString());
    }

    private static boolean same(TokenParam token, String system, String code) {
        return token.getValue().equals(code) && (token.getSystem() == null || token.getSystem().equals(system));
    }
}
