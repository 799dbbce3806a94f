# One image for all programs: `lab-agent` by default, `lab-api` with --entrypoint. docs/container.md says how to run it; compose.yaml does.
#
# The tag moves. For a build that can be repeated, pin the image that you have checked, by its digest (`docker buildx imagetools
# inspect python:3.11-slim` prints it): docker build --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:…
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
RUN python -m venv --without-pip /opt/lab-agent
COPY requirements/run.txt requirements/run.txt
RUN python -m pip --python /opt/lab-agent/bin/python install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY lab_agent lab_agent
COPY lab_api lab_api
COPY lab_sandbox lab_sandbox
COPY config config
COPY docs docs
COPY systemd systemd
COPY tools/version.py tools/version.py
# What `python3 -m tools.version` prints in the checkout: `lab-agent --version` tells it.
ARG LAB_BUILD=
RUN python -m pip --python /opt/lab-agent/bin/python install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .
# What only the build needed.
RUN python -m pip --python /opt/lab-agent/bin/python uninstall --yes --quiet editables hatchling packaging pathspec pluggy trove-classifiers

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 61234 --user-group --home-dir /var/lib/lab-agent --create-home --shell /usr/sbin/nologin lab-agent
COPY --from=build /opt/lab-agent /opt/lab-agent

# Programs listen on all addresses of the container: which of them are published decides who reaches them. Settings come from the file,
# from LAB_AGENT_… variables, and from files in $CREDENTIALS_DIRECTORY. The root may be read-only: only /var/lib/lab-agent (a SQLite
# database, the folders of the laboratory system) and /tmp are written.
ENV PATH=/opt/lab-agent/bin:/usr/local/bin:/usr/bin:/bin
ENV PYTHONUNBUFFERED=1
ENV PYTHONDONTWRITEBYTECODE=1
ENV LAB_AGENT_CONFIG=/etc/lab-agent/lab-agent.toml
ENV LAB_AGENT_STATUS__HOST=0.0.0.0
ENV LAB_AGENT_API__HOST=0.0.0.0
ENV HEALTH_URL=http://127.0.0.1:8481/healthz
USER lab-agent
WORKDIR /var/lib/lab-agent
VOLUME /var/lib/lab-agent
EXPOSE 8481 8482

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["lab-agent"]
CMD ["run"]
