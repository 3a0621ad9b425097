"""Liger's kernels without a GPU: what its operators allocate.

All of them allocate in Python, around Triton kernels that write what they are handed (linear_attention.py launches none), so
Liger's own functions run on tensors without numbers as they do on a GPU. Where they ask for the device by name, it is the one
that tensors are on here; its capability is an A100's, and so is the number of its multiprocessors.
"""
import importlib
import inspect
import sys

import torch

# functions that ask which device a tensor is on: (module, functions)
ASKS = (("liger_kernel.ops.fused_linear_cross_entropy", ("_can_use_mm_out", "fused_linear_cross_entropy_forward")),
        ("liger_kernel.ops.rms_norm", ("rms_norm_backward",)),
        ("liger_kernel.ops.layer_norm", ("layer_norm_backward",)))
KERNELS = ("rope", "rms_norm", "swiglu", "geglu", "relu_squared", "layer_norm", "cross_entropy", "fused_linear_cross_entropy")
READY = []      # the module that has them
BEFORE = {}     # (object, name) -> what it was before Liger put something in its place


def prepare():
    """Before anything is written down: what Liger makes when it is imported is no part of a step."""
    if READY:
        return
    READY.append(importlib.import_module("liger_kernel.transformers.monkey_patch"))
    torch.cuda.get_device_capability = lambda *args: (8, 0)
    for name, functions in ASKS:
        module = importlib.import_module(name)
        for function in functions:
            source = inspect.getsource(getattr(module, function)).replace('"cuda"', '"cpu"')
            exec(compile(source, module.__file__, "exec"), module.__dict__)


def undo():
    for (thing, name), value in BEFORE.items():
        setattr(thing, name, value)
    BEFORE.clear()


def keep(thing):
    BEFORE.update({(thing, name): value for name, value in vars(thing).items()
                   if callable(value) and not name.startswith("__")})


LOSSES = {"liger": "fused_linear_cross_entropy", "liger-cross-entropy": "cross_entropy", "per-token-liger": "cross_entropy"}


def wanted_by(s):
    """The kernels that a strategy names: `liger`, by commas, and those of LOSSES that its `loss` is."""
    return {name for name in s.get("liger", "").split(",") if name} | {LOSSES[loss] for loss in [s.get("loss")] if loss in LOSSES}


def apply(model, model_type, wanted):
    """What transformers' _apply_liger_kernel does to a model that is there, of the kernels in `wanted`."""
    prepare()
    assert wanted <= set(KERNELS), wanted
    function = READY[0].MODEL_TYPE_TO_APPLY_LIGER_FN[model_type]
    parameters = [name for name in inspect.signature(function).parameters if name in KERNELS]
    assert wanted <= set(parameters), (wanted, parameters)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("transformers.models.") and ".modeling_" in module.__name__ and \
                module.__name__.split(".")[2] in type(model).__module__.split("."):
            keep(module)
    BEFORE[torch.nn.functional, "cross_entropy"] = torch.nn.functional.cross_entropy
    function(model=model, **{name: name in wanted for name in parameters})
