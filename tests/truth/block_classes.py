"""Classes of the blocks of each family that is planned, as transformers builds them.

    python tests/truth/block_classes.py > tests/data/frameworks/block_classes.jsonl

A line is [family, class of the model, classes of its blocks]: of modules that may be checkpointed
(GradientCheckpointingLayer), towers aside. Where the default config builds nothing they are what
the class has as `_no_split_modules`.
"""

import glob
import json
import os
import re

import torch
import transformers
from transformers.modeling_layers import GradientCheckpointingLayer

FAMILIES = os.path.join(os.path.dirname(__file__), "..", "..", "planner", "families")
BESIDE_TEXT = re.compile("vis|audio|talker|image")


def model_classes():
    for path in sorted(glob.glob(os.path.join(FAMILIES, "*.c"))):
        with open(path, encoding="utf-8") as file:
            found = re.search(r'\.class_name = "(\w+)"', file.read())
        if found:
            yield os.path.basename(path)[:-2], found.group(1)


def block_classes(name):
    model_class = getattr(transformers, name)
    try:
        with torch.device("meta"):
            model = model_class(model_class.config_class())
    except (TypeError, AttributeError, ValueError):
        return sorted(model_class._no_split_modules)
    return sorted({type(module).__name__ for path, module in model.named_modules()
                   if isinstance(module, GradientCheckpointingLayer) and not BESIDE_TEXT.search(path)})


for family, name in model_classes():
    print(json.dumps([family, name, block_classes(name)]))
