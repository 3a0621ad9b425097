#!/usr/bin/env python3
"""Record what PyTorch FSDP2 allocates, event by event.

One training step of a model under the real `torch.distributed.fsdp.fully_shard` is run on one
rank of a world of N.  Tensors are fake (FakeTensorMode: shapes and storages, no data) and the
process group is fake (collectives do nothing), so any model and any world size run on a laptop.
Every storage birth (+bytes), resize and death (-bytes) of the SECOND step (steady state:
optimizer states exist) is logged in host order.  Bytes are requested bytes, with no allocator
rounding; streams and memory inside kernels are not seen.

Usage
    record.py --config CONFIGS.jsonl --out OUT.jsonl [--only NAME ...] [--no-events]
    record.py --check TRUTH.jsonl [TRUTH.jsonl ...]   record again and compare with recordings

A configuration is one JSON object a line:
    {"name": ..., "model": {...}, "strategy": {...}}
model.kind: llama | gpt2 | guide (models.py), or, with strategy.code "hf",
model.model_type: gpt2 | opt | gpt_neox | llama | mistral | qwen2 | qwen3 | mixtral | bert | t5 | any
that AutoModelForCausalLM has with its blocks in model.layers (classes of Hugging Face transformers;
the other fields are fields of their config class, plus batch, seq).
strategy: attention (math: sdpa_kernel([SDPBackend.MATH]); eager: transformers' in Python), world, rank, replicate, units (blocks+root | embeddings: and the embedding | torchtitan), adapter_units (1: and what is trained and has no modules in it), blocks_per_unit,
reshard (default | always | never | int), forward_prefetch, backward_prefetch, param_dtype,
reduce_dtype, store_dtype, ac (full | selective), ac_early_stop (default true),
ac_blocks (all | first-K | first-P% | every-K), accumulate, no_sync, clip,
optimizer (adamw_foreach | adamw_fused | adamw_loop | sgd, or of optimizers.py; there embedding_bits), code (hf), freeze (comma-separated glob patterns of
parameter names), lora, lora_dropout and lora_dtype (models.adapted: peft's adapters), reference_dtype (of a second model's parameters, with loss dpo; every recorder has it), input_grads (1: enable_input_require_grads; every recorder has it), reshard_units ({module: true | false | int}, instead of reshard), shard_dim (1:
matrices by columns), max_input_buffers, unshard_in_backward_off ([module, ...]), last_only (among
is_last_backward, requires_all_reduce, reshard_after_backward: set_... is true for the last
micro-batch only), offload (cpu: with a pinned host), experts_replicate (R: each block's experts are a unit of their
own, on a mesh of R replicas; replicate is the others'), ignore (comma-separated glob patterns: ignored_params), loss (direct: cross-entropy of the logits as they are; liger: Liger's
fused with the head; liger-cross-entropy: its kernel on the logits; per-token: LLaMA-Factory v1's, per_token.py; default: of a copy in fp32), liger (kernels of Liger's,
by commas: rope, rms_norm, swiglu, geglu), task, num_labels, problem_type and pad_token_id (classification.py; every recorder has them), keep_outputs (backward: what the model returned has a name until backward has run; next: until the next
forward has returned, code hf; every recorder has it).

Deviations from a GPU run, on purpose: tensors live on the fake device "cpu" (FSDP needs no
streams there).
"""
import contextlib
import sys
import weakref
from unittest import mock

import older_torch      # first: names of others are put in their places

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_init as fsdp_init
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp_group
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp_api
from torch.distributed.tensor import DTensor, Shard
from torch.utils._python_dispatch import _disable_current_modes

import classification
import recorder
from models import DTYPES, plain_name
from recorder import Log, placed

RESHARD = {"default": older_torch.RESHARD_DEFAULT, "always": True, "never": False}
ROOTS = weakref.WeakKeyDictionary()     # groups of roots that are not the model's, and their names
TAIL = [None]       # label of the group that torchtitan makes of norm and output


def group_label(name):
    def label(group, *args, **kwargs):
        log = Log.current
        if name == "pre_backward" and log.segment == "backward_head" and \
                group._module_fqn not in ("", None, TAIL[0]):
            log.segment = "backward_blocks"
        fqn = (group._module_fqn or ROOTS.get(group, "root")).replace("_checkpoint_wrapped_module.", "")
        return f"{name}[{', '.join(plain_name(part) for part in fqn.split(', '))}]"
    return label


for _name in ("unshard", "wait_for_unshard", "reshard", "pre_backward", "post_backward"):
    setattr(fsdp_group.FSDPParamGroup, _name,
            placed(getattr(fsdp_group.FSDPParamGroup, _name), group_label(_name)))


# ---- CPUOffloadPolicy: host and device are one memory here, and copies between them are copies ----

TO = torch.Tensor.to


def to(tensor, *args, **kwargs):
    if args and isinstance(args[0], torch.device):
        return torch.ops.aten._to_copy(tensor)
    return TO(tensor, *args, **kwargs)


def across_devices(function):
    def call(*args, **kwargs):
        with mock.patch.object(torch.Tensor, "to", to):
            return function(*args, **kwargs)
    return call


inputs_of = fsdp_group.FSDPParam.all_gather_inputs
fsdp_group.FSDPParam.all_gather_inputs = property(across_devices(inputs_of.fget))
fsdp_group.foreach_reduce = placed(across_devices(fsdp_group.foreach_reduce), lambda *_, **__: "foreach_reduce")


def make_mesh(world, replicate):
    if replicate > 1:
        return init_device_mesh("cpu", (replicate, world // replicate), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh("cpu", (world,))


def real_tensors(function):
    def call(*args, **kwargs):
        with _disable_current_modes():
            return function(*args, **kwargs)
    return call


for _module in (fsdp_api, fsdp_init):
    if hasattr(_module, "_get_post_forward_mesh_info"):
        _module._get_post_forward_mesh_info = real_tensors(_module._get_post_forward_mesh_info)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Fsdp2(recorder.System):
    places = (("post_backward", "reduce_scatter"), ("wait_for_unshard", "unsharded_param"),
              ("unshard", "all_gather"))

    births = recorder.Births

    @contextlib.contextmanager
    def tensors(self):
        with FakeTensorMode(allow_non_fake_inputs=True), self.births(), \
                mock.patch.object(torch.Tensor, "pin_memory", lambda t, **_: torch.ops.aten._to_copy(t.detach())), \
                mock.patch.object(torch.cpu.Stream, "record_event", lambda stream: torch.cpu.Event(), create=True):
            yield

    def keywords(self, replicate):
        s = self.s
        with _disable_current_modes():      # a mesh reads its own rank tensor
            mesh = make_mesh(s["world"], replicate)
        how = s.get("reshard", "default")
        kw = {"mesh": mesh, "reshard_after_forward": RESHARD.get(how, how)}
        if s.get("param_dtype") or s.get("reduce_dtype"):
            kw["mp_policy"] = MixedPrecisionPolicy(param_dtype=DTYPES[s.get("param_dtype")],
                                                   reduce_dtype=DTYPES[s.get("reduce_dtype")])
        if s.get("shard_dim"):
            kw["shard_placement_fn"] = lambda p: Shard(1 if p.ndim > 1 else 0)
        if s.get("offload"):
            kw["offload_policy"] = CPUOffloadPolicy()
        if s.get("ignore"):
            kw["ignored_params"] = set(self.ignored)
        return kw

    def shard(self, model, blocks):
        s = self.s
        for p in recorder.matching(model, s.get("freeze")):
            p.requires_grad_(False)
        self.ignored = recorder.matching(model, s.get("ignore"))    # ignored_params
        kw = self.keywords(s.get("replicate", 1))
        experts = self.keywords(s["experts_replicate"]) if s.get("experts_replicate") else None
        how = kw["reshard_after_forward"]
        own = {model.get_submodule(name): {"reshard_after_forward": value}
               for name, value in s.get("reshard_units", {}).items()}
        TAIL[0] = None
        per = s.get("blocks_per_unit", 1)
        tail = dict(kw)
        if s.get("reshard", "default") == "default":
            tail["reshard_after_forward"] = False
        titan = s.get("units") == "torchtitan"
        head = "score" if classification.wanted_by(s) else "lm_head"
        names = ("model.embed_tokens", "model.norm", head) if s.get("code") == "hf" else \
            ("tok_embeddings" if hasattr(model, "tok_embeddings") else "embedding", "norm", "output")
        inside = model.get_base_model() if s.get("lora") else model
        own_embedding = s.get("units") == "embeddings"
        embedding, norm, head = (inside.get_submodule(name) if titan or own_embedding else None for name in names)
        tied = titan and head.weight is embedding.weight
        for module in list(model.modules()) if s.get("adapter_units") else ():
            if not list(module.children()) and any(p.requires_grad for p in module.parameters(recurse=False)):
                fully_shard(module, **kw)
        if tied:        # torchtitan's apply_fsdp, and accelerate's fsdp2_prepare_model: one unit
            fully_shard([embedding, norm, head], **tail)
            TAIL[0] = ", ".join(names)
        elif titan or own_embedding:
            fully_shard(embedding, **{**kw, **own.get(embedding, {})})
        units = []
        for i in range(0, len(blocks), per):
            unit = blocks[i:i + per]
            for block in unit if experts else ():
                for name, module in block.named_modules():
                    if name.split(".")[-1] == "experts":
                        fully_shard(module, **experts)
            fully_shard(unit if len(unit) > 1 else unit[0], **{**kw, **own.get(unit[0], {})})
            units.append(unit[0])
        if titan and not tied:
            fully_shard([norm, head], **tail)
            TAIL[0] = ", ".join(names[1:])
        fully_shard(model, **kw)
        if s.get("max_input_buffers"):
            model.set_reduce_scatter_max_input_buffers(s["max_input_buffers"])
        for name in s.get("unshard_in_backward_off", []):
            model.get_submodule(name).set_unshard_in_backward(False)
        n = s.get("forward_prefetch", 0)
        for i, unit in enumerate(units):
            if n and units[i + 1:i + 1 + n]:
                unit.set_modules_to_forward_prefetch(units[i + 1:i + 1 + n])
        n = s.get("backward_prefetch", 0)
        for i, unit in enumerate(units):
            if n and units[max(0, i - n):i]:
                unit.set_modules_to_backward_prefetch(units[max(0, i - n):i][::-1])
        return model

    def prepare_reference(self, model, blocks):
        """As trl.models.utils.prepare_fsdp: all of it is the root's."""
        keywords = self.keywords(self.s.get("replicate", 1))
        if self.s.get("reshard", "default") == "default":       # it is told what accelerate leaves to units and root
            keywords["reshard_after_forward"] = True
        fully_shard(model, **keywords)
        ROOTS[model._get_fsdp_state()._fsdp_param_group] = "reference"
        return model.eval()

    def synced(self, model, last, sync):
        if self.s.get("accumulate", 1) > 1 and self.s.get("no_sync", True):
            model.set_requires_gradient_sync(last)
        for flag in self.s.get("last_only", []):
            getattr(model, "set_" + flag)(last)
        return contextlib.nullcontext()

    def optimizer(self, model):
        """torch's foreach functions take no DTensors together with tensors: what is ignored is a group of its own."""
        optimizer = super().optimizer(model)
        group, *_ = optimizer.param_groups
        own = [p for p in group["params"] if not isinstance(p, DTensor)]
        if own and len(own) < len(group["params"]):
            group["params"] = [p for p in group["params"] if isinstance(p, DTensor)]
            optimizer.add_param_group({"params": own})
        return optimizer

    def settle(self, log, model, optimizer):
        beside = self.reference.parameters() if self.reference else ()
        for p in (*model.parameters(), *beside):
            log.recategorize(local(p), "sharded_param" if isinstance(p, DTensor) else "param")
        for state in optimizer.state.values():
            for t in state.values():
                log.recategorize(local(t), "optimizer")
        log.forget("init")      # meshes


if __name__ == "__main__":
    sys.exit(recorder.main(lambda config: Fsdp2))
