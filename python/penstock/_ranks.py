"""Which of how many processes of one training this is."""
import os
from typing import Any, Tuple

from penstock._memory import torch_if_loaded

_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def group() -> Any:
    """The module torch.distributed where its process group is up, else None."""
    torch = torch_if_loaded()
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def ranks() -> Tuple[int, int]:
    """(rank, world size): of the process group, else of the environment that penstock, torchrun or MPI gives; else (0, 1)."""
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
                raise ValueError(f"{rank}={os.environ[rank]} and {size}={os.environ[size]} do not say which of how many processes this is")
            return here, world
    return 0, 1
