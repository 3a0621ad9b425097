#!/usr/bin/env python3
"""Record what DeepSpeed's ZeRO-3 allocates with quantised weights (zero_quantized_weights, with hpZ too) and quantised
gradients (zero_quantized_gradients, of nodes of `gpus_per_node`).

As record_zero.py. DeepSpeed's CUDA extension (csrc/quantization/pt_binding.cpp) is replaced by one that allocates what
its C++ allocates, in its order, and computes nothing:

    quantize(x, groups, 8)        scales fp32 [groups, 1], then int8 of x's shape
    dequantize(q, scales, ...)    fp16 of q's shape; of 4 bits twice as many
    swizzle_quant(x, groups, 4)   scales fp32 [groups, 1], then int8 of half as many
    quantized_reduction(q, ...)   scales fp32 [groups, 1], then int8 of a node's share

Usage: as record_systems.py.  Needs deepspeed 0.19.8.
"""
import sys

import record_zero                  # first: it sets DeepSpeed's environment
import torch
import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.zero import partition_parameters

import recorder


class Quantizer:
    Symmetric = 0

    @staticmethod
    def quantize(values, groups, bits, kind):
        scales = torch.empty(groups, 1, dtype=torch.float32)
        return torch.empty(values.shape, dtype=torch.int8), scales

    @staticmethod
    def dequantize(values, scales, groups, bits, kind):
        return torch.empty(*values.shape[:-1], values.shape[-1] * (1 if bits == 8 else 2), dtype=torch.float16)

    @staticmethod
    def swizzle_quant(values, groups, bits, kind, pipelines, nodes, devices):
        scales = torch.empty(groups, 1, dtype=torch.float32)
        return torch.empty(values.numel() * bits // 8, dtype=torch.int8), scales

    @staticmethod
    def quantized_reduction(values, scales, groups_in, groups, bits, kind, devices):
        out = torch.empty(groups, 1, dtype=torch.float32)
        return torch.empty(*values.shape[:-1], values.shape[-1] // devices, dtype=torch.int8), out


class Quantised(record_zero.Zero):
    places = (("ds_fetch", "unsharded_param"),) + record_zero.Zero.places

    def configuration(self):
        out = super().configuration()
        out["zero_optimization"].pop("gpus_per_node", None)
        return out

    def shard(self, model, blocks):
        devices = self.s.get("gpus_per_node", 8)
        type(get_accelerator()).device_count = lambda self: devices
        partition_parameters.CUDAQuantizer.group_size_cache.clear()
        return super().shard(model, blocks)


if __name__ == "__main__":
    deepspeed.ops.op_builder.QuantizerBuilder = lambda: type("Builder", (), {"load": lambda self: Quantizer()})()
    sys.exit(recorder.main(lambda config: Quantised if any(key.startswith("zero_quantized") for key in config["strategy"]) else None))
