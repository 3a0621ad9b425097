"""The models that are recorded, their inputs, checkpoints and optimizers.

Small hand-written ones (`llama`, `gpt2`, `guide`) and classes of Hugging Face transformers.

Python frees the locals of a returning function first to last up to 3.13, last to first from 3.14
on.  The recordings were made with the latter; the `del` lines give that order everywhere.

Fused kernels that only CUDA has are called or imitated explicitly: flash attention is the ATen op
itself, RMSNorm's kernels are ones that allocate what CUDA's allocate (output and fp32 rstd; input and
weight gradient).
"""
import argparse
import collections
import dataclasses
import contextlib
import functools
import gzip
import importlib.util
import json
import math
import pathlib
import sys
import types
import unittest.mock
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

import classification
import cut
import fused_head
import grpo
import liger
import linear_attention
import lora_kernels
import preferences
import older_torch

linear_attention.without_kernels()
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, None: None}


def _fused_rms_norm(x, shape, weight, eps):
    return torch.empty_like(x), torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)


def _fused_rms_norm_backward(grad, x, shape, rstd, weight, mask):
    return tuple(torch.empty_like(t) if needed else None for t, needed in zip((x, weight), mask))


if older_torch.RMS_NORM_IS_FUSED:       # with kernels of a CPU's, the node that a GPU has is PyTorch's own
    LIBRARY = torch.library.Library("aten", "IMPL")
    for _function in (_fused_rms_norm, _fused_rms_norm_backward):
        LIBRARY.impl(_function.__name__, _function, "CPU")


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def attention(q, k, v):
    """Causal attention of (batch, heads, seq, head) tensors by the flash op, or in single ops."""
    if in_single_ops():
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if PREFERS_CUDNN[0]:
        return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)[0]
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]


@contextlib.contextmanager
def cudnn_without_statistics():
    """On CUDA the call makes a logsumexp where it is asked for it (MHA.cpp, run_cudnn_SDP_fprop); its shadow on fake tensors
    makes one always."""
    from torch._meta_registrations import meta__scaled_dot_product_cudnn_attention as shadow

    def asked(query, key, value, attn_bias, compute_log_sumexp, *args, **kwargs):
        out = list(shadow(query, key, value, attn_bias, compute_log_sumexp, *args, **kwargs))
        if not compute_log_sumexp:
            out[1] = torch.empty((*query.shape[:3], 0), dtype=torch.float32, device=query.device)
        return tuple(out)

    library = torch.library.Library("aten", "IMPL", "Meta")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("_scaled_dot_product_cudnn_attention", asked)
    try:
        yield
    finally:
        library._destroy()


PREFERS_CUDNN = [False]     # attention is chosen as on Hopper and GPUs of its kind (strategy.attention "cudnn")


def in_single_ops():
    """Whether sdpa_kernel leaves the math backend alone (strategy.attention "math"; nothing compiled has it)."""
    if torch.compiler.is_compiling():
        return False
    return not (torch.backends.cuda.flash_sdp_enabled() or torch.backends.cuda.mem_efficient_sdp_enabled())


@contextlib.contextmanager
def dropout_as_on_cuda():
    """ATen's own dropout, which it calls inside attention, is one kernel that saves a mask of bools."""
    library = torch.library.Library("aten", "IMPL")
    for key in ("AutogradCPU", "CPU"):
        library.impl("dropout", lambda x, p, train: torch.native_dropout(x, p, train)[0], key)
    try:
        yield
    finally:
        library._destroy()


@contextlib.contextmanager
def attention_by(s):
    """The kernels of scaled_dot_product_attention that a strategy names: "math", "cudnn" (all, cuDNN's first), or all but
    that (which are single ops, too, of grouped heads in fp32)."""
    with dropout_as_on_cuda():
        if s.get("attention") == "cudnn":
            with cudnn_without_statistics():
                PREFERS_CUDNN[0] = True
                yield
                PREFERS_CUDNN[0] = False
            return
        if s.get("attention") != "math":
            yield
            return
        from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel([SDPBackend.MATH]):
            yield


def rotate(x, freqs):
    z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(z * freqs).flatten(3).type_as(x)


def repeat_kv(x, n):
    if n == 1:
        return x
    b, s, h, d = x.shape
    return torch.unsqueeze(x, 3).expand(b, s, h, n, d).reshape(b, s, h * n, d)


class LlamaAttention(nn.Module):
    def __init__(self, m):
        super().__init__()
        LlamaAttention.fill(self, m)

    def fill(self, m):
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
        LlamaFeedForward.fill(self, m)

    def fill(self, m):
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


class FlatLlamaBlock(nn.Module):
    """The same without modules of its own for attention and feed-forward: ZeRO-3 hooks every module."""

    attention = LlamaAttention.forward
    feed_forward = LlamaFeedForward.forward
    forward = LlamaBlock.forward

    def __init__(self, m):
        super().__init__()
        LlamaAttention.fill(self, m)
        LlamaFeedForward.fill(self, m)
        self.attention_norm = RMSNorm(m["dim"])
        self.ffn_norm = RMSNorm(m["dim"])


class Llama(nn.Module):
    block = LlamaBlock

    def __init__(self, m):
        super().__init__()
        self.tok_embeddings = nn.Embedding(m["vocab"], m["dim"])
        half = m["dim"] // m["heads"] // 2
        self.register_buffer("freqs", torch.empty(1, m["seq"], 1, half, dtype=torch.complex64), persistent=False)
        self.layers = nn.ModuleList(self.block(m) for _ in range(m["layers"]))
        self.norm = RMSNorm(m["dim"])
        self.output = nn.Linear(m["dim"], m["vocab"], bias=False)
        if m.get("tied"):
            self.output.weight = self.tok_embeddings.weight

    def blocks(self):
        return list(self.layers)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.freqs)
        return self.output(self.norm(x))


class FlatLlama(Llama):
    block = FlatLlamaBlock


class LayerNorm(nn.LayerNorm):
    """nanoGPT's: its forward is its own, which Dynamo compiles by itself where the frame around it is not."""

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class GPT2Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        dim = m["dim"]
        self.heads = m["heads"]
        self.ln_1, self.ln_2 = LayerNorm(dim), LayerNorm(dim)
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
        y = y.transpose(1, 2).contiguous().view(b, s, c)
        z = self.c_proj(y)
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
        self.ln_f = LayerNorm(m["dim"])
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


KINDS = {"llama": Llama, "flat_llama": FlatLlama, "gpt2": GPT2, "guide": Guide}


# --------------------------------------------------------------------------------------------
# Hugging Face transformers' own classes (strategy.code "hf")
# --------------------------------------------------------------------------------------------

HF = {  # model_type -> (model class, config class, paths of the lists of blocks)
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", ["transformer.h"]),
    "opt": ("OPTForCausalLM", "OPTConfig", ["model.decoder.layers"]),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", "GPTBigCodeConfig", ["transformer.h"]),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", ["transformer.h"]),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", ["transformer.h"]),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoConfig", ["transformer.h"]),
    "falcon": ("FalconForCausalLM", "FalconConfig", ["transformer.h"]),
    "bloom": ("BloomForCausalLM", "BloomConfig", ["transformer.h"]),
    "mpt": ("MptForCausalLM", "MptConfig", ["transformer.blocks"]),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", ["gpt_neox.layers"]),
    "llama": ("LlamaForCausalLM", "LlamaConfig", ["model.layers"]),
    "mistral": ("MistralForCausalLM", "MistralConfig", ["model.layers"]),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", ["model.layers"]),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", ["model.layers"]),
    "mistral4": ("Mistral4ForCausalLM", "Mistral4Config", ["model.layers"]),    # which AutoModelForCausalLM has not
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", ["model.layers"]),
    "bert": ("BertForMaskedLM", "BertConfig", ["bert.encoder.layer"]),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", ["electra.encoder.layer"]),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", ["distilbert.transformer.layer"]),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", ["model.layers"]),
    "eurobert": ("EuroBertForMaskedLM", "EuroBertConfig", ["model.layers"]),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", ["roberta.encoder.layer"]),
    "xlm-roberta": ("XLMRobertaForMaskedLM", "XLMRobertaConfig", ["roberta.encoder.layer"]),
    "camembert": ("CamembertForMaskedLM", "CamembertConfig", ["roberta.encoder.layer"]),
    "t5": ("T5ForConditionalGeneration", "T5Config", ["encoder.block", "decoder.block"]),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", ["encoder.block", "decoder.block"]),
    "qwen2_vl_text": ("Qwen2VLForConditionalGeneration", "Qwen2VLConfig", ["model.language_model.layers"]),
    "qwen2_5_vl_text": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", ["model.language_model.layers"]),
    "qwen3_vl_text": ("Qwen3VLForConditionalGeneration", "Qwen3VLConfig", ["model.language_model.layers"]),
    "qwen3_vl_moe_text": ("Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeConfig", ["model.language_model.layers"]),
    "glm4v_text": ("Glm4vForConditionalGeneration", "Glm4vConfig", ["model.language_model.layers"]),
    "glm4v_moe_text": ("Glm4vMoeForConditionalGeneration", "Glm4vMoeConfig", ["model.language_model.layers"]),
    "glm_ocr_text": ("GlmOcrForConditionalGeneration", "GlmOcrConfig", ["model.language_model.layers"]),
    "paddleocr_vl_text": ("PaddleOCRVLForConditionalGeneration", "PaddleOCRVLConfig", ["model.language_model.layers"]),
    "qwen2_5_omni_text": ("Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniThinkerConfig", ["model.language_model.layers"]),
    "qwen3_omni_moe_text": ("Qwen3OmniMoeThinkerForConditionalGeneration", "Qwen3OmniMoeThinkerConfig", ["model.language_model.layers"]),
}
WHOLE = {name: classes[1] for name, classes in HF.items() if name.endswith("_text")}     # class around a text model
NOT_CONFIG = ("kind", "model_type", "batch", "seq", "sample_tokens", "padding_tokens", "prompt_tokens", "experts_implementation")


def hf_classes(model_type, whole=False):
    """Those of HF, or what AutoModelForCausalLM takes: a decoder whose blocks are model.layers. `whole`: of a model that
    sees or hears, whose text model's blocks are deeper."""
    import transformers
    if whole:
        from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES as names
        config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[model_type]
        inner = {"llama4": "language_model.model", "smolvlm": "model.text_model", "idefics3": "model.text_model"}
        return getattr(transformers, names[model_type]), config_class, [inner.get(model_type, "model.language_model") + ".layers"]
    if model_type in HF:
        model_class, config_class, paths = HF[model_type]
        return getattr(transformers, model_class), getattr(transformers, config_class), paths
    config_class = transformers.models.auto.configuration_auto.CONFIG_MAPPING[model_type]
    return transformers.AutoModelForCausalLM._model_mapping[config_class], config_class, ["model.layers"]


def lowered(tensor):
    """As autocast hands an argument to an operator of lower precision."""
    if tensor is None or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.get_autocast_dtype(tensor.device.type))


SDPA = F.scaled_dot_product_attention


def takes_cudnn(head, head_v, mask, dropout):
    """Whether cuDNN 9.24, which torch 2.14 comes with, has that forward and backward on Hopper and GB200's kind."""
    wide = (head, head_v) in ((192, 128), (256, 256)) or max(head, head_v) <= 128
    return (wide and head % 8 == 0 and head_v % 8 == 0 and dropout * 16 == int(dropout * 16)
            and (mask is None or not mask.requires_grad))


def cuda_sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """scaled_dot_product_attention with the choice of kernel made as on a CUDA device.

    Flash for 16-bit without a mask and with values as wide as keys; else memory-efficient (which has no
    grouped heads); else math. Where cuDNN's is preferred, that before all, with a mask, too, which needs no gradient
    (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, can_use_cudnn_attention).
    """
    aten = torch.ops.aten
    if in_single_ops():
        return SDPA(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if not query.is_meta and torch.is_autocast_enabled(query.device.type):      # meta has none
        # as a C++ call evaluates its arguments: from the last one
        attn_mask, value, key, query = (lowered(t) for t in (attn_mask, value, key, query))
    half = query.dtype in (torch.bfloat16, torch.float16)
    alike = query.size(1) == key.size(1)        # else they are grouped or, without enable_gqa, broadcast
    head = query.size(-1)
    if PREFERS_CUDNN[0] and half and takes_cudnn(head, value.size(-1), attn_mask, dropout_p) and (alike or enable_gqa):
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, torch.scalar_tensor(-65504.0, dtype=query.dtype))
        logsumexp = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, attn_mask, logsumexp, dropout_p, is_causal, scale=scale)[0]
    if attn_mask is None and half and head <= 256 and (alike or enable_gqa) and value.size(-1) == head:
        if scale is None:
            scale = head ** -0.5
        pad = -head % 8
        # what was cast is the caller's, until the call returns
        q, k, v = (F.pad(t, (0, pad)) if pad else t for t in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, scale=scale)[0]
        return out[..., :head] if pad else out
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=query.dtype))
    if alike:
        if attn_mask is not None:
            if attn_mask.stride(-1) != 1 or any(n % 8 for n in attn_mask.stride()[:-1]):
                pad = 8 - attn_mask.size(-1) % 8
                attn_mask = F.pad(attn_mask, (0, pad))[..., :-pad]
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        logsumexp = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, logsumexp, dropout_p, is_causal, scale=scale)[0]
    with torch.autocast(query.device.type, enabled=False):      # the call itself has cast: nothing inside it is
        out = aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    del attn_mask       # a local of the call, and casts are its caller's
    return out


def cuda_dropout(input, p=0.5, training=True, inplace=False):
    """CUDA has one op for dropout that saves a mask of bools; the CPU has not."""
    if p == 0.0 or not training:
        return input
    return torch.native_dropout(input, p, True)[0]


def fake_grouped_mm(x, y, offs):
    """The result of _grouped_mm in fp32, which CPU and CUDA have and the kernel of fake tensors has not."""
    shape = (x.shape[0], y.shape[2]) if y.dim() == 3 else (offs.shape[0], x.shape[0], y.shape[1])
    return x.new_empty(shape)


@contextlib.contextmanager
def as_on_cuda():
    saved = F.scaled_dot_product_attention, F.dropout
    F.scaled_dot_product_attention, F.dropout = cuda_sdpa, cuda_dropout
    try:
        yield
    finally:
        F.scaled_dot_product_attention, F.dropout = saved


def hf_config(config_class, model_type, fields):
    """Of the text model of one that sees: the whole's, with the smallest tower; or, where the row has its "text_config", all
    of it."""
    if "text_config" in fields:
        return config_class(use_cache=False, **{**fields, "text_config": {"use_cache": False, **fields["text_config"]}})
    if model_type not in WHOLE:
        return config_class(use_cache=False, **fields)
    text = {k: v for k, v in fields.items() if k != "tie_word_embeddings"}
    ears = {"audio_config": {"encoder_layers": 1}} if "omni" in model_type else {}
    layers = "num_hidden_layers" if model_type.startswith("paddleocr") else "depth"
    return config_class(text_config={"use_cache": False, **text}, vision_config={layers: 1}, **ears,
                        tie_word_embeddings=fields.get("tie_word_embeddings", False))


def without_tower(model):
    """A model that sees or hears, without what it does that with: calls by text alone never ask for it."""
    for part in ("visual", "audio_tower", "projector"):
        if hasattr(getattr(model, "model", None), part):
            setattr(model.model, part, None)
    return model


def is_beside_text(name):
    """A parameter of a tower, or of what joins it to the text model."""
    return not any(part in ("language_model", "text_model", "lm_head", "score") for part in name.split("."))


def hf_model(m, attention=None, s=None):
    import transformers
    # fake tensors count as tracing there, which builds causal masks that a real run does without
    transformers.utils.import_utils.is_fake_tensor = lambda x: False
    # which draws until all it drew is near enough: of what is fake nothing ever is
    torch.nn.init._no_grad_trunc_normal_ = lambda tensor, *args, **kwargs: tensor
    whole = "text_config" in m
    model_class, config_class, paths = hf_classes(m["model_type"], whole)
    fields = {k: v for k, v in m.items() if k not in NOT_CONFIG}
    classifies = s is not None and classification.wanted_by(s)
    if classifies:
        model_class, fields = classification.model_class(config_class), fields | classification.fields(s)
    config = hf_config(config_class, m["model_type"], fields)
    if attention == "flash-attn":
        config._attn_implementation = "flash_attention_2"
    else:
        config._attn_implementation = "sdpa" if model_class._supports_sdpa and attention != "eager" else "eager"
    if m["model_type"] == "t5":
        config.decoder_start_token_id = config.pad_token_id
    if "experts_implementation" in m:
        config._experts_implementation = m["experts_implementation"]
    model = model_class(config)
    if not whole:
        model = without_tower(model)
    elif (s or {}).get("tower") != "trained":
        for name, p in model.named_parameters():
            p.requires_grad_(not is_beside_text(name))
    if classifies:
        classification.made(model, s)
    return model.train(), [b for path in paths for b in model.get_submodule(path)]


def in_float8(model, s):
    """The model with torchao's Float8Linear in place of Linear but for the head, as torchtitan's Float8Converter
    does it: `float8` is the recipe (tensorwise, rowwise, rowwise_with_gw_hp)."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    config = Float8LinearConfig.from_recipe_name(s["float8"])
    if s.get("float8_all_gather"):
        config = dataclasses.replace(config, enable_fsdp_float8_all_gather=True)

    def wanted(module, name):
        return name not in ("output", "lm_head") and \
            module.in_features % 16 == 0 and module.out_features % 16 == 0
    return convert_to_float8_training(model, config=config, module_filter_fn=wanted)


def in_4bit(model, s):
    """The model as from_pretrained leaves it with a BitsAndBytesConfig: `load_in_4bit` is bnb_4bit_quant_type, quantised
    of the dtype that it is made in; double_quant, compute_dtype, quant_storage bnb_4bit's; skip_modules llm_int8_skip_modules, quantize_experts axolotl's
    quantize_moe_experts. `kbit`: peft's
    prepare_model_for_kbit_training casts everything else to fp32; cast_back: parameters that are cast to what they were, globs by
    commas."""
    import quantized
    return quantized.in_4bit(model, s["load_in_4bit"], s.get("double_quant", False),
                             DTYPES[s.get("compute_dtype")] or torch.float32,
                             DTYPES[s.get("quant_storage")] or torch.uint8, s.get("kbit", False), skipped(s), s.get("quantize_experts"),
                             s.get("cast_back"))


def skipped(s):
    """llm_int8_skip_modules: of skip_modules, by commas."""
    return s["skip_modules"].split(",") if s.get("skip_modules") else None


def in_8bit(model, s):
    """The same with load_in_8bit."""
    import eight_bits
    return eight_bits.in_8bit(model, s.get("kbit", False), skipped(s), s.get("cast_back"))


def settle_bits(s, log, model):
    """What is stored beside weights in few bits, as a plan has it."""
    if s.get("load_in_4bit"):
        import quantized
        quantized.settle(log, model)
    if s.get("load_in_8bit"):
        import eight_bits
        eight_bits.settle(log, model)


PREFIX = "base_model.model."     # of the names in a model that peft wraps


def adapted(model, s):
    """The model with peft's LoRA adapters, as users wrap it; everything else is frozen. `lora` is a
    rank and, by commas, names of layers, a regular expression of their paths, or all-linear (peft's own of the model type without);
    `lora_kernels` those of axolotl's (mlp, qkv, o, by commas); `lora_dtype` the adapters' (absent: the model's; peft's own choice for one of 16 bits is fp32), `lora_dropout` peft's."""
    import peft
    rank, _, targets = s["lora"].partition(",")
    if targets != "all-linear" and not set(targets) & set("*+?()[]{}|\\^$"):
        targets = targets.split(",") if targets else None
    config = peft.LoraConfig(r=int(rank), lora_alpha=8, lora_dropout=s.get("lora_dropout", 0.0), target_modules=targets,
                             task_type="SEQ_CLS" if classification.wanted_by(s) else "CAUSAL_LM")
    if s.get("lora_dtype"):
        torch.set_default_dtype(DTYPES[s["lora_dtype"]])
    # they are born where they belong, in their dtype: fake tensors cannot be moved in place
    with unittest.mock.patch.object(nn.Module, "to", lambda module, *_, **__: module):
        wrapped = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    return lora_kernels.apply(wrapped, s) if s.get("lora_kernels") else wrapped


def prepared(model, device="cuda"):
    """As Accelerator.prepare_model does it under bf16 (native_amp), before anything wraps or compiles the model:
    autocast, and what is returned in fp32, are its forward's own."""
    from accelerate.utils.operations import convert_outputs_to_fp32
    for around in (torch.autocast(device, torch.bfloat16), convert_outputs_to_fp32):
        model.forward = types.MethodType(around(model.forward.__func__), model)
    return model


def plain_name(name):
    """A name as the model has it without peft's wrapper."""
    return name.removeprefix(PREFIX)


# --------------------------------------------------------------------------------------------
# Whatever tools/record.py records
# --------------------------------------------------------------------------------------------

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tool():
    """tools/record.py as a module: the models are made as it makes them."""
    if "recording_tool" not in sys.modules:
        spec = importlib.util.spec_from_file_location("recording_tool", ROOT / "tools" / "record.py")
        sys.modules["recording_tool"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["recording_tool"])
    return sys.modules["recording_tool"]


def source_of(m):
    """(a function of batch and seq that gives model, inputs and loss; names of the units)"""
    header = json.loads(gzip.open(ROOT / m["recording"]).readline())
    file = m["source"].endswith(".py") or ".py:" in m["source"]
    args = argparse.Namespace(hf=None if file else str(ROOT / m["source"]), attention="auto",
                              source=str(ROOT / m["source"]), images=header["model"].get("images"),
                              image_size=header["model"].get("image_size"))
    return tool().load(args)[0], header["modules"]


def recorded_model(m):
    make, names = source_of(m)
    model, inputs, loss = make(m["batch"], m["seq"])
    model.recorded_inputs, model.recorded_loss = inputs, loss
    return model, [model.get_submodule(name) for name in names]


def hf_inputs(m):
    ids = torch.zeros(m["batch"], m["seq"], dtype=torch.int64)
    if m.get("sample_tokens"):      # padding-free: what a collator joins to one row
        positions = (torch.arange(m["seq"]) % m["sample_tokens"]).unsqueeze(0)
        return {"input_ids": ids, "labels": torch.zeros_like(ids), "position_ids": positions}
    inputs = {"input_ids": ids, "labels": torch.zeros(m["batch"], m["seq"], dtype=torch.int64)}
    if m.get("padding_tokens"):
        inputs["attention_mask"] = padded(m)
        inputs["labels"] = inputs["labels"].masked_fill(inputs["attention_mask"] == 0, -100)
    if m.get("prompt_tokens"):
        inputs["labels"][:, :m["prompt_tokens"]] = -100
    return inputs


def padded(m):
    """The mask of a batch of which the first sequence is the longest, and the others lack as many tokens each."""
    mask = torch.ones(m["batch"], m["seq"], dtype=torch.int64)
    shorter = mask[1:] if m["batch"] > 1 else mask
    each, more = divmod(m.get("padding_tokens", 0), len(shorter))
    for i, row in enumerate(shorter):
        row[m["seq"] - each - (i < more):] = 0
    return mask


def make(m, s):
    """The model and its list of blocks, in the dtype that the strategy stores parameters in."""
    torch.set_default_dtype(DTYPES[s.get("store_dtype")] or torch.float32)
    liger.undo()
    lora_kernels.undo()
    try:
        if s.get("code") == "recorded":
            return recorded_model(m)
        if s.get("code") == "hf":
            model, blocks = hf_model(m, s.get("attention"), s)
            if liger.wanted_by(s):
                liger.apply(model, m["model_type"], liger.wanted_by(s))
            if s.get("loss") == "cut-cross-entropy":
                cut.apply(model, m["model_type"])
            if s.get("loss") in fused_head.LOSSES:
                fused_head.apply(model, fused_head.outputs(s))
        elif s.get("code") == "torchtitan":
            import titan
            model, blocks = titan.make(m)
        else:
            model = KINDS[m["kind"]](m)
            blocks = model.blocks()
        if s.get("float8"):
            in_float8(model, s)
        if s.get("load_in_4bit"):
            in_4bit(model, s)
        if s.get("load_in_8bit"):
            in_8bit(model, s)
        return (adapted(model, s) if s.get("lora") else model), blocks
    finally:
        torch.set_default_dtype(torch.float32)


def make_inputs(m, s):
    """Keyword arguments of the model for Hugging Face's, (tokens, targets) otherwise."""
    if s.get("loss") == "dpo":
        return preferences.inputs(m, s)
    if s.get("loss") == "grpo":
        return grpo.inputs(m, s)
    if classification.wanted_by(s):
        return classification.inputs(m, s)
    if s.get("code") == "hf":
        return hf_inputs(m) | ({"fused_lm_head": True} if s.get("loss") == "fused-lm-head" else {})
    return [torch.zeros(m["batch"], m["seq"], dtype=torch.int64) for _ in range(2)]


def loss_of(logits, targets, which="eager"):
    """Of strategy.loss: on a copy of the logits in fp32, or on them as they are (direct)."""
    logits = logits.flatten(0, 1)
    return F.cross_entropy(logits if which == "direct" else logits.float(),
                           targets.flatten(0, 1))


def chosen(blocks, which):
    """Blocks of strategy.ac_blocks: all, the first K or a share of them, each K-th (as torchtitan's
    selective_ac_option counts: from one)."""
    kind, _, number = which.partition("-")
    if kind == "all":
        return list(blocks)
    if kind == "every":
        return [block for i, block in enumerate(blocks, 1) if i % int(number) == 0]
    if number.endswith("%"):
        return list(blocks)[:math.ceil(len(blocks) * int(number[:-1]) / 100)]
    return list(blocks)[:int(number)]


def reentrant(model, blocks, which):
    """The chosen blocks as transformers checkpoints them with use_reentrant: each calls its own forward by the
    checkpoint, and what the first is called with needs a gradient (PreTrainedModel.activation_checkpointing_enable)."""
    from torch.utils.checkpoint import checkpoint
    again = functools.partial(checkpoint, use_reentrant=True, preserve_rng_state=False)
    wanted = {id(block) for block in chosen(blocks, which)}
    if not hasattr(model, "enable_input_require_grads"):
        tokens = next(module for module in model.modules() if isinstance(module, nn.Embedding))
        tokens.register_forward_hook(lambda module, given, output: output.requires_grad_(True))
        for block in blocks:
            if id(block) in wanted:
                block.forward = functools.partial(again, block.forward)
        return blocks
    model.enable_input_require_grads()
    for block in blocks:
        if id(block) in wanted:
            block._gradient_checkpointing_func = again
            block.gradient_checkpointing = True
    return blocks


def wrapped_in_place(model, block, **keywords):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    wrapped = checkpoint_wrapper(block, **keywords)
    for module in model.modules():
        for name, child in list(module.named_children()):
            if child is block and module is not wrapped:
                setattr(module, name, wrapped)
    return wrapped


IN_PROGRAM = [False]    # of Inductor's, which calls products as mm.out: no policy has that


def checkpointed(model, blocks, how, early_stop, which="all", code=None):
    """Wraps each chosen block in place (same name) and returns the blocks, some of them wrappers.

    selective = torchtitan's per-op policy: outputs of mm, addmm, bmm, attention and max are saved, but
    every second mm (counted in forward order within a block) is recomputed. Of torchtitan's own models (code) addmm and
    bmm are, too. reentrant: see there.
    """
    if how == "reentrant":
        return reentrant(model, blocks, which)
    kwargs = {"preserve_rng_state": False, **older_torch.early_stop(early_stop)}
    if how == "selective":
        from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
        aten = torch.ops.aten
        saved = {aten.mm.default, aten.addmm.default, aten.bmm.default,
                 aten._scaled_dot_product_flash_attention.default,
                 aten._scaled_dot_product_efficient_attention.default,
                 aten._scaled_dot_product_cudnn_attention.default,
                 aten.max.default}      # float8's amax
        if code == "torchtitan":        # parallelize.py, _op_sac_save_list: no other product than mm
            saved -= {aten.addmm.default, aten.bmm.default}

        def contexts():
            count = collections.Counter()

            def policy(ctx, func, *args, **kwargs):
                if func == aten.mm.default and IN_PROGRAM[0]:
                    return CheckpointPolicy.PREFER_RECOMPUTE
                if func == aten.mm.default:
                    mode = "recompute" if ctx.is_recompute else "forward"
                    count[mode] += 1
                    if count[mode] % 2 == 0:
                        return CheckpointPolicy.PREFER_RECOMPUTE
                return CheckpointPolicy.MUST_SAVE if func in saved else CheckpointPolicy.PREFER_RECOMPUTE
            return create_selective_checkpoint_contexts(policy)
        kwargs["context_fn"] = contexts
    wanted = {id(block) for block in chosen(blocks, which)}
    return [wrapped_in_place(model, block, **kwargs) if id(block) in wanted else block for block in blocks]


def make_optimizer(model, s):
    name = s.get("optimizer", "adamw_foreach")
    params = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(params, lr=1e-3, foreach=True)
    if name.endswith("bit"):
        import optimizers
        return optimizers.make(model, params, name, s.get("embedding_bits", 32))
    return torch.optim.AdamW(params, lr=1e-3, foreach=name == "adamw_foreach", fused=name == "adamw_fused")

