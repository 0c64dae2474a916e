# Forja's packages on NVIDIA's PyTorch, for x86-64 and arm64 (a DGX Spark); the project itself is mounted,
# so no code, setting, token or weight is in a layer. Built and run by `make docker-train`.
# Never built or run by its authors: they had no container engine.
FROM nvcr.io/nvidia/pytorch:26.08-py3
SHELL ["/bin/bash", "-o", "pipefail", "-c"]

# The base's Ubuntu release fixes their versions.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends make python3-venv \
    && rm -rf /var/lib/apt/lists/*

# NVIDIA's torch is built with the image's CUDA, and nothing may put another in its place. This takes the
# place of the image's own list, which pins what Forja needs newer (numpy, for one), and of our versions below.
RUN python3 -m pip list --format=freeze | grep -E '^(torch|torchvision|triton)==' > /etc/pip/forja.txt
ENV PIP_CONSTRAINT=/etc/pip/forja.txt

# Only what the environment's rule reads, so that few edits install the packages anew, and then from a cache.
WORKDIR /opt/forja
COPY Makefile pyproject.toml constraints.txt ./
COPY core core
COPY examples/mcp-servers.txt examples/
RUN --mount=type=cache,target=/root/.cache/pip \
    sed -i -E '/^(torchvision|triton)==/d' constraints.txt \
    && make MACHINE=image VENV=/opt/forja/venv /opt/forja/venv/.complete

# Anyone's uid may run it: a name for torch, a place for caches.
ENV USER=forja XDG_CACHE_HOME=/tmp/cache TRITON_HOME=/tmp/triton UNSLOTH_COMPILE_LOCATION=/tmp/unsloth
USER 1000:1000
WORKDIR /forja
# NVIDIA's own entry point sets up CUDA's forward compatibility. The environment is never older than the image.
ENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh", "make", "--old-file=/opt/forja/venv/.complete", "VENV=/opt/forja/venv"]
CMD ["help"]
