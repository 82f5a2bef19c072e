"""Rank of this process, and number of ranks."""
import os
from typing import Any, Tuple

from penstock._memory import torch_if_loaded

_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
              ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))  # set by srun; a batch script has no SLURM_STEP_NUM_TASKS


def group() -> Any:
    """Returns the module torch.distributed if its process group is initialised, else None."""
    torch = torch_if_loaded()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def ranks() -> Tuple[int, int]:
    """Returns (rank, world size) from the process group, else from the environment set by penstock, torchrun, MPI or srun, else (0, 1)."""
    distributed = group()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    for rank, size in _VARIABLES:
        if rank in os.environ and size in os.environ:
            try:
                here, world = int(os.environ[rank]), int(os.environ[size])
            except ValueError:
                here, world = -1, 0
            if not 0 <= here < world:
                raise ValueError(f"{rank}={os.environ[rank]} and {size}={os.environ[size]} are not a valid rank and number of processes")
            return here, world
    return 0, 1
