# The recipe on NVIDIA's PyTorch image: bash scripts/docker/build.sh. For GPUs that this image does not support (V100), use PyTorch's:
#     bash scripts/docker/build.sh --build-arg FROM_IMAGE_NAME=pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime
# Images with a PyTorch older than OLDEST_PYTORCH in common/precision.py can be built, but the commands refuse to run.
ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:25.04-py3
FROM ${FROM_IMAGE_NAME}

WORKDIR /workspace/tacotron2

# Before the code, so that changes to it do not reinstall anything. Keeps the image's PyTorch and the NumPy it was built with.
COPY requirements.txt .
RUN python -m pip list --format=freeze > /tmp/installed.txt \
 && grep -E '^(torch|numpy)==' /tmp/installed.txt > /tmp/constraints.txt \
 && python -m pip install --no-cache-dir -r requirements.txt -c /tmp/constraints.txt

COPY . .
