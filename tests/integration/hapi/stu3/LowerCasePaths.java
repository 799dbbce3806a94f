package stu3;

import java.io.IOException;
import javax.servlet.Filter;
import javax.servlet.FilterChain;
import javax.servlet.ServletException;
import javax.servlet.ServletRequest;
import javax.servlet.ServletResponse;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletRequestWrapper;

/** The interface document's own deviation: type names in paths may be in lower case ({@code fhir/task}). */
final class LowerCasePaths implements Filter {
    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        chain.doFilter(new Respelled((HttpServletRequest) request), response);
    }

    static String respell(String path) {
        for (String type : Resources.TYPES) {
            String wanted = "/fhir/" + type;
            if (path.regionMatches(true, 0, wanted, 0, wanted.length())
                    && (path.length() == wanted.length() || path.charAt(wanted.length()) == '/')) {
                return wanted + path.substring(wanted.length());
            }
        }
        return path;
    }

    private static final class Respelled extends HttpServletRequestWrapper {
        Respelled(HttpServletRequest request) {
            super(request);
        }

        @Override
        public String getRequestURI() {
            return respell(super.getRequestURI());
        }

        @Override
        public String getPathInfo() {
            String path = super.getPathInfo();
            return path == null ? null : respell("/fhir" + path).substring("/fhir".length());
        }

        @Override
        public StringBuffer getRequestURL() {
            String url = super.getRequestURL().toString();
            int start = url.indexOf('/', url.indexOf("://") + 3);
            return new StringBuffer(url.substring(0, start) + respell(url.substring(start)));
        }
    }

    @Override
    public void init(javax.servlet.FilterConfig settings) {}

    @Override
    public void destroy() {}
}
