"""axolotl's kernels of adapters (July 2026; its sources on PYTHONPATH) without a GPU: what its functions allocate.

kernels/lora.py, geglu.py, swiglu.py, quantize.py and monkeypatch/lora_kernels.py run as they are; what they import of the rest
of axolotl is not needed for that and stood in for. Triton launches nothing, and neither does bitsandbytes' library. Where the
device is named it is the one that tensors are on here, and so is the one whose autocast a function's backward is under.
"""
import importlib
import logging
import pathlib
import sys
import types
import unittest.mock

import torch

MODEL_TYPE = [None]     # of the model that is patched: AutoConfig's answer


def nothing(*args, **kwargs):
    return None


def package(name, **fields):
    module = types.ModuleType(name)
    module.__dict__.update(fields)
    sys.modules[name] = module
    return module


def root():
    """Where axolotl's sources are."""
    return next(folder for folder in map(pathlib.Path, sys.path) if (folder / "axolotl/kernels/lora.py").exists()) / "axolotl"


def detab_code(code):
    """axolotl/monkeypatch/utils.py: without the indentation of its first line."""
    import re
    spaces = re.match(r"([\s\t]{1,})", code).group(0)
    return re.sub(r"^" + spaces, "", code, flags=re.MULTILINE), spaces


class Settings(dict):
    """Keys that are not there are None."""

    def __getattr__(self, name):
        return self.get(name)


class Logger(logging.Logger):
    warning_once = logging.Logger.warning


def on_cpu(path):
    """The source of a module, whose tensors are born on the device that the others are on."""
    return path.read_text().replace('device="cuda"', 'device="cpu"').replace('device_type="cuda"', 'device_type="cpu"')


def load(folder, name):
    full = "axolotl." + name
    module = package(full)
    module.__file__ = str(folder / (name.replace(".", "/") + ".py"))
    module.__package__ = full.rpartition(".")[0]
    exec(compile(on_cpu(pathlib.Path(module.__file__)), module.__file__, "exec"), module.__dict__)
    setattr(sys.modules[module.__package__], name.rpartition(".")[2], module)
    return module


def prepare():
    """Before anything is written down: what is made when it is imported is no part of a step."""
    if "axolotl.kernels.lora" in sys.modules:
        return
    import triton
    triton.runtime.jit.JITFunction.run = nothing
    import bitsandbytes.functional as functional
    for dtype in ("fp32", "fp16_nf4", "bf16_nf4", "fp32_nf4"):
        setattr(functional.lib, f"cdequantize_blockwise_{dtype}", nothing)
    functional.get_ptr = nothing
    torch.cuda.current_stream = nothing
    folder = root()
    for name in ("", ".kernels", ".monkeypatch", ".utils", ".utils.callbacks"):
        package("axolotl" + name, __path__=[])
    package("axolotl.utils.logging", get_logger=lambda name: Logger(name, logging.ERROR))
    package("axolotl.utils.dict", DictDefault=Settings)
    package("axolotl.monkeypatch.utils", detab_code=detab_code)
    for name in ("utils.callbacks.models", "kernels.op_registry", "kernels.utils", "kernels.quantize", "kernels.geglu",
                 "kernels.swiglu", "kernels.lora", "monkeypatch.lora_kernels"):
        load(folder, name)


def undo():
    """A class whose forward was rewritten has its own again."""
    while PATCHED:
        cls, forward = PATCHED.pop()
        cls.forward = forward
        del cls._original_forward


PATCHED = []


def patch_attention(config, settings):
    """patch_self_attn_lora, before the model is made."""
    patches = sys.modules["axolotl.monkeypatch.lora_kernels"]
    with unittest.mock.patch.object(patches.AutoConfig, "from_pretrained", lambda name: config):
        cls = patches.get_attention_cls_from_config(Settings(base_model=""))
        forward = cls.forward
        patches.patch_self_attn_lora(settings)
    if hasattr(cls, "_original_forward"):
        PATCHED.append((cls, forward))


def settings_of(s):
    """Of strategy.lora_kernels: mlp, qkv and o, by commas."""
    return Settings(base_model="", **{f"lora_{name}_kernel": True for name in s["lora_kernels"].split(",")})


def apply(model, s):
    """The model that peft wrapped, as axolotl's loader patches it."""
    settings = settings_of(s)
    if settings.lora_qkv_kernel or settings.lora_o_kernel:
        patch_attention(model.config, settings)
    return sys.modules["axolotl.monkeypatch.lora_kernels"].apply_lora_kernel_patches(model, settings)
