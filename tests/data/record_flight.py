"""Record `flight-recorder`: dumps of PyTorch's flight recorder, of 2 ranks on the CPU over gloo.

    pip install torch==2.13.0 numpy
    python tests/data/record_flight.py FOLDER

Gives FOLDER/complete and FOLDER/skipped, each with rank0 and rank1 as pickle and as JSON. Three times: an
all_reduce of all ranks, then an all_gather in a second group; then a barrier. In `skipped`, rank 1 leaves
before the third all_reduce, where rank 0 runs into its timeout. The dumps are kept as they came: run this
from a folder whose name may be public, since pickles hold the paths of the call stacks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

RANKS, ROUNDS, TIMEOUT_S = 2, 3, 5


def rank_main(rank: int, folder: str, skips: bool, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCH_FR_BUFFER_SIZE": "2000"}
    timeout = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS, timeout=timeout)
    second = dist.new_group(list(range(RANKS)))
    try:
        train(rank, skips, second)
    except RuntimeError as error:
        print(f"rank {rank}: {error}")
    recorder = torch._C._distributed_c10d
    target = Path(folder) / ("skipped" if skips else "complete")
    target.mkdir(parents=True, exist_ok=True)
    (target / f"rank{rank}.pickle").write_bytes(recorder._dump_fr_trace())
    text = recorder._dump_fr_trace_json()
    (target / f"rank{rank}.json").write_bytes(text if isinstance(text, bytes) else text.encode())


def train(rank: int, skips: bool, second: dist.ProcessGroup) -> None:
    for number in range(ROUNDS):
        if skips and rank == 1 and number == ROUNDS - 1:
            time.sleep(1)
            return
        dist.all_reduce(torch.ones(1000))
        dist.all_gather([torch.empty(4) for _ in range(RANKS)], torch.ones(4), group=second)
    dist.barrier()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        rank_main(int(sys.argv[2]), sys.argv[1], sys.argv[3] == "skipped", int(sys.argv[4]))
    else:
        # Each rank is a separate process, so that the stacks hold this script and torch only.
        for name, port in (("complete", "29533"), ("skipped", "29534")):
            command = [sys.executable, __file__, sys.argv[1]]
            running = [subprocess.Popen([*command, str(rank), name, port]) for rank in range(RANKS)]
            codes = [process.wait() for process in running]
            assert not any(codes)
