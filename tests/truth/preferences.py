"""DPO without a GPU: what a step of TRL 1.16's DPOTrainer allocates, by its own `_compute_loss`.

The trainer is what that function asks of one: the default loss (sigmoid of reverse KL), the reference of a model with adapters
(the same model without them), a second model, or none (precompute_ref_log_probs). Every token that is no padding counts as one of a completion; where
nothing is padded the model is called without a mask, as there is nothing to mask. What ranks would gather for the log stays on each.
"""
import collections
import contextlib
import importlib
import types

import torch

import models


def outputs(s):
    """What DPOTrainer wants of the policy's head, and of a reference's."""
    return ("log_probs",) if s.get("of_reference") else ("log_probs", "entropy", "mean_logits", "is_top1")


def reference(system):
    """The second model of a policy without adapters, as DPOTrainer prepares it; None: there is none."""
    s = system.s
    if s.get("loss") != "dpo" or s.get("lora") or s.get("precompute_ref_log_probs"):
        return None
    model, blocks = models.make(system.m, {**s, "of_reference": True})
    for p in model.parameters() if s.get("reference_dtype") else ():
        p.data = p.data.to(models.DTYPES[s["reference_dtype"]])
    return system.prepare_reference(model, blocks)


def trainer_module():
    return importlib.import_module("trl.trainer.dpo_trainer")


class Accelerator:
    """One process's: what is gathered is what it has."""

    device = torch.device("cpu")

    def gather(self, tensor):
        return tensor

    gather_for_metrics = gather

    @staticmethod
    def unwrap_model(model):
        while not hasattr(model, "peft_config"):
            model = model.module
        return model


def mask_of(system, mask):
    """What the model is given of it: a mask of ones asks of a value what the step does without."""
    return {"attention_mask": mask} if system.m.get("padding_tokens") else {}


asking = False      # the trainer, of its counts, and not the model that it calls, of masks


@contextlib.contextmanager
def asked_by(trainer):
    """Whose code runs."""
    global asking
    before, asking = asking, trainer
    try:
        yield
    finally:
        asking = before


class Calls:
    """A model as _compute_loss calls it, by the system's own forward; asked for anything else, the model."""

    def __init__(self, system, model):
        self.system, self.of = system, model

    def __call__(self, attention_mask=None, **kwargs):
        with asked_by(False):
            return self.system.forward(self.of, kwargs | mask_of(self.system, attention_mask))

    def __getattr__(self, name):
        return getattr(self.of, name)


class Trainer:
    """self of DPOTrainer._compute_loss. `model`: what the Trainer has as its own, which is what DDP and DeepSpeed wrap, and FSDP's
    wrapper itself."""

    def __init__(self, system, model):
        s = system.s
        self.model = Calls(system, model)
        self.ref_model = system.reference and Calls(system, system.reference)
        self.accelerator = Accelerator()
        self.precompute_ref_logps = bool(s.get("precompute_ref_log_probs"))
        self.args = types.SimpleNamespace(gradient_checkpointing_kwargs={"use_reentrant": True, "preserve_rng_state": False})
        self.ld_alpha, self.f_divergence_type = None, "reverse_kl"
        self.loss_types, self.loss_weights = ["sigmoid"], [1.0]
        self.beta, self.label_smoothing = 0.1, 0.0
        self.use_weighting = self.aux_loss_enabled = False
        self._metrics = {"train": collections.defaultdict(list)}
        self._total_train_tokens, self._tp_size = 0, 1


def inputs(m, s):
    """A batch of its collator: half of it are chosen, the other half rejected."""
    import models
    batch = {"input_ids": torch.zeros(m["batch"], m["seq"], dtype=torch.int64), "attention_mask": models.padded(m),
             "completion_mask": models.padded(m)}
    if s.get("precompute_ref_log_probs"):
        for name in ("ref_chosen_logps", "ref_rejected_logps"):
            batch[name] = torch.zeros(m["batch"] // 2)
    return batch


def compute_loss(system, model, batch):
    if not hasattr(system, "trainer"):
        inner = model.module if type(model).__name__ in ("DistributedDataParallel", "DeepSpeedEngine") else model
        system.trainer = Trainer(system, inner)
    module = trainer_module()
    module.is_peft_model = lambda model: bool(system.s.get("lora"))
    with asked_by(True):
        return module.DPOTrainer._compute_loss(system.trainer, Calls(system, model), batch, False)
