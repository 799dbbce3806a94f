package stu3;

import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.support.DefaultProfileValidationSupport;
import ca.uhn.fhir.parser.StrictErrorHandler;
import ca.uhn.fhir.rest.api.EncodingEnum;
import ca.uhn.fhir.rest.server.FifoMemoryPagingProvider;
import ca.uhn.fhir.rest.server.RestfulServer;
import ca.uhn.fhir.rest.server.interceptor.RequestValidatingInterceptor;
import ca.uhn.fhir.validation.IValidationContext;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import javax.servlet.DispatcherType;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.FilterHolder;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;
import org.hl7.fhir.common.hapi.validation.support.CommonCodeSystemsTerminologyService;
import org.hl7.fhir.common.hapi.validation.support.InMemoryTerminologyServerValidationSupport;
import org.hl7.fhir.common.hapi.validation.support.ValidationSupportChain;
import org.hl7.fhir.common.hapi.validation.validator.FhirInstanceValidator;
import org.hl7.fhir.r5.utils.validation.constants.BestPracticeWarningLevel;
import org.hl7.fhir.utilities.validation.ValidationMessage;

/**
 * A FHIR STU3 server in memory, as HAPI FHIR's library makes one: its strict parser, its instance validator, its paging, its way
 * with a Binary. Prints its port, and ends when its standard input does.
 */
public final class Server {
    private static final int PAGE_SIZE = 3; // small, so that its own "next" links are followed

    public static void main(String[] arguments) throws Exception {
        FhirContext context = FhirContext.forDstu3();
        context.setParserErrorHandler(new StrictErrorHandler());
        RestfulServer rest = new RestfulServer(context);
        Resources resources = new Resources(context);
        List<Object> providers = new ArrayList<>();
        for (String type : Resources.TYPES) {
            providers.add(type.equals("Binary") ? new BinaryProvider(resources) : new Provider<>(type, resources));
        }
        rest.registerProviders(providers);
        rest.registerInterceptor(validation(context));
        rest.setDefaultResponseEncoding(EncodingEnum.JSON);
        FifoMemoryPagingProvider pages = new FifoMemoryPagingProvider(1000);
        pages.setDefaultPageSize(PAGE_SIZE);
        pages.setMaximumPageSize(100);
        rest.setPagingProvider(pages);
        System.out.println(listen(rest));
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }

    private static RequestValidatingInterceptor validation(FhirContext context) {
        RequestValidatingInterceptor interceptor = new RequestValidatingInterceptor();
        interceptor.addValidatorModule(new Validator(new ValidationSupportChain(
                new DefaultProfileValidationSupport(context),
                new CommonCodeSystemsTerminologyService(context),
                new InMemoryTerminologyServerValidationSupport(context))));
        return interceptor;
    }

    /** HAPI's validator, but for the document's own deviation that rights have short names where STU3 wants an absolute address. */
    private static final class Validator extends FhirInstanceValidator {
        Validator(ValidationSupportChain support) {
            super(support);
            setBestPracticeWarningLevel(BestPracticeWarningLevel.Ignore);
        }

        @Override
        protected List<ValidationMessage> validate(IValidationContext<?> resource) {
            List<ValidationMessage> found = new ArrayList<>(super.validate(resource));
            found.removeIf(each -> each.getLocation().contains(".meta.security"));
            return found;
        }
    }

    private static int listen(RestfulServer rest) throws Exception {
        org.eclipse.jetty.server.Server jetty = new org.eclipse.jetty.server.Server(new InetSocketAddress("127.0.0.1", 0));
        ServletContextHandler handler = new ServletContextHandler();
        handler.addFilter(new FilterHolder(new LowerCasePaths()), "/fhir/*", EnumSet.of(DispatcherType.REQUEST));
        handler.addServlet(new ServletHolder(rest), "/fhir/*");
        jetty.setHandler(handler);
        jetty.start();
        return ((ServerConnector) jetty.getConnectors()[0]).getLocalPort();
    }
}
