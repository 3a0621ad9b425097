#!/usr/bin/env python3
"""Record what PyTorch FSDP2 allocates, event by event.

One training step of a model under the real `torch.distributed.fsdp.fully_shard` is run on one
rank of a world of N.  Tensors are fake (FakeTensorMode: shapes and storages, no data) and the
process group is fake (collectives do nothing), so any model and any world size run on a laptop.
Every storage birth (+bytes), resize and death (-bytes) of the SECOND step (steady state:
optimizer states exist) is logged in host order.  Bytes are requested bytes, with no allocator
rounding; streams and memory inside kernels are not seen.

Usage
    record.py --config CONFIGS.jsonl --out OUT.jsonl [--only NAME ...] [--no-events]
    record.py --check TRUTH.jsonl [TRUTH.jsonl ...]   record again and compare with recordings

A configuration is one JSON object a line:
    {"name": ..., "model": {...}, "strategy": {...}}
model.kind: llama | gpt2 | guide (small hand-written modules, below), or, with strategy.code "hf",
model.model_type: gpt2 | opt | gpt_neox | llama | mistral | qwen2 | qwen3 | mixtral | bert | t5
(classes of Hugging Face transformers; the other fields are fields of their config class, plus
batch, seq).
strategy: world, rank, replicate, units (blocks+root | torchtitan), blocks_per_unit,
reshard (default | always | never | int), forward_prefetch, backward_prefetch, param_dtype,
reduce_dtype, store_dtype, ac (full | selective), ac_early_stop (default true), accumulate, no_sync, clip,
optimizer (adamw_foreach | adamw_fused | adamw_loop | sgd), code (hf).

An output line has the fields of the configuration and
    parameters        number of parameters
    parameter_list    [[name, [shape]], ...] in registration order (code hf only)
    peak_bytes, peak_at, peak_categories, live, segment_peaks, events (their count)
    event_list        [+-bytes, category, where, "op [shape] dtype"] of the birth of that storage

Deviations from a GPU run, on purpose: tensors live on the fake device "cpu" (FSDP needs no
streams there); the fused kernels that only CUDA has are called or imitated explicitly: flash
attention is the ATen op itself, RMSNorm is an autograd Function that allocates what the CUDA kernel
allocates (output and fp32 rstd; input and weight gradient).
"""
import argparse
import collections
import contextlib
import gc
import json
import sys
import traceback
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_init as fsdp_init
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp_group
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp_api
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, None: None}


# --------------------------------------------------------------------------------------------
# The log: storages by weak reference, phases and places by a stack
# --------------------------------------------------------------------------------------------

class Log:
    """Live storages and, while `recording`, the list of events."""

    def __init__(self):
        self.place = ["init"]          # phase, then the FSDP calls the host is in
        self.alive = {}                # storage key -> [bytes, category, birth label]
        self.refs = {}                 # storage key -> weakref with the death callback
        self.events = []
        self.live = 0
        self.recording = False
        self.tracking = True
        self.peak = -1
        self.peak_at = None
        self.peak_categories = {}
        self.peak_rounded = -1
        self.segment = None            # its peak counts from its first event on
        self.segment_peaks = {}
        self.rounded = 0
        self._resize = torch.UntypedStorage.resize_

    def category(self):
        names = [p.split("[")[0] for p in self.place[1:]]
        if "post_backward" in names:
            return "reduce_scatter"
        if "wait_for_unshard" in names:
            return "unsharded_param"
        if "unshard" in names:
            return "all_gather"
        return {"fwd": "activation", "bwd": "backward", "opt": "optimizer"}.get(self.place[0], "init")

    def change(self, delta, category, label, call=None):
        self.live += delta
        up = (abs(delta) + 511) // 512 * 512
        self.rounded += up if delta > 0 else -up
        if not self.recording:
            return
        self.events.append([delta, category, "/".join(self.place), label])
        if self.live > self.peak:
            self.peak = self.live
            self.peak_at = "/".join(self.place) + " " + (call or label.split(" [")[0])
            sums = collections.Counter()
            for size, cat, _ in self.alive.values():
                sums[cat] += size
            self.peak_categories = {k: v for k, v in sums.items() if v}
        self.peak_rounded = max(self.peak_rounded, self.rounded)
        if self.segment:
            self.segment_peaks[self.segment] = max(self.segment_peaks.get(self.segment, 0), self.live)

    def birth(self, tensor, label):
        st = tensor.untyped_storage()
        key = id(st)
        ref = self.refs.get(key)
        if ref is not None and ref() is st:
            return
        size = st.nbytes()
        self.refs[key] = weakref.ref(st, lambda _, key=key: self.death(key))
        cat = self.category()
        self.alive[key] = [size, cat, label]
        if size:
            self.change(size, cat, label)

    def death(self, key):
        self.refs.pop(key, None)
        entry = self.alive.pop(key, None)
        if entry and entry[0] and self.tracking:
            self.change(-entry[0], entry[1], entry[2])

    def resized(self, st, new):
        entry = self.alive.get(id(st))
        if entry is None or self.refs[id(st)]() is not st:
            return
        delta, entry[0] = new - entry[0], new
        if delta:
            self.change(delta, entry[1], entry[2], "resize_")

    def recategorize(self, tensor, category):
        entry = self.alive.get(id(tensor.untyped_storage()))
        if entry:
            entry[1] = category

    def forget(self, category):
        for key in [k for k, entry in self.alive.items() if entry[1] == category]:
            size = self.alive.pop(key)[0]
            self.live -= size
            self.rounded -= (size + 511) // 512 * 512

    def patch(self):
        log = self

        def resize_(st, size):
            out = log._resize(st, size)
            log.resized(st, size)
            return out

        torch.UntypedStorage.resize_ = resize_

    def unpatch(self):
        torch.UntypedStorage.resize_ = self._resize


LOG = None


class Births(TorchDispatchMode):
    """Every storage that an ATen call returns for the first time is a birth."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        if func is torch.ops.aten._local_scalar_dense.default and args[0].dtype == torch.bool:
            return True     # transformers asks whether masks are all ones and sequences not packed
        out = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.").removesuffix(".default")
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor) and not isinstance(t, DTensor):
                LOG.birth(t, f"{name} {list(t.shape)} {str(t.dtype).removeprefix('torch.')}")
        return out


TAIL = [None]       # label of the group that torchtitan makes of norm and output


def placed(name, method):
    """The method, with its name and the group's label on the stack of places."""
    def call(self, *args, **kwargs):
        if LOG is None:
            return method(self, *args, **kwargs)
        LOG.place.append(f"{name}[{self._module_fqn or 'root'}]")
        if name == "pre_backward" and LOG.segment == "backward_head" and self._module_fqn not in ("", None, TAIL[0]):
            LOG.segment = "backward_blocks"
        try:
            return method(self, *args, **kwargs)
        finally:
            LOG.place.pop()
    return call


for _name in ("unshard", "wait_for_unshard", "reshard", "pre_backward", "post_backward"):
    setattr(fsdp_group.FSDPParamGroup, _name, placed(_name, getattr(fsdp_group.FSDPParamGroup, _name)))
_foreach_reduce = fsdp_group.foreach_reduce


def foreach_reduce(*args, **kwargs):
    if LOG is None:
        return _foreach_reduce(*args, **kwargs)
    LOG.place.append("foreach_reduce")
    try:
        return _foreach_reduce(*args, **kwargs)
    finally:
        LOG.place.pop()


fsdp_group.foreach_reduce = foreach_reduce


# --------------------------------------------------------------------------------------------
# The models
#
# Python frees the locals of a returning function first to last up to 3.13, last to first from 3.14
# on.  The recordings were made with the latter; the `del` lines give that order everywhere.
# --------------------------------------------------------------------------------------------

class FusedRMSNorm(torch.autograd.Function):
    """Allocates what the CUDA kernels of _fused_rms_norm allocate."""

    @staticmethod
    def forward(ctx, x, w):
        y = torch.empty_like(x)
        rstd = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, w, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, rstd = ctx.saved_tensors
        grads = torch.empty_like(x), torch.empty_like(w)
        del rstd, w, x
        return grads


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return FusedRMSNorm.apply(x, self.weight)


def attention(q, k, v):
    """Causal attention of (batch, heads, seq, head) tensors by the flash op."""
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]


def rotate(x, freqs):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * freqs).flatten(3).type_as(x)


def repeat_kv(x, n):
    if n == 1:
        return x
    b, s, h, d = x.shape
    return x[:, :, :, None, :].expand(b, s, h, n, d).reshape(b, s, h * n, d)


class LlamaAttention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv = m["heads"], m.get("kv_heads", m["heads"])
        self.head = m["dim"] // m["heads"]
        self.wq = nn.Linear(m["dim"], self.heads * self.head, bias=False)
        self.wk = nn.Linear(m["dim"], self.kv * self.head, bias=False)
        self.wv = nn.Linear(m["dim"], self.kv * self.head, bias=False)
        self.wo = nn.Linear(self.heads * self.head, m["dim"], bias=False)

    def forward(self, x, freqs):
        b, s, _ = x.shape
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        q = q.view(b, s, self.heads, self.head)
        k = k.view(b, s, self.kv, self.head)
        v = v.view(b, s, self.kv, self.head)
        q, k = rotate(q, freqs), rotate(k, freqs)
        many = repeat_kv(k, self.heads // self.kv), repeat_kv(v, self.heads // self.kv)
        k = many[0]
        v = many[1]
        del many
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        o = attention(q, k, v)
        o = o.transpose(1, 2).contiguous().view(b, s, -1)
        y = self.wo(o)
        del o, v, k, q
        return y


class LlamaFeedForward(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.w1 = nn.Linear(m["dim"], m["ffn"], bias=False)
        self.w2 = nn.Linear(m["ffn"], m["dim"], bias=False)
        self.w3 = nn.Linear(m["dim"], m["ffn"], bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class LlamaBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.attention = LlamaAttention(m)
        self.feed_forward = LlamaFeedForward(m)
        self.attention_norm = RMSNorm(m["dim"])
        self.ffn_norm = RMSNorm(m["dim"])

    def forward(self, x, freqs):
        h = x + self.attention(self.attention_norm(x), freqs)
        y = self.ffn_norm(h)
        z = h + self.feed_forward(y)
        del y, h
        return z


class Llama(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.tok_embeddings = nn.Embedding(m["vocab"], m["dim"])
        half = m["dim"] // m["heads"] // 2
        self.register_buffer("freqs", torch.empty(1, m["seq"], 1, half, dtype=torch.complex64), persistent=False)
        self.layers = nn.ModuleList(LlamaBlock(m) for _ in range(m["layers"]))
        self.norm = RMSNorm(m["dim"])
        self.output = nn.Linear(m["dim"], m["vocab"], bias=False)

    def blocks(self):
        return list(self.layers)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.freqs)
        return self.output(self.norm(x))


class GPT2Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        dim = m["dim"]
        self.heads = m["heads"]
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.c_attn = nn.Linear(dim, 3 * dim)
        self.c_proj = nn.Linear(dim, dim)
        self.c_fc = nn.Linear(dim, 4 * dim)
        self.c_out = nn.Linear(4 * dim, dim)

    def attention(self, x):
        b, s, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, s, self.heads, c // self.heads).transpose(1, 2)
        k = k.view(b, s, self.heads, c // self.heads).transpose(1, 2)
        v = v.view(b, s, self.heads, c // self.heads).transpose(1, 2)
        y = attention(q, k, v)
        z = self.c_proj(y.transpose(1, 2).contiguous().view(b, s, c))
        del y, v, k, q
        return z

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.wte = nn.Embedding(m["vocab"], m["dim"])
        self.wpe = nn.Embedding(m["seq"], m["dim"])
        self.h = nn.ModuleList(GPT2Block(m) for _ in range(m["layers"]))
        self.ln_f = nn.LayerNorm(m["dim"])
        self.lm_head = nn.Linear(m["dim"], m["vocab"], bias=False)
        if m.get("tied", True):
            self.lm_head.weight = self.wte.weight

    def blocks(self):
        return list(self.h)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class GuideBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        dim = m["dim"]
        self.attention = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Guide(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab"], m["dim"])
        self.layers = nn.ModuleList(GuideBlock(m) for _ in range(m["layers"]))
        self.output = nn.Linear(m["dim"], m["vocab"])

    def blocks(self):
        return list(self.layers)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


KINDS = {"llama": Llama, "gpt2": GPT2, "guide": Guide}


# --------------------------------------------------------------------------------------------
# Hugging Face transformers' own classes (strategy.code "hf")
# --------------------------------------------------------------------------------------------

HF = {  # model_type -> (model class, config class, paths of the lists of blocks)
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", ["transformer.h"]),
    "opt": ("OPTForCausalLM", "OPTConfig", ["model.decoder.layers"]),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", ["gpt_neox.layers"]),
    "llama": ("LlamaForCausalLM", "LlamaConfig", ["model.layers"]),
    "mistral": ("MistralForCausalLM", "MistralConfig", ["model.layers"]),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", ["model.layers"]),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", ["model.layers"]),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", ["model.layers"]),
    "bert": ("BertForMaskedLM", "BertConfig", ["bert.encoder.layer"]),
    "t5": ("T5ForConditionalGeneration", "T5Config", ["encoder.block", "decoder.block"]),
}
NOT_CONFIG = ("kind", "model_type", "batch", "seq", "experts_implementation")


def cuda_sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention with the choice of kernel made as on a CUDA device.

    Flash for 16-bit without a mask; else memory-efficient (which has no grouped heads); else math.
    (Hopper and later with a new cuDNN may prefer the cuDNN kernel; not modelled.)
    """
    aten = torch.ops.aten
    half = query.dtype in (torch.bfloat16, torch.float16)
    grouped = enable_gqa and query.size(1) != key.size(1)
    head = query.size(-1)
    if attn_mask is None and half and head <= 256:
        if scale is None:
            scale = head ** -0.5
        pad = -head % 8
        if pad:
            query, key, value = (F.pad(t, (0, pad)) for t in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return out[..., :head] if pad else out
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=query.dtype))
    if not grouped:
        if attn_mask is not None:
            if attn_mask.stride(-1) != 1 or any(n % 8 for n in attn_mask.stride()[:-1]):
                pad = 8 - attn_mask.size(-1) % 8
                attn_mask = F.pad(attn_mask, (0, pad))[..., :-pad]
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        logsumexp = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, logsumexp, dropout_p, is_causal, scale=scale)[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]


def cuda_dropout(input, p=0.5, training=True, inplace=False):
    """CUDA has one op for dropout that saves a mask of bools; the CPU has not."""
    if p == 0.0 or not training:
        return input
    return torch.native_dropout(input, p, True)[0]


@contextlib.contextmanager
def as_on_cuda():
    saved = F.scaled_dot_product_attention, F.dropout
    F.scaled_dot_product_attention, F.dropout = cuda_sdpa, cuda_dropout
    try:
        yield
    finally:
        F.scaled_dot_product_attention, F.dropout = saved


def hf_model(m):
    import transformers
    # fake tensors count as tracing there, which builds causal masks that a real run does without
    transformers.utils.import_utils.is_fake_tensor = lambda x: False
    model_class, config_class, paths = HF[m["model_type"]]
    fields = {k: v for k, v in m.items() if k not in NOT_CONFIG}
    config = getattr(transformers, config_class)(use_cache=False, **fields)
    config._attn_implementation = "sdpa"
    if m["model_type"] == "t5":
        config.decoder_start_token_id = config.pad_token_id
    if "experts_implementation" in m:
        config._experts_implementation = m["experts_implementation"]
    model = getattr(transformers, model_class)(config)
    return model.train(), [b for path in paths for b in model.get_submodule(path)]


def hf_inputs(m):
    ids = torch.zeros(m["batch"], m["seq"], dtype=torch.int64)
    return {"input_ids": ids, "labels": torch.zeros(m["batch"], m["seq"], dtype=torch.int64)}


# --------------------------------------------------------------------------------------------
# Sharding as the strategy says
# --------------------------------------------------------------------------------------------

def checkpointed(model, blocks, how, early_stop):
    """Wraps each block in place (same name) and returns the wrappers.

    selective = torchtitan's per-op policy: outputs of mm, addmm, bmm and attention are saved, but
    every second mm (counted in forward order within a block) is recomputed.
    """
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    kwargs = {"preserve_rng_state": False, "early_stop": early_stop}
    if how == "selective":
        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
        aten = torch.ops.aten
        saved = {aten.mm.default, aten.addmm.default, aten.bmm.default,
                 aten._scaled_dot_product_flash_attention.default,
                 aten._scaled_dot_product_efficient_attention.default,
                 aten._scaled_dot_product_cudnn_attention.default}

        def contexts():
            count = collections.Counter()

            def policy(ctx, func, *args, **kwargs):
                if func == aten.mm.default:
                    mode = "recompute" if ctx.is_recompute else "forward"
                    count[mode] += 1
                    if count[mode] % 2 == 0:
                        return CheckpointPolicy.PREFER_RECOMPUTE
                return CheckpointPolicy.MUST_SAVE if func in saved else CheckpointPolicy.PREFER_RECOMPUTE
            return create_selective_checkpoint_contexts(policy)
        kwargs["context_fn"] = contexts
    out = []
    for block in blocks:
        wrapped = checkpoint_wrapper(block, **kwargs)
        for module in model.modules():
            for name, child in list(module.named_children()):
                if child is block and module is not wrapped:
                    setattr(module, name, wrapped)
        out.append(wrapped)
    return out


def make_mesh(world, replicate):
    if replicate > 1:
        return init_device_mesh("cpu", (replicate, world // replicate), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (world,))


def real_tensors(function):
    def call(*args, **kwargs):
        with _disable_current_modes():
            return function(*args, **kwargs)
    return call


for _module in (fsdp_api, fsdp_init):
    if hasattr(_module, "_get_post_forward_mesh_info"):
        _module._get_post_forward_mesh_info = real_tensors(_module._get_post_forward_mesh_info)


def shard(model, blocks, s):
    world, replicate = s["world"], s.get("replicate", 1)
    with _disable_current_modes():      # a mesh reads its own rank tensor
        mesh = make_mesh(world, replicate)
    how = s.get("reshard", "default")
    how = {"default": None, "always": True, "never": False}.get(how, how)
    kw = {"mesh": mesh, "reshard_after_forward": how}
    if s.get("param_dtype") or s.get("reduce_dtype"):
        kw["mp_policy"] = MixedPrecisionPolicy(param_dtype=DTYPES[s.get("param_dtype")],
                                               reduce_dtype=DTYPES[s.get("reduce_dtype")])
    TAIL[0] = None
    per = s.get("blocks_per_unit", 1)
    if s.get("units") == "torchtitan":
        fully_shard(model.tok_embeddings if hasattr(model, "tok_embeddings") else model.embedding, **kw)
    units = []
    for i in range(0, len(blocks), per):
        unit = blocks[i:i + per]
        fully_shard(unit if len(unit) > 1 else unit[0], **kw)
        units.append(unit[0])
    if s.get("units") == "torchtitan":
        tail = dict(kw)
        if how is None:
            tail["reshard_after_forward"] = False
        fully_shard([model.norm, model.output], **tail)
        TAIL[0] = "norm, output"
    fully_shard(model, **kw)
    n = s.get("forward_prefetch", 0)
    for i, unit in enumerate(units):
        if n and units[i + 1:i + 1 + n]:
            unit.set_modules_to_forward_prefetch(units[i + 1:i + 1 + n])
    n = s.get("backward_prefetch", 0)
    for i, unit in enumerate(units):
        if n and units[max(0, i - n):i]:
            unit.set_modules_to_backward_prefetch(units[max(0, i - n):i][::-1])
    return units


def make_optimizer(model, s):
    name = s.get("optimizer", "adamw_foreach")
    params = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(params, lr=1e-3, foreach=True)
    return torch.optim.AdamW(params, lr=1e-3, foreach=name == "adamw_foreach", fused=name == "adamw_fused")


# --------------------------------------------------------------------------------------------
# One recording
# --------------------------------------------------------------------------------------------

def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(0, 1))


def record(config):
    global LOG
    m, s = config["model"], config["strategy"]
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=s.get("rank", 0), world_size=s["world"])
    gc.collect()
    gc.disable()
    LOG = Log()
    LOG.patch()
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            with Births(), as_on_cuda() if s.get("code") == "hf" else contextlib.nullcontext():
                return run(config, m, s)
    finally:
        LOG.unpatch()
        LOG.tracking = False
        LOG = None
        gc.enable()


def run(config, m, s):
    torch.set_default_dtype(DTYPES[s.get("store_dtype")] or torch.float32)
    hf = s.get("code") == "hf"
    if hf:
        model, blocks = hf_model(m)
    else:
        model = KINDS[m["kind"]](m)
        blocks = model.blocks()
    torch.set_default_dtype(torch.float32)
    parameters = sum(p.numel() for p in model.parameters())
    parameter_list = [[n, list(p.shape)] for n, p in model.named_parameters()]
    if s.get("ac"):
        blocks = checkpointed(model, blocks, s["ac"], s.get("ac_early_stop", True))
    shard(model, blocks, s)
    del blocks
    optimizer = make_optimizer(model, s)
    if hf:
        inputs = hf_inputs(m)
    else:
        inputs = [torch.zeros(m["batch"], m["seq"], dtype=torch.int64) for _ in range(2)]
    tensors = list(inputs.values()) if hf else inputs
    live = {}
    steps = s.get("accumulate", 1)

    def step():
        for i in range(steps):
            last = i == steps - 1
            if steps > 1 and s.get("no_sync", True):
                model.set_requires_gradient_sync(last)
            LOG.place = ["fwd"]
            LOG.segment = "forward"
            if hf:
                loss = model(**inputs).loss
                live["after_logits"] = None
            else:
                logits = model(inputs[0])
                live["after_logits"] = LOG.live
                LOG.segment = "loss"
                loss = loss_of(logits, inputs[1])
                del logits
            live["after_forward"] = LOG.live
            LOG.place = ["bwd"]
            LOG.segment = "backward_head"
            loss.backward()
            del loss
            live["after_backward"] = LOG.live
        LOG.place = ["opt"]
        LOG.segment = "optimizer"
        if s.get("clip"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        live["after_step"] = LOG.live
        optimizer.zero_grad(set_to_none=True)
        live["end"] = LOG.live

    step()
    gc.collect()
    for p in model.parameters():
        LOG.recategorize(p.to_local() if isinstance(p, DTensor) else p, "sharded_param")
    for b in model.buffers():
        LOG.recategorize(b, "buffer")
    for t in tensors:
        LOG.recategorize(t, "input")
    for state in optimizer.state.values():
        for t in state.values():
            LOG.recategorize(t.to_local() if isinstance(t, DTensor) else t, "optimizer")
    LOG.forget("init")      # meshes
    start = LOG.live
    LOG.segment = None
    LOG.segment_peaks = {}
    LOG.recording = True
    step()
    LOG.recording = False
    LOG.tracking = False
    out = dict(config)
    out.pop("event_list", None)
    out["parameters"] = parameters
    if hf:
        out["parameter_list"] = parameter_list
    out["torch"] = torch.__version__
    out["peak_bytes"] = LOG.peak
    out["peak_bytes_rounded_512"] = LOG.peak_rounded
    out["peak_at"] = LOG.peak_at
    out["peak_categories"] = LOG.peak_categories
    out["live"] = {"start": start, **{k: live[k] for k in
                   ("after_logits", "after_forward", "after_backward", "after_step", "end")}}
    out["segment_peaks"] = LOG.segment_peaks
    out["events"] = len(LOG.events)
    out["event_list"] = LOG.events
    return out


NUMBERS = ("parameters", "peak_bytes", "peak_bytes_rounded_512", "peak_at", "live", "segment_peaks", "events")


def compare(truth, got):
    bad = [f"{k}: want {truth[k]} got {got[k]}" for k in NUMBERS if truth[k] != got[k]]
    if truth["peak_categories"] != got["peak_categories"]:
        bad.append(f"(categories: want {truth['peak_categories']} got {got['peak_categories']})")
    want, have = truth.get("event_list"), got["event_list"]
    if want:
        for i in range(max(len(want), len(have))):
            a = want[i] if i < len(want) else None
            b = have[i] if i < len(have) else None
            if a != b:
                bad.append(f"event {i}: want {a} got {b}")
                if len(bad) > 12:
                    break
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--out")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--no-events", action="store_true")
    parser.add_argument("--check", nargs="*")
    args = parser.parse_args()
    if args.check:
        for path in args.check:
            for line in open(path):
                truth = json.loads(line)
                if args.only and truth["name"] not in args.only:
                    continue
                try:
                    bad = compare(truth, record(truth))
                except Exception:
                    bad = [traceback.format_exc()]
                hard = [b for b in bad if not b.startswith("(")]
                print(("DIFF " if hard else "same ") + truth["name"], flush=True)
                for b in bad:
                    print("     " + b)
        return
    with open(args.out, "w") as out:
        for line in open(args.config):
            config = json.loads(line)
            if args.only and config["name"] not in args.only:
                continue
            try:
                row = record(config)
            except Exception:
                print("FAIL", config["name"], traceback.format_exc(), file=sys.stderr, flush=True)
                continue
            if args.no_events:
                row.pop("event_list")
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(row["name"], row["events"], row["peak_bytes"], flush=True)


if __name__ == "__main__":
    main()
