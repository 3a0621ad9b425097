"""Sequence classification (strategy.task "sequence-classification"): transformers' own classes, and a step of TRL 1.16's RewardTrainer.

num_labels and problem_type are the config's; pad_token_id is what a script sets on it when the model is made, as TRL does. The model is
called without a mask where nothing is padded. Labels are what Trainer's collators make: int64, or float32 of a regression and
of several labels at once. loss "reward": the trainer's own compute_loss, with one label, and what ranks gather for its log stays on each.
"""
import collections
import importlib
import types

import torch

import preferences

TASK = "sequence-classification"


def wanted_by(s):
    return s.get("task") == TASK or s.get("loss") == "reward"


def labels_of(s):
    return 1 if s.get("loss") == "reward" else s.get("num_labels", 2)


def fields(s):
    """What its configuration has beside the model's own."""
    return {"num_labels": labels_of(s)} | ({"problem_type": s["problem_type"]} if s.get("problem_type") else {})


def model_class(config_class):
    import transformers
    return transformers.AutoModelForSequenceClassification._model_mapping[config_class]


def made(model, s):
    """What a script does to it."""
    if s.get("pad_token_id") is not None:
        model.config.get_text_config().pad_token_id = s["pad_token_id"]
    return model


def inputs(m, s):
    import models
    if s.get("loss") == "reward":
        return {"input_ids": torch.zeros(m["batch"], m["seq"], dtype=torch.int64), "attention_mask": models.padded(m)}
    return whole_inputs(m, s) | ({"attention_mask": models.padded(m)} if m.get("padding_tokens") else {})


def whole_inputs(m, s):
    ids = torch.zeros(m["batch"], m["seq"], dtype=torch.int64)
    number, problem = labels_of(s), s.get("problem_type")
    if problem == "multi_label_classification" or (problem == "regression" and number > 1):
        return {"input_ids": ids, "labels": torch.zeros(m["batch"], number)}
    of_numbers = number == 1 and problem in (None, "regression")
    return {"input_ids": ids, "labels": torch.zeros(m["batch"], dtype=torch.float32 if of_numbers else torch.int64)}


def trainer_module():
    return importlib.import_module("trl.trainer.reward_trainer")


class Trainer:
    """self of RewardTrainer.compute_loss."""

    def __init__(self):
        self.model = types.SimpleNamespace(training=True)
        self.args = types.SimpleNamespace(center_rewards_coefficient=None)
        self.accelerator = preferences.Accelerator()
        self._metrics = {"train": collections.defaultdict(list)}
        self._total_train_tokens, self._tp_size = 0, 1


def compute_loss(system, model, batch):
    if not hasattr(system, "trainer"):
        system.trainer = Trainer()
    with preferences.asked_by(True):
        return trainer_module().RewardTrainer.compute_loss(system.trainer, preferences.Calls(system, model), dict(batch))
