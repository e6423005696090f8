"""What reports of measurements say of the machine."""

from __future__ import annotations

import datetime

import torch

from common.kernels.private_ops import processor


def describe(device: torch.device) -> dict[str, str | int]:
    """Device, CPU, threads, version of PyTorch and date."""
    on_cpu = device.type == "cpu"
    return {
        "device": "cpu" if on_cpu else torch.get_device_module(device).get_device_name(device),
        "cpu": processor().name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def stamp() -> str:
    """The same in words, without the device."""
    m = describe(torch.device("cpu"))
    return f"{m['cpu']}, {m['threads']} threads, PyTorch {m['torch']}, {m['date']}"
