"""torchtitan's own classes of models (strategy.code "torchtitan"), of the package in PYTHONPATH.

The model of a row is said in the keys of a Hugging Face config.json, as a user of `--code torchtitan` says it; here they become
the model's own arguments. Recorded was v0.2.2 (73a0e6979, February 2026), whose attention is scaled_dot_product_attention.

Packages are taken without their __init__, which asks for what trains (data loaders, a command line); kernels of Triton's
launch nothing.
"""
import importlib
import importlib.util
import sys
import types

import torch
from torch._subclasses import fake_impls

PACKAGES = ("torchtitan", "torchtitan.components", "torchtitan.config", "torchtitan.models", "torchtitan.models.qwen3",
            "torchtitan.models.deepseek_v3", "torchtitan.models.llama4", "torchtitan.protocols")
STANDS_FOR = {      # names that annotations alone use
    "torchtitan.config": ("JobConfig",),
    "torchtitan.components.tokenizer": ("BaseTokenizer",),
    "torchtitan.protocols.train_spec": ("ModelProtocol",),
}


def bare(name):
    module = types.ModuleType(name)
    module.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
    sys.modules[name] = module


def prepare():
    """What a machine without a GPU lacks, and what recording does without."""
    if "torchtitan" in sys.modules:
        return
    for name in PACKAGES:
        bare(name)
    for name, names in STANDS_FOR.items():
        module = sys.modules.setdefault(name, types.ModuleType(name))
        for attribute in names:
            setattr(module, attribute, type(attribute, (), {}))
    train_spec = sys.modules["torchtitan.protocols.train_spec"]
    train_spec.BaseModelArgs = importlib.import_module("torchtitan.protocols.model").BaseModelArgs

    class ModelProtocol(torch.nn.Module):
        def __init__(self, model_args):
            super().__init__()

    train_spec.ModelProtocol = ModelProtocol
    sys.modules["torchtitan.protocols"].BaseModelArgs = train_spec.BaseModelArgs
    kernels = importlib.import_module("torchtitan.models.moe.kernels")
    kernels._fill_indices_kernel = types.SimpleNamespace(__class_getitem__=None)
    kernels._fill_indices_kernel = Launched()
    fake_impls.register_op_impl(torch.ops.aten.histc.default)(histogram)


class Launched:
    """A kernel of Triton's: called on a grid, it does nothing."""

    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


def histogram(mode, func, x, bins=100, min=0, max=0):
    """histc as CUDA has it, of integers, too."""
    return x.new_empty((bins,))


def parts(name):
    """(the module of arguments, that of the model, the class of a mixture's arguments)"""
    return (importlib.import_module(f"torchtitan.models.{name}.model.args"),
            importlib.import_module(f"torchtitan.models.{name}.model.model"),
            importlib.import_module("torchtitan.models.moe").MoEArgs)


def qwen3_moe(m, seq):
    args, model, mixture = parts("qwen3")
    return model.Qwen3Model(args.Qwen3ModelArgs(
        dim=m["hidden_size"], n_layers=m["num_hidden_layers"], n_heads=m["num_attention_heads"],
        n_kv_heads=m["num_key_value_heads"], vocab_size=m["vocab_size"], head_dim=m["head_dim"], max_seq_len=seq,
        enable_weight_tying=m.get("tie_word_embeddings", False), moe_enabled=True, moe_inter_dim=m["moe_intermediate_size"],
        moe_args=mixture(num_experts=m["num_experts"], num_shared_experts=0, top_k=m["num_experts_per_tok"],
                         score_func="softmax", route_norm=m.get("norm_topk_prob", False), score_before_experts=False)))


def deepseek(m, seq, score, groups):
    args, model, mixture = parts("deepseek_v3")
    arguments = args.DeepSeekV3ModelArgs(
        max_seq_len=seq, vocab_size=m["vocab_size"], dim=m["hidden_size"], inter_dim=m["intermediate_size"],
        moe_inter_dim=m["moe_intermediate_size"], n_layers=m["num_hidden_layers"], n_dense_layers=m["first_k_dense_replace"],
        n_heads=m["num_attention_heads"], q_lora_rank=m["q_lora_rank"] or 0, kv_lora_rank=m["kv_lora_rank"],
        qk_nope_head_dim=m["qk_nope_head_dim"], qk_rope_head_dim=m["qk_rope_head_dim"], v_head_dim=m["v_head_dim"],
        moe_args=mixture(num_experts=m["n_routed_experts"], num_shared_experts=m["n_shared_experts"],
                         top_k=m["num_experts_per_tok"], score_func=score, route_norm=m["norm_topk_prob"],
                         route_scale=m["routed_scaling_factor"], score_before_experts=False,
                         num_expert_groups=m["n_group"] if groups else None,
                         num_limited_groups=m["topk_group"] if groups else None))
    arguments.moe_impl = "standard"         # as update_from_config says
    return model.DeepSeekV3Model(arguments)


def deepseek_v3(m, seq):
    return deepseek(m, seq, "sigmoid", m["n_group"] > 1)


def deepseek_v2(m, seq):
    return deepseek(m, seq, "softmax", m["topk_method"] != "greedy")


def llama4(m, seq):
    """Without irope; widths come out of the hidden size, and have to be the row's."""
    args, model, mixture = parts("llama4")
    made = model.Transformer(args.TransformerModelArgs(
        dim=m["hidden_size"], n_layers=m["num_hidden_layers"], n_heads=m["num_attention_heads"], multiple_of=8,
        n_kv_heads=m["num_key_value_heads"], vocab_size=m["vocab_size"], max_seq_len=seq,
        interleave_moe_layer_step=m["interleave_moe_layer_step"],
        moe_args=mixture(num_experts=m["num_local_experts"], top_k=m["num_experts_per_tok"])))
    for layer in made.layers.values():
        width = layer.moe.experts.w1.shape[1] if layer.moe_enabled else layer.feed_forward.w1.out_features
        assert width == m["intermediate_size" if layer.moe_enabled else "intermediate_size_mlp"], width
    return made


MODELS = {"llama4_text": llama4, "qwen3_moe": qwen3_moe, "deepseek_v3": deepseek_v3, "deepseek_v2": deepseek_v2}


def make(m):
    prepare()
    model = MODELS[m["model_type"]](m, m["seq"])
    return model.train(), list(model.layers.values())


def apply_compile(blocks, backend):
    """models/llama4/infra/parallelize.py, apply_compile, which those of qwen3 and deepseek_v3 call, too: blocks with
    experts are eager, and compiled are what they call but the experts, and of a mixture's the same; of the experts the
    function that multiplies. The mixture itself (sending rows to experts and back) stays eager, as do checkpoints
    around such blocks. A block without experts is compiled whole, with its checkpoint."""
    moe = importlib.import_module("torchtitan.models.moe.moe")
    torch._dynamo.config.capture_scalar_outputs = True
    for block in blocks:
        inside = getattr(block, "_checkpoint_wrapped_module", block)
        if not inside.moe_enabled:
            block.compile(backend=backend, fullgraph=True)
            continue
        parts = [part for part in inside.children() if not isinstance(part, moe.MoE)]
        parts += [part for name, part in inside.moe.named_children() if name != "experts"]
        for part in parts:
            part.compile(backend=backend, fullgraph=True)
    grouped = getattr(moe._run_experts_grouped_mm, "__wrapped__", moe._run_experts_grouped_mm)
    moe._run_experts_grouped_mm = torch.compile(grouped, backend=backend, fullgraph=True)
