"""bitsandbytes' Linear4bit where there is no GPU: what its operators do on one.

bitsandbytes 0.50's fake kernels give an operator's result and no more. Its CUDA backend's Python allocates what it needs
besides: of more than 1,536 tokens gemm_4bit dequantises the scales, then the weight, and calls F.linear
(backends/cuda/ops.py, _dequant_linear_fallback); of fewer a heuristic that knows the GPU may choose a kernel that takes the
packed weight. That Python runs here, on tensors that are never filled, without the kernels.
"""
import unittest.mock

import bitsandbytes
import torch
from bitsandbytes import functional
from bitsandbytes.backends.cuda import ops
from bitsandbytes.nn import Params4bit
from bitsandbytes.nn.parametrize import replace_parameter_4bit
from peft import prepare_model_for_kbit_training
from transformers import BitsAndBytesConfig
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer

import recorder

ops._dequantize_blockwise_impl = ops._dequantize_4bit_impl = lambda *args, **kwargs: None
UNDER = []                                  # dtypes of autocast, or None, of matmul_4bit's calls
FEWEST = ops._gemm_4bit_custom_max_m + 1    # tokens of which every GPU dequantises


def under(function):
    """matmul_4bit, which notes whether it is called under autocast: a dispatch mode is not."""
    def call(*args, **kwargs):
        UNDER.append(torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None)
        try:
            return function(*args, **kwargs)
        finally:
            UNDER.pop()
    return call


bitsandbytes.matmul_4bit = under(bitsandbytes.matmul_4bit)
_is_autocast_enabled = torch.is_autocast_enabled
torch.is_autocast_enabled = lambda device="cpu": _is_autocast_enabled(device)      # peft asks for CUDA's


def linear(a, b, bias=None):
    """F.linear as CUDA has it of rows that follow each other, in autocast's dtype where that is on: the product calls
    what autocast wraps. Arguments are cast from the last one on, and let go of from the first."""
    given, casts = [a, b, bias], [None] * 3
    for i in reversed(range(3)):
        cast = given[i] is not None and UNDER[-1] not in (None, given[i].dtype)
        casts[i] = torch.ops.aten._to_copy(given[i], dtype=UNDER[-1]) if cast else given[i]
    rows, weight = casts[0].reshape(-1, a.shape[-1]), casts[1].t()
    out = torch.mm(rows, weight) if bias is None else torch.addmm(casts[2], rows, weight)
    del rows, weight
    for i in range(3):
        casts[i] = None
    return out.view(*a.shape[:-1], b.shape[0])


def gemm_4bit(mode, a, *args, **kwargs):
    """bitsandbytes::gemm_4bit as on CUDA, with what it calls seen by the mode."""
    if a.numel() // a.shape[-1] < FEWEST:
        raise ValueError(f"{a.numel() // a.shape[-1]} tokens: what runs of fewer than {FEWEST} depends on the GPU")
    with mode, torch.no_grad(), unittest.mock.patch.object(torch.nn.functional, "linear", linear):
        return ops._dequant_linear_fallback(a, *args, **kwargs)


def on_cpu():
    """What is computed for real (record_real.py): kernels that allocate what CUDA's do and compute nothing."""
    library = torch.library.Library("bitsandbytes", "IMPL")
    library.impl("gemm_4bit", ops._dequant_linear_fallback, "CPU")
    library.impl("dequantize_4bit", lambda a, absmax, blocksize, kind, shape, dtype: torch.empty(shape, dtype=dtype), "CPU")
    library.impl("dequantize_blockwise",
                 lambda a, absmax, code, blocksize, dtype: torch.empty_like(a, dtype=dtype), "CPU")
    return library


def settle(log, model):
    """What is stored beside the weights are buffers, as a plan has them."""
    states = [s for m in model.modules() if (s := getattr(m, "quant_state", None)) is not None]
    tensors = [t for s in states for t in (s.absmax, s.code, s.offset)]
    tensors += [t for s in states if s.nested for t in (s.state2.absmax, s.state2.code)]
    for t in tensors + list(functional.name2qmap.values()):
        if t is not None:
            log.recategorize(t, "buffer")


def in_parametrizations(model, kind, double):
    """axolotl's quantize_moe_experts: what has three dims and is some experts' (monkeypatch/moe_quant.py)."""
    for name, parameter in list(model.named_parameters()):
        module, _, field = name.rpartition(".")
        if parameter.ndim >= 3 and "expert" in name.lower():
            replace_parameter_4bit(model.get_submodule(module), field, compress_statistics=double, quant_type=kind)


def tie(model, before, value):
    """Other modules that had the parameter have what came in its place."""
    for module in model.modules():
        for field, parameter in module._parameters.items():
            if parameter is before:
                setattr(module, field, value)


def in_4bit(model, kind, double, compute, storage, kbit, skipped, experts, back):
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double,
                                bnb_4bit_compute_dtype=compute, bnb_4bit_quant_storage=storage)
    skipped = Bnb4BitHfQuantizer(config).get_modules_to_not_convert(model, skipped, model._keep_in_fp32_modules)
    functional.name2qmap.pop("dynamic", None)    # made by the first weight that is quantised
    weights = dict(model.named_parameters())
    replace_with_bnb_linear(model, modules_to_not_convert=skipped, quantization_config=config)
    made = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)      # as while weights are loaded: of the table of values
    for name, parameter in list(model.named_parameters()):
        if not parameter.is_meta:
            continue
        module, _, field = name.rpartition(".")
        before = weights.pop(name)
        value = before.data
        if isinstance(parameter, Params4bit):
            turned = module and model.get_submodule(module).source_cls.__name__ == "Conv1D"
            value = Params4bit(value.T if turned else value, requires_grad=False, **parameter.__dict__)._quantize(value.device)
        else:
            value = torch.nn.Parameter(value, requires_grad=False)
        setattr(model.get_submodule(module), field, value)
        tie(model, before, value)
    if experts:
        in_parametrizations(model, kind, double)
    torch.set_default_dtype(made)
    model.is_loaded_in_4bit = True
    if kbit:
        prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    for parameter in recorder.matching(model, back):
        parameter.data = parameter.data.to(made)
    return model
