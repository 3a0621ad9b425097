"""bitsandbytes' Linear8bitLt (LLM.int8()) where there is no GPU: what its operators do on one.

The Python of bitsandbytes 0.50's CUDA backend (and what it has of all backends: int8_mixed_scaled_mm, int8_scaled_mm) runs
here in the place of its fake kernels and the CPU's, on tensors that are never filled, without what it calls of its library.
Which columns of a layer's input have numbers of 6 and more is data: none has.
"""
import importlib
import logging
import unittest.mock

import bitsandbytes
import torch
from bitsandbytes import _ops
from bitsandbytes.autograd._functions import MatMul8bitLt
from bitsandbytes.nn import Int8Params
from peft import prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers.quantizer_bnb_8bit import Bnb8BitHfQuantizer

import recorder

KERNELS = {}        # functions of the backends by the operator's name; the GPU's own go before what is for all


def listed(name, device):
    def register(function):
        if name.startswith("bitsandbytes::int8_"):
            KERNELS[name.replace("::", ".") + ("" if name.endswith(".out") else ".default")] = function
        return function
    return register


with unittest.mock.patch.object(_ops, "register_kernel", listed):
    from bitsandbytes.backends.default import ops as common
    importlib.reload(common)
    from bitsandbytes.backends.cuda import ops
    importlib.reload(ops)
ops.lib = unittest.mock.MagicMock()
ops.lib.cigemmlt_32.return_value = 0
ops.CUBLAS_Context = unittest.mock.MagicMock()
ops._get_raw_stream = lambda index: 0
logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)   # each input is cast to fp16, it says


def matmul(a, b, out=None, state=None, threshold=0.0, bias=None):
    """As of tensors on a GPU: those on the CPU have a function of their own."""
    return MatMul8bitLt.apply(a, b, out, bias, state)


bitsandbytes.matmul = matmul


class Kernels:
    """What a dispatch mode does with such an operator."""

    def __init__(self):
        self.depth = 0

    def call(self, mode, func, args, kwargs):
        self.depth += 1
        try:
            with mode, torch.no_grad():
                return KERNELS[str(func)](*args, **kwargs)
        finally:
            self.depth -= 1

    def within(self, mode, func, args, kwargs):
        """Of what they call: (whether it is known here, the result)."""
        if not self.depth:
            return False, None
        if func is torch.ops.aten._local_scalar_dense.default:
            return True, False      # any() outliers
        if func is torch.ops.aten.lift_fresh.default:       # a number that is put somewhere: on the host
            recorder.Log.current.outside(args[0])
            return True, args[0]
        if func is torch.ops.aten.index_put_.default:       # which copies it to the tensor's device
            number = torch.empty((), dtype=args[0].dtype)
            recorder.Log.current.birth(number, f"_to_copy [] {str(number.dtype).removeprefix('torch.')}")
            return True, args[0]
        if func._can_decompose():   # what autograd would have taken apart before
            with mode:
                return True, func.decompose(*args, **kwargs)
        return False, None


RUNNING = Kernels()


def on_cpu():
    """What is computed for real (record_real.py): the same functions, which find no outliers in whatever they get."""
    library = torch.library.Library("bitsandbytes", "IMPL")
    for name in ("int8_mixed_scaled_mm", "int8_scaled_mm", "int8_linear_matmul", "int8_mm_dequant"):
        library.impl(name, KERNELS[f"bitsandbytes.{name}.default"], "CPU")

    def quantized(*args, **kwargs):
        with unittest.mock.patch.object(torch.Tensor, "any", lambda tensor: torch.ops.aten.any(tensor).zero_()):
            return KERNELS["bitsandbytes.int8_vectorwise_quant.default"](*args, **kwargs)
    library.impl("int8_vectorwise_quant", quantized, "CPU")
    return library


def settle(log, model):
    """The rows' scales are buffers, as a plan has them."""
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear8bitLt):
            log.recategorize(module.weight.SCB if module.state.SCB is None else module.state.SCB, "buffer")


def in_8bit(model, kbit, skipped, back):
    config = BitsAndBytesConfig(load_in_8bit=True)
    skipped = Bnb8BitHfQuantizer(config).get_modules_to_not_convert(model, skipped, model._keep_in_fp32_modules)
    weights = dict(model.named_parameters())
    replace_with_bnb_linear(model, modules_to_not_convert=skipped, quantization_config=config)
    for name, parameter in list(model.named_parameters()):
        if not parameter.is_meta:
            continue
        module, _, field = name.rpartition(".")
        value = weights.pop(name).data
        if isinstance(parameter, Int8Params):
            turned = module and model.get_submodule(module).source_cls.__name__ == "Conv1D"
            made = {k: v for k, v in parameter.__dict__.items() if k != "SCB"}
            value = Int8Params(value.T if turned else value, requires_grad=False, **made).to(value.device)
        else:
            value = torch.nn.Parameter(value, requires_grad=False)
        setattr(model.get_submodule(module), field, value)
    model.is_loaded_in_8bit = True
    if kbit:
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    for parameter in recorder.matching(model, back):
        parameter.data = parameter.data.to(torch.get_default_dtype())
    return model
