# One image for both programs. The agent:  docker run -v lab-agent:/var/lib/lab-agent -v ./config:/etc/lab-agent:ro lab-agent
# The laboratory's API:  docker run … --entrypoint lab-api -e HEALTH_URL=http://127.0.0.1:8482/healthz -p 8482:8482 lab-agent run
FROM python:3.11-slim

RUN useradd --system --uid 61234 --home-dir /var/lib/lab-agent --create-home --shell /usr/sbin/nologin lab-agent

WORKDIR /opt/lab-agent
COPY requirements/run.txt requirements/run.txt
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY lab_agent lab_agent
COPY lab_api lab_api
COPY lab_sandbox lab_sandbox
COPY config/catalogue config/catalogue
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

# Mount the settings; pass secrets as LAB_AGENT_… variables or as files in $CREDENTIALS_DIRECTORY. The volume holds the database
# and, with the folder adapter, the LIS folders.
ENV LAB_AGENT_CONFIG=/etc/lab-agent/lab-agent.toml
ENV HEALTH_URL=http://127.0.0.1:8481/healthz
ENV PYTHONUNBUFFERED=1
USER lab-agent
WORKDIR /var/lib/lab-agent
VOLUME /var/lib/lab-agent
EXPOSE 8481 8482

HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['HEALTH_URL'], timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["lab-agent"]
CMD ["run"]
