"""Models that see or hear, around text models that were drawn: the class around, with a tower.

`seeing(random.Random(...), m, s, system)` changes a job of one of AROUND's model types in place."""
KEYS = ("kind", "batch", "seq", "padding_tokens", "sample_tokens")
NOT_TRAINED = ("ddp", "zero")      # the systems that a tower without gradients is not planned under


def small(rng, **more):
    return {"hidden_size": 48, "intermediate_size": rng.choice([68, 96]), "num_hidden_layers": rng.choice([1, 2]), "num_attention_heads": 4,
            "image_size": 16, "patch_size": 4, **more}


def siglip(rng):
    return small(rng, model_type="siglip_vision_model", vision_use_head=rng.random() < 0.3)


def clip(rng):
    return small(rng, model_type="clip_vision_model")


def pixtral(rng):
    return small(rng, model_type="pixtral", head_dim=12)


def idefics3(rng):
    return small(rng, model_type="idefics3_vision")


def smolvlm(rng):
    return small(rng, model_type="smolvlm_vision")


def internvl(rng):
    return small(rng, model_type="internvl_vision", image_size=[16, 16], patch_size=[4, 4], attention_bias=rng.random() < 0.5,
                 use_qk_norm=rng.random() < 0.3)


def siglip2(rng):
    return small(rng, model_type="siglip2_vision_model", num_patches=16, vision_use_head=rng.random() < 0.5)


def qwen(rng, hidden, **more):
    return {"depth": rng.choice([1, 3]), "num_heads": 4, "patch_size": 4, "spatial_merge_size": 2, "hidden_size": 48, "intermediate_size": 68,
            "out_hidden_size": hidden, **more}


def glm(rng, hidden, **more):
    return qwen(rng, hidden, image_size=16, **more)


def kimi(rng):
    return small(rng, pos_emb_height=6, pos_emb_width=rng.choice([5, 6]), pos_emb_time=rng.choice([2, 4]))


def ears(rng, **more):
    """Whisper's sizes."""
    return {"d_model": 48, "encoder_layers": rng.choice([1, 2]), "encoder_attention_heads": 4, "encoder_ffn_dim": rng.choice([68, 96]),
            "num_mel_bins": rng.choice([16, 20]), "max_source_positions": 30, **more}


def hearing(rng, name, hidden):
    """The audio_config, of what has one."""
    if name == "qwen2_audio":
        return ears(rng)
    if name == "voxtral":
        return {**small(rng), "num_mel_bins": 20, "max_source_positions": 30}
    if name == "glmasr":
        return {**small(rng), "num_mel_bins": 20, "num_key_value_heads": rng.choice([2, 4])}
    return ears(rng, output_dim=hidden, **({"downsample_hidden_size": 12} if name.startswith("qwen3") else {}))


HEARS = ("qwen2_audio", "voxtral", "glmasr", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker")
OUTER = {   # keys of the class around
    "aya_vision": lambda rng: {"alignment_intermediate_size": rng.choice([40, 72])},
    "cohere2_vision": lambda rng: {"alignment_intermediate_size": rng.choice([40, 72])},
    "vipllava": lambda rng: {"vision_feature_layer": rng.choice([[-2, 0], [-1], [0, -1, -2]])},
    "kimi_k25": lambda rng: {"projection_hidden_size": 48},
    "minicpmv4_6": lambda rng: {"insert_layer_id": 0, "image_size": 16, "merger_times": rng.choice([1, 2])},
}


def tower(rng, name, hidden):
    if name.startswith("glm"):
        return glm(rng, hidden, **({} if name != "glm46v" else {"model_type": "glm4v_vision"}))
    if name in ("exaone4_5", "hyperclovax_vision_v2"):
        return qwen(rng, hidden, **({"num_key_value_heads": 2} if name == "exaone4_5" else {"model_type": "qwen2_5_vl_vision"}))
    if name == "qwen2_5_omni_thinker":
        return qwen(rng, hidden)
    if name == "qwen3_omni_moe_thinker":
        return qwen(rng, hidden, num_position_embeddings=16, deepstack_visual_indexes=rng.choice([[0], [0, 2], []]))
    if name == "qwen2_vl":
        return {"depth": rng.choice([1, 3]), "embed_dim": 48, "mlp_ratio": rng.choice([2, 3]), "num_heads": 4, "hidden_size": hidden, "patch_size": 4}
    if name == "qwen2_5_vl":
        return qwen(rng, hidden)
    if name.startswith("qwen3_vl"):
        return qwen(rng, hidden, num_position_embeddings=16, deepstack_visual_indexes=rng.choice([[0], [0, 2], []]))
    if name.startswith("qwen3_5"):
        return qwen(rng, hidden, num_position_embeddings=16)
    of = {"llava": rng.choice([clip, siglip, pixtral]), "llava_next": clip, "llava_onevision": siglip, "mistral3": pixtral, "internvl": internvl,
          "smolvlm": smolvlm, "idefics3": idefics3, "gemma3": siglip, "lfm2_vl": siglip2,
          "llava_next_video": clip, "vipllava": clip, "video_llava": clip, "aya_vision": siglip, "cohere2_vision": siglip,
          "deepseek_vl": siglip, "lighton_ocr": pixtral, "kimi_k25": kimi, "video_llama_3": small, "paddleocr_vl": small,
          "minicpmv4_6": lambda rng: small(rng, insert_layer_id=0)}
    return of[name](rng)


AROUND = {
    "llama": ["llava", "llava_next", "smolvlm", "idefics3", "internvl", "llava_next_video", "vipllava", "video_llava", "deepseek_vl", "voxtral",
              "glmasr"],
    "granite": ["llava_next"], "cohere2": ["aya_vision", "cohere2_vision"], "exaone4": ["exaone4_5"], "hyperclovax": ["hyperclovax_vision_v2"],
    "deepseek_v3": ["kimi_k25"], "mistral": ["mistral3", "llava", "llava_next"],
    "qwen2": ["llava_onevision", "internvl", "llava", "video_llama_3", "qwen2_audio"], "qwen3": ["internvl", "llava_onevision", "lighton_ocr"], "gemma3_text": ["gemma3"], "lfm2": ["lfm2_vl"],
    **{f"{name}_text": [name] for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v_moe", "glm_ocr", "paddleocr_vl")},
    "glm4v_text": ["glm4v", "glm46v"], "qwen2_5_omni_text": ["qwen2_5_omni_thinker"], "qwen3_omni_moe_text": ["qwen3_omni_moe_thinker"],
}
AROUND["qwen3_5_text"].append("minicpmv4_6")


def seeing(rng, m, s, system):
    text = {k: v for k, v in m.items() if k not in KEYS}
    name = rng.choice(AROUND[text["model_type"]])
    tied = text.pop("tie_word_embeddings", None)
    kept = {k: v for k, v in m.items() if k in KEYS}
    m.clear()
    m.update(kept, model_type=name, text_config=text)
    if name in HEARS:
        m["audio_config"] = hearing(rng, name, text["hidden_size"])
    if name not in HEARS or "omni" in name:
        m["vision_config"] = tower(rng, name, text["hidden_size"])
    m.update(OUTER.get(name, lambda rng: {})(rng))
    # gemma3's and lfm2_vl's are tied unless they say otherwise, others the other way round: said either way
    if name not in ("qwen2_audio", "voxtral"):      # whose classes have no such key, and tie nothing
        m["tie_word_embeddings"] = bool(tied) if tied is not None else name in ("gemma3", "lfm2_vl")
    if name == "gemma3":
        m["image_token_index"] = 0      # one that the vocabulary has, as the published ones
    if "lora" in s:     # peft knows no layers of the class around, whose text model is deeper
        rank, _, names = s["lora"].partition(",")
        s["lora"] = f"{rank},{names.replace('model.layers', '.*layers') or 'q_proj,v_proj'}"
    if system not in NOT_TRAINED and "lora" not in s and "freeze" not in s and rng.random() < 0.4:
        s["tower"] = "trained"
