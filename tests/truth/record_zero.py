#!/usr/bin/env python3
"""Record what DeepSpeed's ZeRO-1, 2 and 3 allocate, event by event.

As record_systems.py, for the installed DeepSpeed: the third step of `deepspeed.initialize`'s engine on one
rank of a fake process group, on real tensors that are never filled.  The accelerator is DeepSpeed's
CPU one with streams and events that do nothing, so it takes its CUDA paths.

Usage: as record_systems.py.  Needs deepspeed 0.19.8.

strategy.system: deepspeed.  world, rank, accumulate, clip (gradient_clipping 1), optimizer (adamw_foreach |
adamw_fused | adamw_loop, torch's own, or of optimizers.py), ac, stage, param_dtype (bf16 | fp16, with a loss scale of 1),
grad_accum_dtype, code (recorded: models of tools/record.py; hf), freeze, lora and lora_dropout (as record.py has them), and the keys of DeepSpeed's `zero_optimization` by name.
"""
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK="0", DS_SKIP_CUDA_CHECK="1", TORCH_CPP_LOG_LEVEL="ERROR")

import torch                        # noqa: E402
import deepspeed                    # noqa: E402
from deepspeed.accelerator import get_accelerator                                   # noqa: E402
from deepspeed.utils import groups                                                  # noqa: E402
from deepspeed.runtime.zero import (parameter_offload, partition_parameters, partitioned_param_coordinator,      # noqa: E402
                                    stage3, stage_1_and_2)

import models                       # noqa: E402
import recorder                     # noqa: E402
import unfilled                     # noqa: E402
from recorder import Log, placed    # noqa: E402

COMMON = {"system", "world", "rank", "accumulate", "clip", "optimizer", "ac", "ac_early_stop", "ac_blocks", "param_dtype",
          "grad_accum_dtype", "no_sync", "code", "freeze", "keep_outputs", "lora", "lora_dropout", "lora_dtype", "attention",
          "compile", "around", "embedding_bits", "liger", "loss", "input_grads", "precompute_ref_log_probs", "reference_zero", "task", "num_labels", "problem_type", "pad_token_id", "tower",
          "grpo_loss", "grpo_beta", "grpo_iterations", "vllm", "steps_per_generation", "load_in_4bit", "double_quant", "compute_dtype",
          "quant_storage", "kbit", "skip_modules", "store_dtype", "load_in_8bit"}


# --------------------------------------------------------------------------------------------
# An accelerator whose streams and events do nothing
# --------------------------------------------------------------------------------------------

class Nothing:
    """Answers every call with itself, as a context too."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: self

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False

    def __call__(self, *args, **kwargs):
        return self

    def query(self):
        return True


def like_cuda(accelerator):
    kind, nothing = type(accelerator), Nothing()
    for name in ("is_synchronized_device", "use_host_timers", "resolves_data_dependency",
                 "handles_memory_backpressure"):
        setattr(kind, name, lambda self: False)
    for name in ("Stream", "stream", "current_stream", "default_stream"):
        setattr(kind, name, lambda self, *args, **kwargs: nothing)
    kind.Event = property(lambda self: nothing)
    kind.synchronize = lambda self, *args: None
    kind.is_fp16_supported = lambda self: True


like_cuda(get_accelerator())
# collectives of CPUs, which it would compile; as an attribute of deepspeed.comm, torch is torch itself
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
for _module in (partitioned_param_coordinator, partition_parameters):       # a broadcast that nobody sends
    _module.assert_ints_same_as_other_ranks = lambda ints: None
torch.Tensor.record_stream = lambda tensor, stream: None


class Ordered(dict):
    """A set of parameters, whose order Python leaves to their addresses, in the order in which they were put in."""

    def __init__(self, items=()):
        super().__init__((x, None) for x in items)

    def update(self, items):
        super().update((x, None) for x in items)

    def add(self, item):
        self[item] = None

    def discard(self, item):
        self.pop(item, None)

    def __eq__(self, other):
        return self.keys() == other.keys()

    def __ne__(self, other):
        return self.keys() != other.keys()


partitioned_param_coordinator.set = parameter_offload.set = Ordered


# --------------------------------------------------------------------------------------------
# Places
# --------------------------------------------------------------------------------------------

def put(kind, name, label):
    setattr(kind, name, placed(getattr(kind, name), label))


def named(prefix):
    return lambda self, thing, *args, **kwargs: f"{prefix}[{Log.current.names.get(id(thing), '?')}]"


def just(label):
    return lambda *args, **kwargs: label


for _kind in (stage_1_and_2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):
    put(_kind, "reduce_independent_p_g_buckets_and_remove_grads", named("ds_grad"))
    put(_kind, "independent_gradient_partition_epilogue", just("ds_epilogue"))
    put(_kind, "has_overflow", just("ds_overflow"))
    put(_kind, "_optimizer_step", just("ds_inner_step"))
put(stage_1_and_2.DeepSpeedZeroOptimizer, "reduce_ipg_grads", just("ds_reduce"))
put(stage_1_and_2.DeepSpeedZeroOptimizer, "get_grad_norm_direct", just("ds_norm"))
put(stage3.DeepSpeedZeroOptimizer_Stage3, "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads",
    just("ds_reduce"))
put(stage3.DeepSpeedZeroOptimizer_Stage3, "get_grad_norm_direct", just("ds_norm"))
put(stage3.DeepSpeedZeroOptimizer_Stage3, "_post_step", just("ds_post_step"))
_coordinator = partitioned_param_coordinator.PartitionedParameterCoordinator
put(_coordinator, "fetch_sub_module", named("ds_fetch"))
put(_coordinator, "release_sub_module", named("ds_release"))


class Unfilled(unfilled.Unfilled):
    """A test for infinities finds none. (What a model asks of its masks is another matter.)"""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if Log.current.place[0] != "fwd" and func is torch.ops.aten._local_scalar_dense.default and args[0].dtype in (torch.uint8, torch.bool):
            return 0
        return super().__torch_dispatch__(func, types, args, kwargs)


GROUPS = {name: value for name, value in vars(groups).items()
          if not name.startswith("__") and not callable(value) and (value is None or isinstance(value, dict))}


LINEAR = torch.nn.functional.linear


def forget():
    """DeepSpeed keeps the process groups of the world before, and ZeRO-3 its own linear."""
    torch.nn.functional.linear = LINEAR
    deepspeed.comm.comm.cdb = None
    for name, value in GROUPS.items():
        setattr(groups, name, dict(value) if isinstance(value, dict) else value)


class Zero(recorder.System):
    step = 3
    places = (("ds_reduce", "reduce"), ("ds_fetch", "unsharded_param"), ("ds_post_step", "unsharded_param"))
    extra = ("step", "peak_bytes_by_step", "deepspeed")
    deepspeed = deepspeed.__version__

    def tensors(self):
        return Unfilled()

    def make(self):
        if self.s.get("code") == "recorded":
            return super().make()
        flat = {"llama": "flat_llama"}.get(self.m["kind"], self.m["kind"])
        if self.s.get("lora"):      # peft keeps a tensor for good when it is first used
            models.make(self.m, self.s)
            Log.current.forget("init")
        return models.make({**self.m, "kind": flat}, self.s)

    def inputs(self, inputs):
        """The engine casts none."""
        if self.s.get("code") != "recorded":
            return inputs
        return models.tool().cast_tensors(inputs, models.DTYPES[self.s["param_dtype"]])

    def configuration(self):
        s, m = self.s, self.m
        zero = {k: v for k, v in s.items() if k not in COMMON}
        half = {"bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True, "loss_scale": 1}}}
        out = {"train_micro_batch_size_per_gpu": m["batch"], "gradient_accumulation_steps": s.get("accumulate", 1),
               "zero_allow_untested_optimizer": True, "zero_optimization": zero, **half[s["param_dtype"]]}
        if s.get("clip"):
            out["gradient_clipping"] = 1.0
        if s.get("grad_accum_dtype"):
            out["data_types"] = {"grad_accum_dtype": s["grad_accum_dtype"]}
        return out

    def shard(self, model, blocks):
        forget()
        for p in recorder.matching(model, self.s.get("freeze")):
            p.requires_grad_(False)
        Log.current.names = {id(p): models.plain_name(name) for name, p in model.named_parameters()}
        Log.current.names.update({id(x): models.plain_name(name) or "root" for name, x in model.named_modules()})
        optimizer = self.inner_optimizer(model)
        engine, self.outer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer,
                                                        config=self.configuration())
        self.watch(blocks[-1])
        return engine

    def prepare_reference(self, model, blocks):
        """As trl.models.utils.prepare_deepspeed: an engine of its own without an optimizer, of stage 0 where the policy's is not 3.
        What is "auto" in the file it has DeepSpeed's own default of (`reference_zero`)."""
        config = self.configuration()
        zero = config["zero_optimization"]
        zero.pop("offload_optimizer", None)
        config["zero_optimization"] = zero | self.s.get("reference_zero", {}) if zero["stage"] == 3 else {"stage": 0}
        Log.current.names.update({id(x): f"reference.{models.plain_name(name)}" if name else "reference" for name, x in model.named_modules()})
        engine, *_ = deepspeed.initialize(model=model, config=config)
        engine.eval()
        return engine

    def inner_optimizer(self, model):
        return super().optimizer(model)

    def watch(self, block):
        def reached(grad):
            if Log.current.segment == "backward_head":
                Log.current.segment = "backward_blocks"
        first = lambda output: output if isinstance(output, torch.Tensor) else next(iter(
            output.values() if isinstance(output, dict) else output))

        def hook(module, args, output):
            if first(output).requires_grad:
                first(output).register_hook(reached)
        block.register_forward_hook(hook)

    def optimizer(self, model):
        return self.outer

    def backward(self, model, loss):
        model.backward(loss)

    def graph_goes(self, log):
        """Nodes of bitsandbytes hold gathered weights in 4 bits until they are deleted: the graph from behind, and with it the loss.
        CPython puts off what is nested deeper than 50 deallocations, so some would come behind the loss, in another order."""
        if not self.s.get("load_in_4bit") or self.s["stage"] != 3:
            return super().graph_goes(log)
        return log.ordered_deaths(lambda entry: -entry[3] if entry[1] == "unsharded_param" else 0)

    def between(self, model):
        model.step()

    def update(self, model, optimizer, live):
        model.step()
        live["after_step"] = Log.current.live

    def settle(self, log, model, optimizer):
        for p in model.module.parameters():
            log.recategorize(p, "param")
            if hasattr(p, "ds_tensor"):
                log.recategorize(p.ds_tensor, "sharded_param")
        models.settle_bits(self.s, log, model)
        for p in self.reference.parameters() if self.reference else ():
            if hasattr(p, "ds_tensor"):
                log.recategorize(p.ds_tensor, "sharded_param")
        for group in getattr(optimizer, "single_partition_of_fp32_groups", []) or \
                getattr(optimizer, "fp32_partitioned_groups_flat", []):
            log.recategorize(group, "master")
        for state in optimizer.optimizer.state.values():
            for t in state.values():
                if isinstance(t, torch.Tensor):
                    log.recategorize(t, "optimizer")
        log.rename("init", "persistent")


if __name__ == "__main__":
    sys.exit(recorder.main(lambda config: Zero if config["strategy"]["system"] == "deepspeed" else None))
