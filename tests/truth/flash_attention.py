"""The package flash-attn without a GPU: what its kernels allocate (2.8.3; attn_implementation "flash_attention_2").

Its Python, which saves for backward and makes dq, dk and dv, is imported as it is (its sources unpacked, on PYTHONPATH); its extension is not
there: what that births is what csrc/flash_attn/flash_api.cpp does, mha_fwd and mha_bwd. The workspaces of the latter, which
are gone when it returns, and those of splits over keys, which few blocks of short sequences have, are left out.
"""
import contextlib
import sys
import types

import torch


def fwd(q, k, v, out, slopes, dropout, scale, causal, left, right, softcap, return_softmax, generator):
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32, device=q.device)
    probabilities = torch.empty(0, dtype=q.dtype, device=q.device)
    return out, lse, probabilities, torch.empty(2, dtype=torch.int64, device=q.device)


def varlen_fwd(q, k, v, out, ends_q, ends_k, used, leftpad, table, slopes, longest_q, longest_k, dropout, scale, zero, causal,
               left, right, softcap, return_softmax, generator):
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
    probabilities = torch.empty(0, dtype=q.dtype, device=q.device)
    return out, lse, probabilities, torch.empty(2, dtype=torch.int64, device=q.device)


def varlen_bwd(dout, q, k, v, out, lse, dq, dk, dv, ends_q, *rest):
    rows = q.shape[0] + 128 * (ends_q.numel() - 1)
    return dq, dk, dv, torch.empty(q.shape[1], rows, dtype=torch.float32, device=q.device)


def bwd(dout, q, k, v, out, lse, dq, dk, dv, *rest):
    rows = (q.shape[1] + 127) // 128 * 128
    return dq, dk, dv, torch.empty(q.shape[0], q.shape[2], rows, dtype=torch.float32, device=q.device)


found = 0       # what nonzero finds: samples that a row of tokens is joined of, tokens that are not padding; 0: not asked


def to_find(m):
    if m.get("padding_tokens"):
        return m["batch"] * m["seq"] - m["padding_tokens"]
    return -(-m["seq"] // m["sample_tokens"]) if m.get("sample_tokens") else 0


def of_one_sequence(is_packed):
    """Whose answer is in the data."""
    def asked(position_ids, batch_size):
        answer = is_packed(position_ids, batch_size)    # which lives as long as it is looked at
        return found > 1 and answer is not False
    return asked


def prepare():
    """Before anything is written down: what is made when it is imported is no part of a step."""
    if "flash_attn_2_cuda" in sys.modules:
        return
    extension = types.ModuleType("flash_attn_2_cuda")
    extension.fwd, extension.bwd, extension.varlen_fwd, extension.varlen_bwd = fwd, bwd, varlen_fwd, varlen_bwd
    sys.modules["flash_attn_2_cuda"] = extension
    import flash_attn.flash_attn_interface as interface
    for name in ("_flash_attn_forward", "_flash_attn_backward", "_flash_attn_varlen_forward", "_flash_attn_varlen_backward"):
        getattr(interface, name).register_kernel("cpu")(getattr(interface, name)._init_fn)
    from transformers import modeling_flash_attention_utils as utils
    from transformers.modeling_utils import PreTrainedModel
    utils.is_flash_attn_2_available = lambda **keywords: True
    utils._is_packed_sequence = of_one_sequence(utils._is_packed_sequence)
    PreTrainedModel._flash_attn_import_error = lambda self, **matrix: None
