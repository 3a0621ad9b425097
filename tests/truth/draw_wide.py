"""Random training jobs further out than draw.py's: every family of transformers that is planned and every recorded model of
tests/data/recorded, odd numbers of ranks, batches and tokens, what is frozen or ignored anywhere in a model, each setting beside
each other. `job(random.Random(...), system, name)` as draw.job."""
import functools
import importlib.util
import inspect
import re

import draw
import draw_newer
from beside import ROOT
from draw_models import layers_of, written

WORLDS = [1, 2, 3, 4, 5, 7, 8, 8, 9, 13, 24, 48, 100]
BATCHES = [1, 1, 2, 3, 5]
SEQS = [1, 2, 5, 8, 16, 17, 24, 33]
RECORDED = [    # name, batch, seq; a module of its own is build of its file
    ("bert", 2, 256), ("beit", 2, 64), ("containers", 2, 32), ("convnext", 2, 448), ("deepseek_v3", 2, 448), ("dinov2", 2, 448),
    ("dit", 2, 256), ("gemma2", 2, 448), ("gemma3", 2, 448), ("glm4_moe", 2, 448), ("gpt2", 2, 256), ("gpt_oss", 2, 448),
    ("llama", 2, 256), ("llama4", 2, 448), ("mamba2", 2, 448), ("mixtral", 2, 256), ("modernbert", 2, 448), ("olmo2", 2, 448),
    ("phi3", 2, 448), ("qwen3_moe", 2, 448), ("qwen3_next", 2, 448), ("resnet", 2, 448), ("segformer", 2, 448), ("smollm3", 2, 448),
    ("stablelm", 2, 448), ("swin", 2, 448), ("unet", 2, 256), ("vit", 2, 448), ("whisper", 2, 448), ("xlnet", 2, 64)]
TEXTS = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe", "glm_ocr", "paddleocr_vl", "qwen2_5_omni",
         "qwen3_omni_moe"}      # of which the text model is recorded
ENCODERS = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "opt", "t5", "mt5", "modernbert", "eurobert"}
GLOBS = {
    "llama": ["*w2*", "*attention.w[qk]*", "*norm.weight", "layers.1.*", "*layers.[!0]*", "norm.weight", "*.w[13].*", "*wo*,tok_emb*"],
    "gpt2": ["*.weight", "ln_f.*", "*c_fc*", "*ln_1*,*c_out*", "h.1.*,wte.*", "*c_attn.bias", "h.0.*,wpe.*"],
    "guide": ["*.weight", "*mlp.0*", "*norm1*", "layers.1.*", "*attention*", "output.bias", "embedding.*,layers.0.*"],
    "hf": ["*embed*,*wte*,*word_emb*", "*.1.*", "*k_proj*,*key*", "*.weight", "*lm_head*", "*mlp*,*fc*", "*norm*,*ln*", "*.[0-1].*",
           "*attn*", "*bias", "*o_proj*", "*experts*", "*.0.*,*embed*", "*down_proj*"]}


@functools.cache
def families():
    """The model types of planner/families that transformers has."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    names = set()
    for path in sorted((ROOT / "planner/families").glob("*.c")):
        names.update(re.findall(r'^    \.name = "([^"]+)"', path.read_text(), re.M))
    names = {name + "_text" if name in TEXTS else name for name in names}
    return sorted(name for name in names if name in CONFIG_MAPPING)


def settled(kind, fields):
    """What goes with what was drawn: windows where layers have them, RoPE's sections of heads of that size."""
    fields = dict(fields)
    if "sliding_attention" in fields.get("layer_types", []):
        fields.setdefault("sliding_window", 8)
        if "local_attention" in values_of(kind):        # a window by another name, which counts both sides
            fields["local_attention"] = 2 * fields.pop("sliding_window")
        if "use_sliding_window" in values_of(kind):
            fields["use_sliding_window"] = True
    if kind == "mistral4":      # whose queries are scaled by numbers of that object; a head is its two parts
        fields.pop("head_dim", None)
        fields["num_key_value_heads"] = fields["num_attention_heads"]
        if "rope_parameters" in fields:
            fields["rope_parameters"] = {"original_max_position_embeddings": 16, **fields["rope_parameters"], "llama_4_scaling_beta": 0.1}
    if kind in ("deepseek_v32", "glm_moe_dsa", "axk1"):     # whose queries have a latent always
        fields.pop("head_dim", None)
        fields["q_lora_rank"] = fields["q_lora_rank"] or 24
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    if kind == "mimo_v2_flash":     # twice as many heads of keys where a window is
        rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.334}
        fields.update(num_attention_heads=8, num_key_value_heads=2, head_dim=24, rope_parameters={
            "full_attention": rope, "sliding_attention": rope})
    if fields.get("pad_token_id", 0) is None and kind in ENCODERS:
        fields["pad_token_id"] = 0
    if kind.removesuffix("_text") in TEXTS:
        half = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
        part = {"partial_rotary_factor": 0.5} if kind.startswith("glm4v") else {}
        half //= 1 + len(part)
        if part and half % 2:
            raise ValueError("what turns is not even")
        sections = [half // 2 - 2 * (half // 6), half // 6, half // 6]
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections, **part}
    return fields


def values_of(kind):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    return CONFIG_MAPPING[kind]().to_dict()


def has_experts(kind):
    return any("expert" in key for key in values_of(kind))


def transformers(rng, mixtures):
    from small_models import drawn
    while True:
        kind = rng.choice(families())
        if not mixtures and has_experts(kind):
            continue
        try:
            return {"kind": "hf", "model_type": kind, "batch": rng.choice(BATCHES), "seq": rng.choice(SEQS), **settled(kind, drawn(kind, rng))}
        except Exception:       # the class refuses it
            continue


def recorded(rng):
    name, batch, seq = rng.choice(RECORDED)
    folder = ROOT / "tests/data/recorded"
    source = f"{name}.py:build" if (folder / f"{name}.py").exists() else name
    return {"source": f"tests/data/recorded/{source}", "recording": f"tests/data/recorded/{name}.stream.json.gz", "batch": batch,
            "seq": seq, "kind": "recorded"}


def model(rng, system):
    how = rng.random()
    if how < 0.25:
        m = written(rng)
        m["batch"] = rng.choice(BATCHES)
        if m["kind"] == "llama" and rng.random() < 0.3:
            m["tied"] = True
        return m
    return recorded(rng) if how > 0.85 and system != "real" else transformers(rng, system in ("fsdp2", "zero", "real"))


def lists_of(m):
    import models
    if m["kind"] != "hf":
        return {"gpt2": ["h"]}.get(m["kind"], ["layers"])
    return models.HF[m["model_type"]][2] if m["model_type"] in models.HF else ["model.layers"]


def of_recorded(rng, m, s):
    """What a recording in 16 bits has: no dtype and no frozen parameter besides its own."""
    for key in ("freeze", "lora", "lora_dropout", "lora_dtype", "ignore", "experts_replicate", "reshard_units", "unshard_in_backward_off", "ac_early_stop",
                "ac_blocks", "autocast", "loss", "attention", "keep_outputs"):
        s.pop(key, None)
    system = s.get("system", "fsdp2")
    if s.get("ac") == "selective" or system == "deepspeed":
        s.pop("ac", None)
    if system == "ddp":
        s["store_dtype"] = "bf16"
    elif system == "deepspeed":
        s["param_dtype"] = "bf16"
    else:
        s.pop("store_dtype", None)
        s.update(param_dtype="bf16", reduce_dtype=rng.choice(["fp32", "bf16", None]))
    if s.get("units") == "torchtitan":
        s.pop("units")
    if s.get("wrap") not in (None, "blocks", "none"):
        s.pop("wrap")
    s["code"] = "recorded"


def further(rng, m, s, system):
    """Over what draw.py has drawn."""
    divided = {"replicate", "zero_hpz_partition_size", "shard_dim", "experts_replicate"} & s.keys() or isinstance(s.get("reshard"), int)
    if not divided and system != "single" and rng.random() < 0.5:
        s["world"] = rng.choice(WORLDS)
    s["rank"] = rng.choice([0, s["world"] - 1, rng.randrange(s["world"])])
    if rng.random() < 0.15:
        s["accumulate"] = rng.choice([2, 5])
    if s.get("accumulate", 1) == 1:
        s.pop("last_only", None)
    if s.get("ac") and rng.random() < 0.2:
        s["ac_blocks"] = rng.choice(["first-99%", "first-34%", "every-2", "first-3"])
    if "lora" not in s and m["kind"] in GLOBS and rng.random() < 0.25:
        s["freeze"] = rng.choice(GLOBS[m["kind"]])
        if system == "fsdp1" and rng.random() < 0.8:
            s["use_orig_params"] = True
    if system in ("fsdp2", "fsdp1") and "lora" not in s and m["kind"] in GLOBS and rng.random() < 0.1:
        s["ignore"] = rng.choice(GLOBS[m["kind"]])
        if system == "fsdp1" and rng.random() < 0.6:
            s["use_orig_params"] = True
    if system != "zero" and m["kind"] in ("llama", "gpt2", "guide") and rng.random() < 0.15:
        s["loss"] = "direct"
    if rng.random() < 0.12:
        s["keep_outputs"] = rng.choice(["backward", "next"]) if m["kind"] == "hf" and system != "zero" else "backward"
    if m["kind"] == "hf" and rng.random() < 0.1:
        s["attention"] = rng.choice(["math", "eager"])
        if takes_flash_attn(m["model_type"]) and narrow(s) and m["seq"] > 1 and rng.random() < 0.8:
            s["attention"] = "flash-attn"
    if m["kind"] == "hf" and "attention" not in s and system != "real" and rng.random() < 0.15:
        s["attention"] = "cudnn"
    if system == "fsdp2" and m["kind"] == "hf" and s.get("reshard") != "never" and "blocks_per_unit" not in s and rng.random() < 0.15:
        names = [f"{path}.{i}" for path in lists_of(m) for i in range(layers_of(m) or 0)]
        kept = rng.sample(names, rng.randint(1, len(names))) if names else []
        if len(kept) > 1:
            s["reshard_units"] = {name: False for name in sorted(kept)}
    if system == "ddp" and s.get("autocast") and rng.random() < 0.3:
        s["store_dtype"] = rng.choice(["bf16", "fp32"])
    if m["kind"] == "hf" and has_experts(m["model_type"]) and s.get("param_dtype") == "fp16":    # no grouped products
        s["param_dtype"] = "bf16"
    if system == "zero" and rng.random() < 0.2:
        s["grad_accum_dtype"] = "fp32"
    if m["kind"] == "hf" and "keep_outputs" not in s and rng.random() < 0.1:
        fused(rng, m, s)


def takes_flash_attn(kind):
    from models import hf_classes
    return importlib.util.find_spec("flash_attn") and kind not in ("gptj", "gpt_neo") and hf_classes(kind)[0]._supports_flash_attn


def narrow(s):
    """What computes in 16 bits."""
    return {"bf16", "fp16"} & {s.get("param_dtype"), s.get("autocast")} or s.get("param_dtype") is None and s.get("store_dtype") == "bf16"


def fused(rng, m, s):
    """Losses without logits, and Liger's kernels, of packages that are there."""
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN as functions
    function = functions.get(m["model_type"])
    takes = "bf16" in (s.get("param_dtype"), s.get("store_dtype"), s.get("autocast"))
    if importlib.util.find_spec("cut_cross_entropy") and takes and m["seq"] > 1 and rng.random() < 0.5:
        from cut_cross_entropy.transformers.patch import PATCH_FNS
        if m["model_type"] not in PATCH_FNS:
            return
        s["loss"] = "cut-cross-entropy"
        m["vocab_size"] = max(m.get("vocab_size", 0), 600)      # a sort of fewer averages is another kernel
    elif m["seq"] > 1 and rng.random() < 0.2:
        s["loss"] = "per-token"
    elif importlib.util.find_spec("trl") and m["model_type"] != "llama4_text" and m["seq"] > 1 and rng.random() < 0.7:
        s["loss"] = "fused-lm-head"
        m["vocab_size"] = rng.choice([m.get("vocab_size", 0) or 1000, 33000, 70000])
    elif function:
        names = [n for n in ("rope", "rms_norm", "swiglu", "geglu") if n in inspect.signature(function).parameters]
        s["loss"] = rng.choice(["liger", "liger", "liger-cross-entropy"])
        kernels = ",".join(n for n in names if rng.random() < 0.6)
        s.update({"liger": kernels} if kernels else {})


def job(rng, system, name):
    kind = {"real": "fsdp2"}.get(system, system)
    m = model(rng, system)
    shape = {"kind": "hf", "model_type": "?"} if m["kind"] == "recorded" else m
    s = draw.SYSTEMS[kind](rng, shape)
    further(rng, m, s, kind)
    if m["kind"] == "hf" and rng.random() < 0.6:
        draw_newer.further(rng, m, s, system)
    if m["kind"] == "recorded":
        of_recorded(rng, m, s)
        m.pop("kind")
    elif m["kind"] == "hf":
        s["code"] = "hf"
    if system != "real":
        return {"name": name, "model": m, "strategy": s}
    return draw.computed({"name": name, "model": m, "strategy": s})
