# One image for the operator, the sidecar and the agent's init container.
ARG BASE_IMAGE=python:3.12-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY requirements-image.lock .
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY sidecar sidecar
RUN /opt/venv/bin/pip install --no-cache-dir --no-deps . \
 && /opt/venv/bin/pip uninstall -q -y pip setuptools

FROM ${BASE_IMAGE}
COPY --from=build /opt/venv /opt/venv
# USER and HOME: uid 10001 has no entry in /etc/passwd, and kopf asks for its user's name.
ENV PATH=/opt/venv/bin:$PATH USER=stepwarden HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
CMD ["python", "-m", "stepwarden_operator"]
