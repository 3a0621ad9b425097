"""A small Llama with peft's adapters on every linear layer."""
import pathlib

import torch
import transformers
from peft import LoraConfig, get_peft_model


def build(batch, seq):
    config = transformers.AutoConfig.from_pretrained(pathlib.Path(__file__).parent / "peft_llama")
    config.use_cache = False
    model = transformers.LlamaForCausalLM(config)
    adapters = LoraConfig(r=8, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    ids = torch.zeros(batch, seq, dtype=torch.int64)
    return get_peft_model(model, adapters), {"input_ids": ids, "labels": ids.clone()}, lambda out: out.loss
