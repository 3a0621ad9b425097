#!/usr/bin/env python3
"""Record what torch.compile makes of blocks: what is saved for backward, and Inductor's programs.

Each block is compiled on its own with fullgraph=True, as torchtitan does, on fake tensors of the device
"cuda:0": Dynamo, AOTAutograd with the min-cut partitioner, and Inductor up to the text of its wrapper
(no GPU is needed, no kernel is compiled: no_gpu.c answers what PyTorch asks of CUDA).  The text is then
read: every allocation, reuse and death of a buffer and every call of a kernel, in order.

Usage
    record_compile.py --out OUT.jsonl [--only PATTERN] [--joint DIR]
    record_compile.py --check OUT.jsonl

A row: name, model and strategy as record.py's (`store_dtype` is the dtype of the block's parameters,
which under FSDP2's mixed precision is param_dtype; ac), and for the compiled block
    saved      [dtype, shape, "input" or ""]: what backward gets besides parameters, in order
    parameters how many of those it gets
    forward, backward   events: ["+", memory, bytes], ["-", memory], ["kernel", name, memory read, memory
               written]; what is written where other buffers were before has their name.  Inputs are
               named by their place ("p3": a parameter, "i0": another input, "s2": the saved tensor 2,
               "t0": the gradient of output 0), results by ["out", names]
"""
import argparse
import ast
import contextlib
import fnmatch
import functools
import importlib.util
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = {"kind": "llama", "dim": 256, "heads": 8, "kv_heads": 4, "ffn": 704, "vocab": 251, "layers": 2,
         "batch": 2, "seq": 128}
GPT2 = {"kind": "gpt2", "dim": 192, "heads": 4, "vocab": 131, "layers": 2, "batch": 2, "seq": 64}
HF = {"kind": "hf", "batch": 2, "seq": 128}
HF_LLAMA = {**HF, "model_type": "llama", "vocab_size": 251, "hidden_size": 256, "intermediate_size": 704,
            "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8}
HF_GPT2 = {**HF, "model_type": "gpt2", "vocab_size": 251, "n_positions": 128, "n_embd": 192, "n_layer": 2,
           "n_head": 4, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
BIG = {"kind": "llama", "dim": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256, "layers": 2,
       "batch": 1, "seq": 8192}
BF16 = {"store_dtype": "bf16"}
HFB = {**BF16, "code": "hf"}
AUTOCAST = {"store_dtype": "fp32", "autocast": "bf16"}
CASES = (
    ("llama", LLAMA, BF16),
    ("llama-mha", {**LLAMA, "kv_heads": 8}, BF16),
    ("llama-8b", BIG, BF16),
    ("llama-fp32", LLAMA, {"store_dtype": "fp32"}),
    ("llama-odd", {**LLAMA, "dim": 192, "heads": 3, "kv_heads": 3, "ffn": 1000, "batch": 1, "seq": 56}, BF16),
    ("llama-full", LLAMA, {**BF16, "ac": "full"}),
    ("llama-selective", LLAMA, {**BF16, "ac": "selective"}),
    ("gpt2", GPT2, BF16),
    ("gpt2-wide", {**GPT2, "dim": 1024, "heads": 16, "batch": 4, "seq": 512}, BF16),
    ("gpt2-full", GPT2, {**BF16, "ac": "full"}),
    ("gpt2-selective", GPT2, {**BF16, "ac": "selective"}),
    ("hf-llama", HF_LLAMA, HFB),
    ("hf-llama-gqa", {**HF_LLAMA, "num_key_value_heads": 2}, HFB),
    ("hf-llama-7b", {**HF_LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
                     "num_key_value_heads": 32, "vocab_size": 32000, "batch": 1, "seq": 4096}, HFB),
    ("hf-llama-full", HF_LLAMA, {**HFB, "ac": "full"}),
    ("hf-mistral", {**HF_LLAMA, "model_type": "mistral", "num_key_value_heads": 4, "sliding_window": None}, HFB),
    ("hf-qwen2", {**HF_LLAMA, "model_type": "qwen2"}, HFB),
    ("hf-qwen3", {**HF_LLAMA, "model_type": "qwen3", "head_dim": 32}, HFB),
    ("hf-gpt2", HF_GPT2, HFB),
    ("hf-olmo2", {**HF_LLAMA, "model_type": "olmo2"}, HFB),
    ("hf-granite", {**HF_LLAMA, "model_type": "granite", "num_key_value_heads": 4}, HFB),
    ("hf-stablelm", {**HF_LLAMA, "model_type": "stablelm", "num_key_value_heads": 4}, HFB),
    ("hf-starcoder2", {**HF_LLAMA, "model_type": "starcoder2", "num_key_value_heads": 2,
                       "residual_dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0}, HFB),
    ("hf-gpt-neox", {**HF, "model_type": "gpt_neox", "vocab_size": 251, "hidden_size": 256,
                     "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8}, HFB),
    ("hf-gpt2-fp32", HF_GPT2, {"store_dtype": "fp32", "code": "hf"}),
    ("hf-llama-fp32", HF_LLAMA, {"store_dtype": "fp32", "code": "hf"}),
    ("hf-llama-fp32-full", HF_LLAMA, {"store_dtype": "fp32", "code": "hf", "ac": "full"}),
    ("llama-autocast", LLAMA, AUTOCAST),
    ("llama-autocast-full", LLAMA, {**AUTOCAST, "ac": "full"}),
    ("gpt2-autocast", GPT2, AUTOCAST),
    ("hf-gpt2-autocast", HF_GPT2, {**AUTOCAST, "code": "hf"}),
    ("hf-llama-autocast", HF_LLAMA, {**AUTOCAST, "code": "hf"}),
    ("hf-gemma2", {**HF_LLAMA, "num_key_value_heads": 4, "model_type": "gemma2", "head_dim": 32, "query_pre_attn_scalar": 32,
                   "sliding_window": 4096, "layer_types": ["sliding_attention", "full_attention"]}, HFB),
    ("hf-gemma2-full", {**HF_LLAMA, "num_key_value_heads": 4, "model_type": "gemma2", "head_dim": 32, "batch": 1,
                        "query_pre_attn_scalar": 32, "sliding_window": 64}, {**HFB, "ac": "full"}),
    ("hf-phi3", {**HF_LLAMA, "num_key_value_heads": 2, "model_type": "phi3", "pad_token_id": 0, "sliding_window": None}, HFB),
    ("hf-glm4", {**HF_LLAMA, "num_key_value_heads": 2, "model_type": "glm4", "head_dim": 32, "pad_token_id": 0}, HFB),
    ("hf-glm", {**HF_LLAMA, "num_key_value_heads": 2, "model_type": "glm", "head_dim": 32, "pad_token_id": 0}, HFB),
    ("hf-cohere", {**HF_LLAMA, "num_key_value_heads": 2, "model_type": "cohere"}, HFB),
    ("hf-ernie4_5", {**HF_LLAMA, "num_key_value_heads": 2, "model_type": "ernie4_5", "head_dim": 32}, HFB),
    ("hf-helium", {**HF_LLAMA, "num_key_value_heads": 2, "model_type": "helium", "head_dim": 32}, HFB),
    ("hf-qwen3-gqa", {**HF_LLAMA, "model_type": "qwen3", "head_dim": 32, "num_key_value_heads": 2}, HFB),
)
TENSORWISE, ROWWISE, GW_HP = ({**BF16, "float8": r} for r in ("tensorwise", "rowwise", "rowwise_with_gw_hp"))
GATHERED = {**TENSORWISE, "float8_all_gather": "dynamic"}      # precomputed scales: the block sees no difference
FLOAT8_CASES = (        # torchao's Float8Linear
    ("float8-tensorwise", LLAMA, TENSORWISE),
    ("float8-rowwise", LLAMA, ROWWISE),
    ("float8-gw-hp", LLAMA, GW_HP),
    ("float8-tensorwise-8b", BIG, TENSORWISE),
    ("float8-rowwise-8b", BIG, ROWWISE),
    ("float8-gw-hp-8b", BIG, GW_HP),
    ("float8-tensorwise-full", LLAMA, {**TENSORWISE, "ac": "full"}),
    ("float8-rowwise-full", LLAMA, {**ROWWISE, "ac": "full"}),
    ("float8-gw-hp-full", LLAMA, {**GW_HP, "ac": "full"}),
    ("float8-tensorwise-selective", LLAMA, {**TENSORWISE, "ac": "selective"}),
    ("float8-rowwise-selective", LLAMA, {**ROWWISE, "ac": "selective"}),
    ("float8-gw-hp-selective", LLAMA, {**GW_HP, "ac": "selective"}),
    ("float8-tensorwise-8b-selective", BIG, {**TENSORWISE, "ac": "selective"}),
    ("float8-gather", LLAMA, GATHERED),
    ("float8-gather-8b", BIG, GATHERED),
    ("float8-gather-full", LLAMA, {**GATHERED, "ac": "full"}),
    ("float8-gather-selective", LLAMA, {**GATHERED, "ac": "selective"}),
    ("float8-gather-8b-selective", BIG, {**GATHERED, "ac": "selective"}),
)
HF_GQA = {**HF_LLAMA, "num_key_value_heads": 2}
HF_WIDE = {**HF_LLAMA, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4,
           "vocab_size": 1000, "batch": 1, "seq": 512}
ALL_LINEAR = {**HFB, "lora": "8,all-linear"}
FROZEN_CASES = (        # adapters, and what else has parameters that are not trained: of each block a row
    ("lora-llama", HF_LLAMA, {**HFB, "lora": "8"}),
    ("lora-llama-gqa", HF_GQA, ALL_LINEAR),
    ("lora-llama-wide", HF_WIDE, ALL_LINEAR),
    ("lora-llama-fp32", {**HF_LLAMA, "batch": 1}, {"store_dtype": "fp32", "code": "hf", "lora": "4,q_proj,v_proj"}),
    ("lora-llama-full", HF_GQA, {**ALL_LINEAR, "ac": "full"}),
    ("lora-llama-autocast", HF_GQA, {**AUTOCAST, "code": "hf", "lora": "8,all-linear"}),
    ("lora-llama-two", HF_GQA, {**HFB, "lora": "8", "lora_dtype": "fp32"}),
    ("lora-llama-two-full", {**HF_GQA, "batch": 1}, {**ALL_LINEAR, "lora_dtype": "fp32", "ac": "full"}),
    ("lora-llama-two-wide", HF_WIDE, {**ALL_LINEAR, "lora_dtype": "fp32"}),
    ("lora-llama-two-autocast", HF_GQA, {**ALL_LINEAR, "lora_dtype": "fp32", "autocast": "bf16"}),
    ("lora-qwen2", {**HF_GQA, "model_type": "qwen2"}, {**HFB, "lora": "8"}),
    ("lora-qwen3", {**HF_GQA, "model_type": "qwen3", "head_dim": 32}, ALL_LINEAR),
    ("lora-gpt2", HF_GPT2, {**HFB, "lora": "8,c_attn"}),
    ("lora-llama-dropout", HF_GQA, {**HFB, "lora": "8", "lora_dropout": 0.1}),
    ("lora-llama-all-dropout", HF_GQA, {**ALL_LINEAR, "lora_dropout": 0.05}),
    ("lora-llama-dropout-full", HF_GQA, {**ALL_LINEAR, "lora_dropout": 0.1, "ac": "full"}),
    ("lora-llama-two-dropout", HF_GQA, {**ALL_LINEAR, "lora_dropout": 0.1, "lora_dtype": "fp32"}),
    ("lora-llama-two-autocast-dropout", HF_GQA, {**ALL_LINEAR, "lora_dropout": 0.1, "lora_dtype": "fp32", "autocast": "bf16"}),
    ("frozen-llama-embedding", LLAMA, {**BF16, "freeze": "tok_embeddings.*"}),
    ("frozen-llama-norms", LLAMA, {**BF16, "freeze": "*norm*"}),
    ("frozen-llama-first", LLAMA, {**BF16, "freeze": "tok_embeddings.*,layers.0.*"}),
    ("frozen-llama-first-full", LLAMA, {**BF16, "freeze": "tok_embeddings.*,layers.0.*", "ac": "full"}),
    ("frozen-llama-attention", LLAMA, {**BF16, "freeze": "tok_embeddings.*,*.wq.*,*.wk.*,*.w2.*"}),
    ("frozen-hf-llama", HF_GQA, {**HFB, "freeze": "*embed_tokens*,*mlp*"}),
    ("frozen-hf-llama-fp32", HF_LLAMA, {"store_dtype": "fp32", "code": "hf", "freeze": "*self_attn*"}),
    ("frozen-hf-gpt2-biases", HF_GPT2, {**HFB, "freeze": "*.wte.*,*.wpe.*,*.bias"}),
)
HF_MOE = {**HF_LLAMA, "num_key_value_heads": 4, "moe_intermediate_size": 192, "num_experts": 8, "num_experts_per_tok": 4}
QWEN3_MOE = {**HF_MOE, "model_type": "qwen3_moe", "head_dim": 32, "norm_topk_prob": True}
QWEN3_30B = {**QWEN3_MOE, "hidden_size": 2048, "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
             "num_attention_heads": 32, "head_dim": 128, "batch": 1, "seq": 4096}
MIXTRAL = {**HF_LLAMA, "model_type": "mixtral", "num_key_value_heads": 4, "sliding_window": None, "num_local_experts": 8,
           "num_experts_per_tok": 2, "seq": 384}
DEEPSEEK = {**HF_MOE, "first_k_dense_replace": 0, "n_group": 2, "topk_group": 1, "n_routed_experts": 8, "n_shared_experts": 1,
            "norm_topk_prob": True, "routed_scaling_factor": 2.5}
QWEN2_MOE = {**HF_MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 320, "decoder_sparse_step": 1,
             "norm_topk_prob": False}
OLMOE = {**HF_MOE, "model_type": "olmoe", "intermediate_size": 192, "norm_topk_prob": False}
GLM4_MOE = {**DEEPSEEK, "model_type": "glm4_moe", "head_dim": 32}
MLA = {"num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
       "v_head_dim": 32}
MOE_CASES = (           # mixtures of experts: transformers' grouped_mm, its default
    ("moe-qwen3", QWEN3_MOE, HFB),
    ("moe-qwen3-full", QWEN3_MOE, {**HFB, "ac": "full"}),
    ("moe-qwen3-selective", QWEN3_MOE, {**HFB, "ac": "selective"}),
    ("moe-qwen3-30b", QWEN3_30B, HFB),
    ("moe-mixtral", MIXTRAL, HFB),
    ("moe-mixtral-full", MIXTRAL, {**HFB, "ac": "full"}),
    ("moe-qwen2", QWEN2_MOE, HFB),
    ("moe-olmoe", OLMOE, HFB),
    ("moe-glm4", GLM4_MOE, HFB),
    ("moe-granite", {**HF_MOE, "model_type": "granitemoe", "num_local_experts": 8, "intermediate_size": 192}, HFB),
    ("moe-qwen3-three", {**QWEN3_MOE, "num_experts_per_tok": 3, "num_experts": 16, "batch": 1, "seq": 320}, HFB),
    ("moe-ernie", {**HF_MOE, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 4, "moe_num_shared_experts": 1,
                   "moe_layer_start_index": 0, "moe_layer_end_index": 1}, HFB),
    ("moe-deepseek-v3", {**DEEPSEEK, **MLA, "model_type": "deepseek_v3"}, HFB),
    ("moe-deepseek-v3-full", {**DEEPSEEK, **MLA, "model_type": "deepseek_v3", "topk_group": 2, "n_group": 4}, {**HFB, "ac": "full"}),
    ("moe-deepseek-v2", {**DEEPSEEK, **MLA, "model_type": "deepseek_v2", "q_lora_rank": None, "topk_method": "greedy",
                         "norm_topk_prob": False}, HFB),
    ("moe-minimax", {**HF_MOE, "model_type": "minimax_m2", "head_dim": 32, "intermediate_size": 192,
                     "num_local_experts": 8}, HFB),
)
ALIASES = ("view_as_complex", "view_as_real", "_conj", "unsqueeze")      # fallback kernels that return their operand


def preload():
    """Runs this script again under no_gpu.c."""
    if "NO_GPU" in os.environ:
        return
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "libcuda.so.1")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(HERE / "no_gpu.c")], check=True)
        paths = folder + ":" + os.environ.get("LD_LIBRARY_PATH", "")
        env = {**os.environ, "NO_GPU": "1", "LD_PRELOAD": library, "LD_LIBRARY_PATH": paths}
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=env, check=False).returncode)


preload()

import torch                                    # noqa: E402
import torch._functorch.config as aot_config    # noqa: E402
import torch._functorch.partitioners as partitioners    # noqa: E402
import torch._inductor.compile_fx as compile_fx         # noqa: E402
import torch._inductor.config as inductor_config        # noqa: E402
import torch._inductor.fx_passes.fuse_attention as fuse_attention   # noqa: E402
import torch._inductor.fx_passes.joint_graph as joint_graph     # noqa: E402
import torch._inductor.fx_passes.pad_mm as pad_mm       # noqa: E402
from functorch.compile import make_boxed_func           # noqa: E402
from torch._dynamo import device_interface              # noqa: E402
from torch._inductor.graph import GraphLowering         # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode    # noqa: E402
from triton.backends.compiler import GPUTarget          # noqa: E402
from triton.runtime.driver import driver                # noqa: E402

torch.cuda.is_available = lambda: False         # while packages that ask a GPU what it is are imported
import models                                   # noqa: E402
import recorder as recorder_of                  # noqa: E402
torch.utils._triton.has_triton.cache_clear()

H100 = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, total_memory=85520809984,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472, L2_cache_size=52428800, gcnArchName="", uuid="")


class Device(contextlib.nullcontext):
    """torch.cuda.device of the only one."""

    def __init__(self, *_):
        super().__init__()


class Driver:
    """Triton's driver: what Inductor asks of it."""

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_device_interface(self):
        return torch.cuda

    def get_active_torch_device(self):
        return torch.device("cuda", 0)


def first_use_of_peft():
    """It keeps tensors for good when it is first used, which have to be real; without it, models have no
    adapters."""
    if importlib.util.find_spec("peft"):
        import peft  # noqa: F401


def pretend_gpu():
    cuda = torch.cuda
    answers = {"is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
               "set_device": None, "get_rng_state": torch.empty(0), "set_rng_state": None, "synchronize": None,
               "get_device_properties": H100, "_get_device_properties": H100, "_lazy_init": None,
               "get_device_capability": (9, 0), "is_current_stream_capturing": False,
               "current_stream": types.SimpleNamespace(cuda_stream=0)}
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, answer=answer, **__: answer)
    cuda.graphs.is_current_stream_capturing = cuda.is_current_stream_capturing
    torch.accelerator.is_available = lambda: False
    torch._C._cuda_getDevice = lambda: 0
    torch._C._cuda_getCurrentRawStream = lambda *_: 0
    cuda.device = cuda._DeviceGuard = device_interface.CudaInterface.device = Device
    device_interface.CudaInterface.Worker.get_device_properties = staticmethod(lambda *_: H100)
    device_interface.CudaInterface.get_compute_capability = staticmethod(lambda *_: 90)
    device_interface.CudaInterface.is_available = staticmethod(lambda: True)
    driver.set_active(Driver())
    # patterns of attention written out, and matrices that are padded: neither is in these models
    fuse_attention._sfdp_init = pad_mm._pad_mm_init = lambda *_, **__: None
    for name in ("kaiming_uniform_", "uniform_", "normal_", "ones_", "zeros_", "trunc_normal_"):
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    pretend_transformers()
    fold = joint_graph.UniformValueConstantFolder._deduce_value

    def deduced(self, node):
        """Tensors of one value are computed on the CPU."""
        if node.target is torch.ops.aten.full.default:
            return torch.full([1], node.args[1], dtype=node.kwargs.get("dtype"), device="cpu")
        if node.target is torch.ops.aten.scalar_tensor.default:
            return torch.scalar_tensor(node.args[0], dtype=node.kwargs.get("dtype"), device="cpu")
        return fold(self, node)
    joint_graph.UniformValueConstantFolder._deduce_value = deduced
    inductor_config.force_disable_caches = True
    inductor_config.compile_threads = 1
    aot_config.enable_autograd_cache = False
    first_use_of_peft()


def pretend_transformers():
    """What transformers asks of the values of tensors: nothing is drawn, nothing is packed.  Of what is traced it
    asks nothing."""
    import transformers
    from transformers import masking_utils
    transformers.PreTrainedModel.init_weights = lambda self: self.tie_weights()
    find = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda x: find(x) if torch.compiler.is_compiling() else None


# ---- reading Inductor's wrapper ----

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "uint64": 8, "complex64": 8, "bool": 1,
               "uint8": 1, "int32": 4, "int8": 1, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}


def extent(shape, stride, dtype):
    """Bytes of memory that a tensor reaches over."""
    if 0 in shape:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(shape, stride))) * DTYPE_BYTES[dtype]


def called(call):
    return ast.unparse(call.func)


def pointers(text):
    """Of each Triton kernel, what it does with its arguments: "in_ptr0", "out_ptr0", "in_out_ptr0"."""
    found = re.findall(r"^def (triton_\w+)\((.*?)\):", text, re.M)
    return {name: [a.split(":")[0].strip() for a in arguments.split(",")] for name, arguments in found}


class Program:
    """Events of one call(), in order."""

    def __init__(self, text, names):
        self.events = []
        self.memory = dict(names)       # Inductor's name -> ours of the memory that it is in
        self.pointers = pointers(text)
        tree = ast.parse(text)
        call = next(f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == "call")
        self.find_fallbacks(call)
        for statement in call.body:
            self.statement(statement)

    def find_fallbacks(self, tree):
        """What kernels that allocate their results give: its parts, and their sizes."""
        self.sizes, self.parts = {}, {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and called(node) == "assert_tensor_metadata":
                shape, stride = (ast.literal_eval(a) for a in node.args[1:3])
                self.sizes[node.args[0].id] = extent(shape, stride, ast.unparse(node.args[3]).split(".")[-1])
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and \
                    isinstance(node.value.value, ast.Name) and isinstance(node.targets[0], ast.Name):
                self.parts.setdefault(node.value.value.id, []).append(node.targets[0].id)

    def operands(self, node):
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        return list(dict.fromkeys(self.memory[name] for name in names if name in self.memory))

    def add(self, *event):
        self.events.append(list(event))

    def born(self, name, size):
        self.memory[name] = name
        self.add("+", name, size)

    def statement(self, s):
        if isinstance(s, ast.With):
            for inner in s.body:
                self.statement(inner)
        elif isinstance(s, ast.Delete):
            for target in s.targets:
                self.died(target.id)
        elif isinstance(s, ast.Return):
            self.add("out", [(self.operands(e) or [None])[0] for e in s.value.elts])
        elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
            self.assigned(s.targets[0].id, s.value)
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            self.ran(s.value)

    def died(self, name):
        home = self.memory.pop(name, None)
        if home is not None and home not in self.memory.values():
            self.add("-", home)

    def assigned(self, name, value):
        if isinstance(value, ast.Call) and called(value).startswith("empty_strided"):
            shape, stride = (ast.literal_eval(a) for a in value.args[:2])
            self.born(name, extent(shape, stride, ast.unparse(value.args[2]).split(".")[-1]))
        elif isinstance(value, ast.Call) and called(value).startswith(("torch.ops.", "extern_kernels.")):
            self.fallback(name, value)
        elif isinstance(value, ast.Name) or isinstance(value, ast.Call) and called(value) == "reinterpret_tensor":
            old = self.operands(value)      # whose name is deleted next: its memory is used again
            if old:
                self.memory[name] = old[0]

    def fallback(self, name, value):
        kernel = called(value).replace("torch.ops.", "").replace(".default", "")
        read = self.operands(value)
        if kernel.split(".")[-1] in ALIASES:
            self.memory[name] = read[0]
            return
        made = [name] if name in self.sizes else self.parts.get(name, [])
        for part in made:
            self.born(part, self.sizes[part])
        self.add("kernel", kernel, read, made)

    def ran(self, call):
        name = called(call)
        if name.endswith(".run"):
            read, written = [], []
            for argument, pointer in zip(call.args, self.pointers[name[:-4]]):
                operand = self.operands(argument)
                read += operand if pointer.startswith("in_") else []
                written += operand if "out_ptr" in pointer else []
            self.add("kernel", name[:-4], read, written)
        elif name.startswith("extern_kernels."):
            out = [k.value for k in call.keywords if k.arg == "out"]
            read = list(dict.fromkeys(o for a in call.args for o in self.operands(a)))
            self.add("kernel", name, read, self.operands(out[0]) if out else [])


# ---- recording ----

class Recorder:
    def __init__(self):
        self.texts = []
        self.graphs = []        # (graph, is_backward)
        self.blocks = []        # of each graph the block that it is of, where they are kept apart
        self.joint = None
        GraphLowering.save_output_code = staticmethod(self.text)
        self.solve = partitioners.solve_min_cut
        partitioners.solve_min_cut = self.solved

    class Enough(Exception):
        pass

    def text(self, code):
        self.texts.append(code)
        raise Recorder.Enough

    def solved(self, graph, info, options, dont_ban=None):
        saved, banned = self.solve(graph, info, options, dont_ban)
        lines = []
        for n in graph.nodes:
            value = n.meta.get("val")
            shape = str(value.dtype)[6:] + str(list(value.shape)) if isinstance(value, torch.Tensor) else ""
            flags = ("F" if info.is_required_fw(n) else ".") + ("S" if n in saved else ".") + \
                    ("b" if n in banned else ".")
            args = ", ".join(str(a) for a in n.args) if n.op != "output" else str([str(a) for a in n.args[0]])
            lines.append(f"{flags} {n.name:30} {shape:28} {str(n.target):40} {args}")
        self.joint = "\n".join(lines) + "\n"
        return saved, banned

    def inner(self, graph, inputs, block=None, **kwargs):
        self.blocks.append(block)
        self.graphs.append((graph, kwargs.get("is_backward", False), kwargs.get("static_input_idxs", ())))
        count = len(self.texts)
        import copy
        try:
            compile_fx.compile_fx_inner(copy.deepcopy(graph), inputs, **kwargs)
        except Exception:
            if len(self.texts) == count:
                raise
        return make_boxed_func(graph.forward)

    def backend(self, graph, inputs):
        return compile_fx.compile_fx(graph, inputs, inner_compile=self.inner)

    def backend_of(self, block):
        """Which no other block shares: what is compiled of one is not used again for the next."""
        inner = functools.partial(self.inner, block=block)
        return lambda graph, inputs: compile_fx.compile_fx(graph, inputs, inner_compile=inner)

    def of_block(self, block):
        """What was recorded of it alone."""
        out = Recorder.__new__(Recorder)
        out.graphs, out.texts = ([x for x, b in zip(of, self.blocks) if b == block] for of in (self.graphs, self.texts))
        return out


def dtype_of(tensor):
    return str(tensor.dtype)[6:]


def placeholders(graph):
    return [n for n in graph.graph.nodes if n.op == "placeholder"]


def input_names(forward, static):
    """primals: parameters are what never moves."""
    names, parameters, others = {}, 0, 0
    for i, n in enumerate(placeholders(forward)):
        if i in static:
            names[n.name] = f"p{parameters}"
            parameters += 1
        else:
            names[n.name] = f"i{others}"
            others += 1
    return names


def described(recorder):
    """Of what nothing is trained in, and nothing before it, there is no backward."""
    forward, is_backward, static = recorder.graphs[0]
    assert not is_backward, "the first is of forward"
    names = input_names(forward, set(static))
    if len(recorder.graphs) == 1:
        return {"saved": [], "parameters": 0, "forward": Program(recorder.texts[0], names).events, "backward": []}
    backward, is_second, _ = recorder.graphs[1]
    assert is_second, "one forward and one backward graph"
    saved, parameters = [], 0
    back = {}
    for n in placeholders(backward):
        value = n.meta["val"]
        if n.name.startswith("tangents"):
            back[n.name] = f"t{sum(v[0] == 't' for v in back.values())}"
        elif names.get(n.name, "").startswith("p"):
            back[n.name] = names[n.name]
            parameters += 1
        else:
            back[n.name] = f"s{len(saved)}"
            saved.append([dtype_of(value), list(value.shape), "input" if n.name in names else ""])
    return {"saved": saved, "parameters": parameters,
            "forward": Program(recorder.texts[0], names).events,
            "backward": Program(recorder.texts[1], back).events}


def gathered(model):
    """The model as fully_shard leaves it in forward: weights in float8, each with its scale, parameters of
    torchao's class for both (fsdp_utils.py, fsdp_post_all_gather; FSDPParam.init_unsharded_param)."""
    from torchao.float8.float8_training_tensor import Float8TrainingTensor, GemmInputRole
    from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor
    for module in model.modules():
        w = getattr(module, "weight", None)
        if isinstance(w, WeightWithDynamicFloat8CastTensor):
            weight = Float8TrainingTensor(torch.empty(w.shape, dtype=w._dtype), torch.empty((), dtype=torch.float32),
                                          w.dtype, w._linear_mm_config, gemm_input_role=GemmInputRole.WEIGHT)
            module.weight = torch.nn.Parameter(weight, requires_grad=True)


def all_alike(model):
    """Parameters as FSDP2's mixed precision leaves them in forward: those in bf16, too, that transformers keeps in
    fp32 (_keep_in_fp32_modules), or that are declared so."""
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if p.dtype == torch.float32:
                setattr(module, name, torch.nn.Parameter(p.detach().to(torch.bfloat16), requires_grad=p.requires_grad))


TENSOR = torch.tensor


def number(value, **kwargs):
    """torch.tensor of a number, which makes a real one of it first."""
    return torch.full((), value, **kwargs) if isinstance(value, (int, float)) else TENSOR(value, **kwargs)


def lists_as_tensors(m):
    """Of a model that indexes by lists of one number, which are tensors made of real ones first: full ones, as the
    compiler folds those."""
    if m.get("model_type") != "falcon":
        return contextlib.nullcontext()
    from transformers.models.falcon import modeling_falcon
    attention = modeling_falcon.FalconAttention
    text = textwrap.dedent(inspect.getsource(attention._split_heads))
    for number_ in (-1, -2):
        text = text.replace(f"[{number_}]", f'torch.full((1,), {number_}, dtype=torch.int64, device="cuda:0")')
    scope = vars(modeling_falcon).copy()
    exec(compile(text, "split_heads", "exec"), scope)
    return unittest.mock.patch.object(attention, "_split_heads", scope["_split_heads"])


def masks_of_numbers(m):
    """Of a model that adds its masks: they are made of numbers, outside of its blocks."""
    return unittest.mock.patch("torch.tensor", number) if m.get("model_type") in ("gemma2", "gpt_neo") else contextlib.nullcontext()


def record(name, m, s, joint=None):
    torch._dynamo.reset()
    recorder = Recorder()
    models.RMSNorm = lambda dim: torch.nn.RMSNorm(dim, eps=1e-5)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode, torch.device("cuda:0"), models.as_on_cuda(), masks_of_numbers(m):
            model, blocks = models.make(m, s)
            if s.get("float8_all_gather"):
                gathered(model)
            if s["store_dtype"] == "bf16":
                all_alike(model)
            for p in recorder_of.matching(model, s.get("freeze")):
                p.requires_grad_(False)
            apart = is_frozen(s)
            if s.get("ac"):
                blocks = models.checkpointed(model, blocks, s["ac"], True)
            for i, block in enumerate(blocks):
                block.compile(backend=recorder.backend_of(i) if apart else recorder.backend, fullgraph=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=s.get("autocast") == "bf16"):
                if s.get("code") == "hf":
                    loss = model(**models.make_inputs(m, s)).loss
                else:
                    tokens, targets = models.make_inputs(m, s)
                    loss = models.loss_of(model(tokens), targets)
            loss.backward()
        row = {"name": name, "model": m, "strategy": s}
        if apart:
            rows = [{**row, "part": i, "parts": len(blocks), **described(recorder.of_block(i))} for i, _ in enumerate(blocks)]
        else:
            rows = [{**row, **described(recorder)}]
    finally:
        partitioners.solve_min_cut = recorder.solve
        if joint:
            pathlib.Path(joint, name + ".txt").write_text(recorder.joint or "")
            for text, way in zip(recorder.texts, ("forward", "backward")):
                pathlib.Path(joint, f"{name}.{way}.py").write_text(text)
            for i, graph in enumerate(recorder.graphs):
                pathlib.Path(joint, f"{name}.{i}.graph").write_text(str(graph[0].graph))
    return rows


def is_frozen(s):
    """Whether blocks may differ in what is trained, and in whether what comes to them has a gradient."""
    return bool(s.get("freeze") or s.get("lora"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--check")
    parser.add_argument("--only")
    parser.add_argument("--float8", action="store_true", help="the cases in float8, which need torchao")
    parser.add_argument("--moe", action="store_true", help="the cases that are mixtures of experts")
    parser.add_argument("--frozen", action="store_true", help="the cases with adapters and frozen parameters, which need peft")
    parser.add_argument("--joint", help="also writes each joint graph and program there, to be read")
    args = parser.parse_args()
    pretend_gpu()
    if args.check:
        wrong = 0
        for line in open(args.check):
            row = json.loads(line)
            same = row in record(row["name"], row["model"], row["strategy"])
            wrong += not same
            print(row["name"], "same" if same else "DIFFERS")
        return wrong > 0
    rows = []
    for name, m, s in FLOAT8_CASES if args.float8 else FROZEN_CASES if args.frozen else MOE_CASES if args.moe else CASES:
        if args.only and not fnmatch.fnmatch(name, args.only):
            continue
        try:
            made = record(name, m, s, args.joint)
            rows += made
            print(name, *[len(row["saved"]) for row in made], "saved", flush=True)
        except Exception as error:
            if not args.joint:
                raise
            import traceback
            traceback.print_exc(limit=-12)
            print(name, "FAILED", str(error)[:500], flush=True)
    if args.out:
        with open(args.out, "w") as f:
            for row in rows:
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
