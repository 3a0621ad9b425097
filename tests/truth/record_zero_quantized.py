#!/usr/bin/env python3
"""Record what DeepSpeed's ZeRO-3 allocates with quantised weights (zero_quantized_weights, with hpZ too).

As record_zero.py. DeepSpeed's CUDA extension (csrc/quantization/pt_binding.cpp) is replaced by one that allocates what
its C++ allocates, in its order, and computes nothing:

    quantize(x, groups, 8)        scales fp32 [groups, 1], then int8 of x's shape
    dequantize(q, scales, ...)    fp16 of q's shape

Usage: as record_systems.py.  Needs deepspeed 0.19.8.
"""
import sys

import record_zero                  # first: it sets DeepSpeed's environment
import torch
import deepspeed
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
        return torch.empty(values.shape, dtype=torch.float16)


class Quantised(record_zero.Zero):
    places = (("ds_fetch", "unsharded_param"),) + record_zero.Zero.places

    def shard(self, model, blocks):
        partition_parameters.CUDAQuantizer.group_size_cache.clear()
        return super().shard(model, blocks)


if __name__ == "__main__":
    deepspeed.ops.op_builder.QuantizerBuilder = lambda: type("Builder", (), {"load": lambda self: Quantizer()})()
    sys.exit(recorder.main(lambda config: Quantised if config["strategy"].get("zero_quantized_weights") else None))
