# The recipe on NVIDIA's PyTorch image: bash scripts/docker/build.sh. For GPUs that this image does not support (V100), PyTorch's own:
#     bash scripts/docker/build.sh --build-arg FROM_IMAGE_NAME=pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime
# An image with an older PyTorch than OLDEST_PYTORCH in common/precision.py builds, and the commands then refuse it.
ARG FROM_IMAGE_NAME=nvcr.io/nvidia/pytorch:25.04-py3
FROM ${FROM_IMAGE_NAME}

WORKDIR /workspace/tacotron2

# Before the code, so that a change of it installs nothing anew. The image's PyTorch and the NumPy it was built with stay.
COPY requirements.txt .
RUN python -m pip list --format=freeze > /tmp/installed.txt \
 && grep -E '^(torch|numpy)==' /tmp/installed.txt > /tmp/constraints.txt \
 && python -m pip install --no-cache-dir -r requirements.txt -c /tmp/constraints.txt

COPY . .
