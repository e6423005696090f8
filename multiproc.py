"""Start one process a GPU: `python -m multiproc train.py …` is `torchrun --nproc-per-node gpu train.py …`.

Flags before the script go to torchrun (`python -m multiproc --nnodes 2 --node-rank 0 … train.py …`); `--nproc N` sets the number of
processes by hand, which a machine without a GPU needs.
"""

from __future__ import annotations

import sys

from torch.distributed.run import main as torchrun

from common.precision import gpu_count


def torchrun_arguments(argv: list[str], gpus: int) -> list[str]:
    """torchrun's arguments for multiproc's: a free port on one node, and one process a GPU (or one in all) unless told otherwise."""
    script = next((i for i, word in enumerate(argv) if word.endswith(".py")), len(argv))
    flags = [word.replace("--nproc=", "--nproc-per-node=") for word in argv[:script]]
    flags = ["--nproc-per-node" if flag == "--nproc" else flag for flag in flags]
    names = {flag.split("=")[0].replace("_", "-") for flag in flags}
    if "--nproc-per-node" not in names:
        flags += ["--nproc-per-node", str(max(1, gpus))]
    if not names & {"--nnodes", "--rdzv-endpoint", "--master-addr", "--standalone"}:
        flags = ["--standalone", *flags]
    return flags + argv[script:]


if __name__ == "__main__":
    torchrun(torchrun_arguments(sys.argv[1:], gpu_count()))
