"""Optimizers of bitsandbytes and torchao where there is no GPU: what they allocate on one.

bitsandbytes 0.50's AdamW keeps its states as its own init_state says; what is paged is managed memory, which torch's
allocator has nothing of, and its two tables of values come to the device with the first state of 8 bits. Its kernels write
to what they are given. `optim` has the names of transformers' TrainingArguments, and does what Trainer does with them
(trainer_optimizer.py, Trainer.create_optimizer): embeddings are kept out of bitsandbytes' 8 bits, and torchao's blocks
are of 256.
"""
import torch
from torch.utils._python_dispatch import _disable_current_modes

import recorder

BITSANDBYTES = {"adamw_bnb_8bit": (8, False), "paged_adamw_8bit": (8, True), "paged_adamw_32bit": (32, True)}
TORCHAO = {"adamw_torch_8bit": "AdamW8bit", "adamw_torch_4bit": "AdamW4bit"}


class OnGpu:
    """A parameter whose device is said to be none of the CPU's; what is made like it is where it is."""

    device = torch.device("meta")

    def __init__(self, tensor):
        self.tensor, self.shape = tensor, tensor.shape

    def numel(self):
        return self.tensor.numel()

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = {**(kwargs or {}), "device": args[0].tensor.device}
        return function(*(a.tensor if isinstance(a, cls) else a for a in args), **kwargs)


def managed(*shape, dtype, device):
    """get_paged, of memory that no allocator of torch's has."""
    with _disable_current_modes():
        count = torch.Size(shape).numel()
        out = torch.frombuffer(bytearray(count * dtype.itemsize), dtype=dtype).view(shape)
    recorder.Log.current.outside(out)
    out.is_paged, out.page_deviceid = True, 0
    return out


def patch_bitsandbytes():
    with _disable_current_modes():      # it keeps a tensor for good when it is first used
        from bitsandbytes import functional
        from bitsandbytes.optim import optimizer as optim
    base = optim.Optimizer8bit
    if getattr(base, "without_gpu", False):
        return optim
    base.without_gpu = True
    functional.get_paged = managed
    functional.fill = functional.prefetch_tensor = lambda *args, **kwargs: None
    state_buffer, tables = base.get_state_buffer, base.fill_qmap

    def fill_qmap(self):
        """The tables are on the host, which is another place than the parameters'."""
        with _disable_current_modes():
            tables(self)
            self.name2qmap = {name: table.to("meta") for name, table in self.name2qmap.items()}

    base.fill_qmap = fill_qmap
    base.get_state_buffer = lambda self, p, dtype=torch.float32: state_buffer(self, OnGpu(p), dtype)
    return optim


def bitsandbytes_adamw(model, params, bits, paged, embeddings):
    optim = patch_bitsandbytes()
    from bitsandbytes.optim import AdamW
    optim.GlobalOptimManager._instance = None
    optimizer = AdamW(params, lr=1e-3, optim_bits=bits, is_paged=paged)
    if bits == 8 and embeddings == 32:
        manager = optim.GlobalOptimManager.get_instance()
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
        optimizer.mng = manager
    return optimizer


class NothingCompiled:
    """torch, but what is compiled does nothing: record_compile_optimizers.py has the programs. Of 8 bits they allocate nothing."""

    def __getattr__(self, name):
        return getattr(torch, name)

    @staticmethod
    def compile(function, **kwargs):
        return lambda *args: None


def torchao_adamw(params, name):
    with _disable_current_modes():
        from torchao.optim import adam, subclass_4bit, subclass_8bit
        for tables in (subclass_4bit, subclass_8bit):
            tables.get_qmap_signed(), tables.get_qmap_unsigned()        # lists of numbers, kept
        adam.torch = NothingCompiled()
        optimizer = getattr(adam, TORCHAO[name])(params, lr=1e-3, block_size=256)
    for group in optimizer.param_groups:
        recorder.Log.current.outside(group["lr"])       # the rate, a number on the host
    return optimizer


def make(model, params, name, embeddings=32):
    if name in BITSANDBYTES:
        return bitsandbytes_adamw(model, params, *BITSANDBYTES[name], embeddings)
    return torchao_adamw(params, name)
