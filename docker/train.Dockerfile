# The training environment on a CUDA machine (x86-64, or aarch64 such as a DGX Spark).
#   docker build -f docker/train.Dockerfile -t forja .
#   docker run --gpus all -v "$PWD/models:/forja/models" -v "$PWD/out:/forja/out" forja make train PROFILE=…
# Never built or run by its authors: they had no container engine.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04
RUN apt-get update \
    && apt-get install -y --no-install-recommends make git python3 python3-venv python3-dev g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /forja
COPY . .
# No GPU is visible while an image is built, so the kind of machine is named.
RUN make env MACHINE=cuda
