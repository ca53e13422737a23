# Three images from one source: operator, gateway (no torch) and worker. All run as a non-root user.
#   docker build --target operator -t distserve/operator:0.1.0 .
FROM python:3.11-slim AS source
RUN useradd --uid 65532 --create-home distserve
WORKDIR /opt/distserve
COPY pyproject.toml constraints.txt LICENSE README.md ./
COPY scripts scripts
COPY proto proto
COPY operator operator
COPY worker worker
COPY cli cli
COPY devcluster/distserve_devcluster devcluster/distserve_devcluster
ENV PATH=/opt/distserve/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

FROM source AS operator
RUN scripts/install python3 operator
# The simulator is compiled here, for any processor of the architecture; containers copy it into a folder of their own. The
# compiled code is bound to the time of its source, of which an image keeps whole seconds only.
ENV NUMBA_CPU_NAME=generic DISTSERVE_COMPILED=/opt/distserve/compiled/distserve/simulation
RUN find operator -name '*.py' -exec touch -d @1700000000 {} + \
    && XDG_CACHE_HOME=/opt/distserve/compiled python -m distserve_operator.reconciling.warming
USER 65532
ENTRYPOINT ["python", "-m", "distserve_operator"]

FROM source AS gateway
RUN scripts/install python3 gateway
USER 65532
ENTRYPOINT ["python", "-m", "distserve_worker.gateway"]

FROM source AS worker
RUN scripts/install python3 worker,gpu
USER 65532
ENTRYPOINT ["python", "-m", "distserve_worker.server"]
