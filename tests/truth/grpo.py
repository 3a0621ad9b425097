"""GRPO without a GPU: what a step of TRL 1.16's GRPOTrainer allocates, by its own `_compute_loss`.

The trainer is what that function asks of one. What is a step's own: completions were generated and scored before it, and lie there as
`_generate_and_score_completions` leaves them, all that are generated at once (steps_per_generation micro-batches), of which
each micro-batch is a view. Prompts and completions are as long in every sequence but for padding, which is behind completions
here: a trainer pads prompts in front, which is as many bytes. What ranks would gather or reduce for the log stays on each.

strategy: grpo_loss (dapo | grpo | bnpo | dr_grpo | cispo), grpo_beta, steps_per_generation (default: accumulate),
grpo_iterations (above 1 old log-probabilities are a column), vllm (off | token | sequence: the correction of
importance sampling, by its mode). model: prompt_tokens.
"""
import collections
import contextlib
import importlib
import types

import torch

OUTPUTS = ("log_probs", "entropy")      # GRPOTrainer's of its model's head
ASKING = []                             # while nanmin or nanmax runs, of which no number is NaN


def asking(function):
    def call(tensor):
        ASKING.append(function)
        try:
            return function(tensor)
        finally:
            ASKING.pop()
    return call


def trainer_module():
    module = importlib.import_module("trl.trainer.grpo_trainer")
    for name in ("nanmin", "nanmax"):
        if getattr(module, name).__module__ != __name__:
            setattr(module, name, asking(getattr(module, name)))
    return module


def autocast_of(s):
    """accelerate's native_amp: that of the forward, and under FSDP2, whose policy is its own, of none but this trainer's."""
    if s.get("system", "fsdp2") == "fsdp2":
        return s.get("param_dtype")
    return None if s["system"] == "deepspeed" else s.get("autocast")


class Accelerator:
    """One process's: what is gathered or reduced is what it has."""

    def __init__(self, s):
        self.num_processes, self.dtype = s["world"], autocast_of(s)
        self.is_main_process = True

    def autocast(self):
        if not self.dtype:
            return contextlib.nullcontext()
        import autocast
        import models
        return autocast.cuda_autocast(models.DTYPES[self.dtype])

    def gather(self, tensor):
        return tensor

    def reduce(self, tensor, reduction="mean"):
        return tensor


class Trainer:
    """self of GRPOTrainer._compute_loss."""

    def __init__(self, system):
        m, s = system.m, system.s
        self.model = types.SimpleNamespace(training=True)
        self.accelerator = Accelerator(s)
        self.state = types.SimpleNamespace(global_step=1)
        self.loss_type = s.get("grpo_loss", "dapo")
        self.beta = s.get("grpo_beta", 0.0)
        self.epsilon_low = 0.2
        self.epsilon_high = 5.0 if self.loss_type == "cispo" else 0.2
        self.importance_sampling_level = "token"
        self.top_entropy_quantile, self.off_policy_mask_threshold = 1.0, None
        self.aux_loss_enabled = self._entropy_bonus_enabled = self.use_adaptive_entropy = False
        self.use_vllm = s.get("vllm", "off") != "off"
        self.vllm_importance_sampling_correction = True
        self.max_completion_length = m["seq"] - m["prompt_tokens"]
        self.current_gradient_accumulation_steps = s.get("accumulate", 1)
        self.args = types.SimpleNamespace(delta=None, use_bias_correction_kl=True, report_to=[],
                                          steps_per_generation=steps_per_generation(s))
        self._metrics = {"train": collections.defaultdict(list)}

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        return trainer_module().GRPOTrainer._get_per_token_logps_and_entropies(self, *args, **kwargs)


def steps_per_generation(s):
    return s.get("steps_per_generation") or s.get("accumulate", 1)


def generated(m, s):
    """What _generate_and_score_completions returns, as shuffle_sequence_dict leaves it."""
    import models
    rows, prompt = m["batch"] * steps_per_generation(s), m["prompt_tokens"]
    one = models.padded(m)
    mask = one.repeat(steps_per_generation(s), 1)
    batch = {"prompt_ids": torch.zeros(rows, prompt, dtype=torch.int64), "prompt_mask": mask[:, :prompt].clone(),
             "completion_ids": torch.zeros(rows, m["seq"] - prompt, dtype=torch.int64), "completion_mask": mask[:, prompt:].clone(),
             "advantages": torch.zeros(rows), "num_items_in_batch": torch.ones((), dtype=torch.int64)}
    numbers = []
    if s.get("vllm", "off") != "off" or s.get("accumulate", 1) % (steps_per_generation(s) * s.get("grpo_iterations", 1)) != 0:
        numbers.append("old_per_token_logps")
    if s.get("vllm", "off") != "off":
        batch["importance_sampling_ratio"] = torch.ones(rows, 1 if s["vllm"] == "sequence" else m["seq"] - prompt)
        numbers.append("sampling_per_token_logps")
    if s.get("grpo_beta"):
        numbers.append("ref_per_token_logps")
    return batch | {name: torch.zeros(rows, m["seq"] - prompt) for name in numbers}


def inputs(m, s):
    """A micro-batch, as _prepare_inputs takes it out of what is buffered."""
    split = importlib.import_module("trl.trainer.utils").split_tensor_dict
    return split(generated(m, s), steps_per_generation(s))[0]


def compute_loss(system, model, batch):
    if not hasattr(system, "trainer"):
        system.trainer = Trainer(system)
    return trainer_module().GRPOTrainer._compute_loss(system.trainer, lambda **kwargs: system.forward(model, kwargs), batch)
