"""Llama-2-7B as litgpt 0.3.1 has it, which lightning-thunder's benchmark_litgpt.py of August 2024 pins,
with the loss of that script. The package itself imports what training needs (lightning): only its
model and its configurations are loaded."""
import importlib.util
import pathlib
import sys
import types

import torch
import torch.nn.functional as F

ROOT = importlib.util.find_spec("litgpt").submodule_search_locations


def part(name, **members):
    """litgpt.NAME, from its source behind `members`."""
    module = sys.modules[f"litgpt.{name}"] = types.ModuleType(f"litgpt.{name}")
    vars(module).update(members)
    path = pathlib.Path(ROOT[0], f"{name}.py")
    exec(compile(path.read_text().replace("import litgpt.model", ""), path, "exec"), vars(module))
    return module


package = sys.modules["litgpt"] = types.ModuleType("litgpt")
package.__path__ = ROOT
sys.modules["litgpt.utils"] = types.ModuleType("litgpt.utils")
sys.modules["litgpt.utils"].find_multiple = lambda n, k: -(-n // k) * k
config = part("config", litgpt=package)
package.Config = config.Config
package.model = part("model")


def build(batch, seq):
    model = package.model.GPT(config.Config.from_name("Llama-2-7b-hf"))
    ids = torch.zeros(batch, seq, dtype=torch.int64)

    def loss(logits):
        targets = torch.zeros(batch * seq, dtype=torch.int64)
        return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets, ignore_index=-1)

    return model, (ids,), loss
