"""Autocast with CUDA's lists of operators, on CPU tensors.

Autocast of CPU tensors knows other operators than CUDA's does (it leaves pow, softmax and layer_norm
alone, and casts for cat): tools/record.py puts CUDA's in their place.  None of those that are without the
cache of weights is called on a parameter by the models here.
"""
import contextlib

import torch

import models
import recorder

LIBRARY = []
_clear = torch.clear_autocast_cache
_is_enabled = torch.is_autocast_enabled
torch.is_autocast_enabled = lambda device="cpu": _is_enabled(device)     # who names no device (Nemotron's norm) asks for CUDA's
torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("cpu")   # mamba-ssm's product behind the scan


def clear_autocast_cache():
    """The cache is a hash table of pointers."""
    log = recorder.Log.current
    with log.ordered_deaths() if log else contextlib.nullcontext():
        _clear()


torch.clear_autocast_cache = clear_autocast_cache


@contextlib.contextmanager
def cuda_autocast(dtype):
    if not LIBRARY:
        LIBRARY.append(models.tool().as_cuda_autocasts())
    with torch.autocast("cpu", dtype):
        yield
