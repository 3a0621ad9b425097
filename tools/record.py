#!/usr/bin/env python3
"""Records what one training micro-batch of any PyTorch model computes, once, for every strategy.

    record.py --hf CONFIG_OR_DIR --seq 4096 --batch 1,2 -o model.stream.json.gz
    record.py my_model.py:build --seq 4096 -o my_model.stream.json.gz
    shardplan fit model.stream.json.gz --gpus 64

Needs torch, and transformers for --hf; no GPU, no weights, no process group. Tensors are fake: they
have shapes and storages and no data, so a model of any size is recorded in seconds (in minutes where attention
is called once for each of a picture's windows, as Qwen2.5-VL's is). What is written
down is what a sharding strategy cannot change: storages as they are born and die, the calls that
compute, where modules that may be units begin and end, where each parameter's gradient is complete.

`build(batch, seq)` of a file of one's own returns (model, inputs) or (model, inputs, loss): a module
(whatever its parameters are in, they compute in --dtype; what they are stored in is shardplan's
--store-dtype), its keyword arguments (a dict) or its arguments (a tuple), and what makes a scalar of its
output. Without `loss` the output is one, or has one as `.loss`.

Kernels that only GPUs have are called by name: attention, dropout and RMSNorm are what they are on
CUDA. Where autograd does otherwise on real tensors (it adds gradients in place), the recording says so,
and shardplan follows either (--autograd). Python frees the locals of a returning function first to
last up to 3.13, last to first from 3.14 on: a recording is of the Python that made it.

The file: lines of JSON, compressed. The first is an object: format, version, model, parameters,
modules, called ([name, its own parameters, those of others that it reads, and of one that DeepSpeed
fetches as one (a leaf module) its class] of every module, by number), batch_norms (their names:
FullyShardedDataParallel wraps each in fp32), notes (sentences on what a step does otherwise) and three
tables: `ops` (names of the dispatcher), `types` ([op, dtype, shape, bytes]: of a storage at birth),
`calls` ([op, ins, outs, arguments, flops]; a tensor is [dtype, shape, strides, position]). The others
are a variant each: batch, checkpointing, hooks ("fsdp": modules' inputs are cast and pass through a
node, as fully_shard's hooks do; "fsdp1": the root's inputs are cast, as FullyShardedDataParallel does;
not where none is to be cast, and "plain" says the same; "zero3": every module has DeepSpeed's hooks and
nn.functional.linear is its own), frozen (numbers of parameters that are not trained in it, beside
those that the model has so), inputs, constants, and its steps as text:
    +T          a storage of type T is born: the next buffer
    -N          buffer N dies
    C:a,b,c     call C on these storages: N a buffer, pN a parameter, iN an input, mN a module's
                buffer. Behind it r: recomputed; a: on real tensors it adds to its first operand, in forward a bias
    gP:N        the gradient of parameter P is complete, in buffer N
    (M )M <M >M pre-forward, post-forward, pre-backward, post-backward of module M; r: the root
    |M          backward has come back to where module M's forward began: all nodes made since have run.
                Not in variants with hooks "fsdp" or "zero3"
    {N }N [N ]N likewise of module N of `called`, in variants with hooks "zero3" alone
    sP uP       there, too: a node saves a view of parameter P, which keeps the memory that P has now; it lets go
                of it. (A node that saves P itself has whatever memory P has.)
    =name       logits (the loss is behind the model), loss, blocks (backward reaches them), final (autograd's last callback)
"""
import argparse
import collections
import contextlib
import fnmatch
import functools
import gc
import gzip
import importlib.util
import inspect
import itertools
import json
import os
import re
import sys
import time
import weakref

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
    from torch.utils import _pytree as pytree
    from torch.utils.flop_counter import flop_registry
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
    from torch.utils.weak import WeakIdKeyDictionary
except ImportError as error:
    sys.exit(f"record.py: needs a Python with torch: {error}")

try:
    from torch.distributed.utils import _apply_to_tensors as apply_to_tensors
except ImportError:     # a torch without torch.distributed
    def apply_to_tensors(function, tree):
        return pytree.tree_map(lambda t: function(t) if isinstance(t, torch.Tensor) else t, tree)

try:
    from torch.distributed.fsdp._common_utils import collect_grad_tensors, replace_grad_tensors
except ImportError:     # versions whose fully_shard finds tensors where pytree does
    def collect_grad_tensors(tree):
        return tuple(t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and t.requires_grad)

    def replace_grad_tensors(tree, tensors):
        return pytree.tree_map(lambda t: next(tensors) if isinstance(t, torch.Tensor) and t.requires_grad else t, tree)

VERSION = 2     # 1: of hooks "zero3", without what nodes save and which modules are leaf modules
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
KNOWN_ELEMENTS = 1 << 20    # values of integers are followed up to this size
KNOWN_RATES = 1 << 12       # those of any tensor, while a model is made
aten = torch.ops.aten


def fail(text):
    sys.exit("record.py: " + text)


def dtype_name(dtype):
    names = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64",
             torch.int64: "int64", torch.int32: "int32", torch.bool: "bool", torch.complex64: "complex64",
             torch.uint8: "uint8", torch.int8: "int8", torch.int16: "int16"}
    return names.get(dtype, str(dtype).removeprefix("torch."))


# --------------------------------------------------------------------------------------------
# What is on CUDA and not on a CPU
# --------------------------------------------------------------------------------------------

def lowered(tensor):
    """As autocast hands an argument to an operator of lower precision."""
    if tensor is None or not tensor.is_floating_point() or not torch.is_autocast_enabled("cpu"):
        return tensor
    return tensor.to(torch.get_autocast_dtype("cpu"))


def cuda_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                   enable_gqa=False):
    """scaled_dot_product_attention: flash for 16 bits without a mask and heads of one size, else
    memory-efficient (which has no grouped heads), else written out; so is what is no batch of heads, or
    whose heads are broadcast (check_batch_size_and_num_heads_dense of sdp_utils_cpp.h)."""
    # as a C++ call evaluates its arguments: from the last one
    attn_mask, value, key, query = (lowered(t) for t in (attn_mask, value, key, query))
    half = query.dtype in (torch.bfloat16, torch.float16)
    dense = query.dim() == 4 and query.size(0) == key.size(0) == value.size(0)
    alike = dense and query.size(1) == key.size(1) == value.size(1)
    head = query.size(-1)
    if attn_mask is None and half and head <= 256 and (alike or dense and enable_gqa) and value.size(-1) == head:
        scale = head ** -0.5 if scale is None else scale
        pad = -head % 8
        if pad:
            query, key, value = (F.pad(t, (0, pad)) for t in (query, key, value))
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        return out[..., :head] if pad else out
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=query.dtype))
    if alike:
        if attn_mask is not None:
            if attn_mask.stride(-1) != 1 or any(n % 8 for n in attn_mask.stride()[:-1]):
                pad = 8 - attn_mask.size(-1) % 8
                attn_mask = F.pad(attn_mask, (0, pad))[..., :-pad]
            attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
        logsumexp = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, logsumexp, dropout_p, is_causal, scale=scale)[0]
    Stream.maths += 1       # which adds its mask in place, but under a dispatch mode (attention.cpp)
    try:
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    finally:
        Stream.maths -= 1


def cuda_dropout(input, p=0.5, training=True, inplace=False):
    if inplace:     # no kernel of its own there, either: noise, by which the input is multiplied
        return torch.dropout_(input, p, training)
    return torch.native_dropout(input, p, True)[0] if p > 0.0 and training else input


@contextlib.contextmanager
def dropout_of_aten():
    """The dropout that ATen calls itself (in attention that is written out) is that kernel, too."""
    library = torch.library.Library("aten", "IMPL")
    for key in ("AutogradCPU", "CPU"):
        library.impl("dropout", lambda x, p, train: cuda_dropout(x, p, train), key)
    try:
        yield
    finally:
        library._destroy()


class FusedRMSNorm(torch.autograd.Function):
    """Allocates what the CUDA kernels do, and names them."""

    @staticmethod
    def forward(ctx, x, weight):
        y = torch.empty_like(x)
        rstd = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
        Stream.note("_fused_rms_norm", [x] if weight is None else [x, weight], [y, rstd])
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        grads = tuple(torch.empty_like(t) if needed else None
                      for t, needed in zip((x, weight), ctx.needs_input_grad))
        Stream.note("_fused_rms_norm_backward", [t for t in (dy, x, weight, rstd) if t is not None],
                    [g for g in grads if g is not None])
        del rstd, weight, x
        return grads


ATEN_RMS_NORM = F.rms_norm if hasattr(F, "rms_norm") else None


def cuda_rms_norm(input, normalized_shape, weight=None, eps=None):
    if torch.is_autocast_enabled("cpu") and weight is not None:
        weight, input = weight.float(), input.float()
    if len(normalized_shape) != 1 or weight is not None and input.dtype != weight.dtype:
        return ATEN_RMS_NORM(input, normalized_shape, weight, eps)
    return FusedRMSNorm.apply(input, weight)


ATEN_LINEAR, ATEN_ONE_HOT, ATEN_GROUP_NORM = F.linear, F.one_hot, torch.group_norm


def cuda_linear(input, weight, bias=None):
    """Where that is no one kernel (an input that is not contiguous), the bias is added in place, but under a
    dispatch mode (Linear.cpp)."""
    Stream.linears += 1
    try:
        return ATEN_LINEAR(input, weight, bias)
    finally:
        Stream.linears -= 1


def cuda_one_hot(tensor, num_classes=-1):
    """Put into zeros, and not compared with all classes, as under a dispatch mode (Onehot.cpp)."""
    if num_classes <= 0:
        return ATEN_ONE_HOT(tensor, num_classes)
    return torch.zeros(*tensor.shape, num_classes, dtype=torch.int64).scatter_(-1, tensor.unsqueeze(-1), 1)


def cuda_group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """Its input is one piece there, whatever the order of its elements was; a CPU keeps channels that come last
    (group_norm.cpp)."""
    if torch.is_autocast_enabled("cpu") and input.is_floating_point():
        input = input.float()
    return ATEN_GROUP_NORM(input.contiguous(), num_groups, weight, bias, eps, cudnn_enabled)


@contextlib.contextmanager
def as_on_cuda():
    saved = F.scaled_dot_product_attention, F.dropout, F.linear, F.one_hot, torch.group_norm
    torch.group_norm = cuda_group_norm
    F.scaled_dot_product_attention, F.dropout, F.linear, F.one_hot = cuda_attention, cuda_dropout, cuda_linear, cuda_one_hot
    if ATEN_RMS_NORM:
        F.rms_norm = cuda_rms_norm
    try:
        with dropout_of_aten():
            yield
    finally:
        F.scaled_dot_product_attention, F.dropout, F.linear, F.one_hot, torch.group_norm = saved
        if ATEN_RMS_NORM:
            F.rms_norm = ATEN_RMS_NORM


# --------------------------------------------------------------------------------------------
# Autocast with CUDA's lists of operators, on CPU tensors
# --------------------------------------------------------------------------------------------

def listed(name):
    """The overloads of one of the lists in torch's own header."""
    header = os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "autocast_mode.h")
    body = re.search(rf"#define {name}\(_\)((?:.*\\\n)*.*\n)", open(header).read()).group(1)
    for op, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", body):
        packet = getattr(aten, op, None)
        overload = overload or "default"
        if packet is not None and overload in packet.overloads():
            yield getattr(packet, overload)


def cast_all(x, dtype):
    """Last argument first, as gcc evaluates the arguments of the C++ kernels."""
    if isinstance(x, (list, tuple)):
        return type(x)([cast_all(y, dtype) for y in reversed(x)][::-1])
    wanted = isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64
    return x.to(dtype) if wanted else x


def cast_call(op, args, kwargs, dtype):
    """What is cast for a call dies behind it, first argument first, as in C++, and not as a tuple's members."""
    kwargs = {k: cast_all(kwargs[k], dtype) for k in reversed(kwargs)}
    cast = list(cast_all(args, dtype))[::-1]
    try:
        return op(*cast[::-1], **kwargs)
    finally:
        del args
        while cast:
            cast.pop()


def in_float32(op, args, kwargs):
    return cast_call(op, args, kwargs, torch.float32)


def into_float32(op, args, kwargs):
    if args[0].is_floating_point() and kwargs.get("dtype") is None and len(args) < len(op._schema.arguments):
        kwargs = {**kwargs, "dtype": torch.float32}
    return op(*args, **kwargs)


def in_lower_precision(op, args, kwargs):
    return cast_call(op, args, kwargs, torch.get_autocast_dtype("cpu"))


def in_widest(op, args, kwargs):
    wide = any(isinstance(x, torch.Tensor) and x.dtype == torch.float32 for x in pytree.tree_leaves((args, kwargs)))
    return cast_call(op, args, kwargs, torch.float32) if wide else op(*args, **kwargs)


def as_cuda_autocasts():
    """CPU's autocast knows other operators than CUDA's: what CUDA lets through is let through, what it
    alone casts gets its policy. Operators of lower precision that the CPU has too keep their C++ kernels,
    which know the cache of weights. The caller keeps what this returns."""
    key = torch._C.DispatchKey.AutocastCPU
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    cpu, cuda = (set(torch._C._dispatch_get_registrations_for_dispatch_key(k))
                 for k in ("AutocastCPU", "AutocastCUDA"))

    def kernel(op, policy):
        def call(*args, **kwargs):
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return policy(op, args, kwargs)
        return call

    for name in cpu - cuda:
        library.impl(name.removeprefix("aten::"), torch.library.fallthrough_kernel, allow_override=True)
    for name, policy in (("AT_FORALL_FP32", in_float32), ("AT_FORALL_FP32_SET_OPT_DTYPE", into_float32),
                         ("AT_FORALL_PROMOTE", in_widest), ("AT_FORALL_LOWER_PRECISION_FP", in_lower_precision)):
        for op in listed(name):
            registered = op.name().removesuffix(".default")
            if registered in cuda and (policy is not in_lower_precision or registered not in cpu):
                library.impl(op, kernel(op, policy), allow_override=True)
    return library


def autocast(dtype):
    return torch.autocast("cpu", DTYPES[dtype]) if dtype else contextlib.nullcontext()


@contextlib.contextmanager
def lists_of_values():
    """Tensor.tolist and torch.tensor read memory themselves: of a fake tensor they get what is known of it."""
    tolist, make = torch.Tensor.tolist, torch.tensor

    def of_values(tensor):
        if not isinstance(tensor, FakeTensor):
            return tolist(tensor)
        if tensor not in Stream.values:
            fail(f"the model asks for the values of a tensor ({dtype_name(tensor.dtype)}): what it does depends on data")
        with _disable_current_modes():
            return tolist(Stream.values[tensor])

    def of_numbers(data, **options):
        return make(pytree.tree_map(lambda x: x.item() if isinstance(x, FakeTensor) and x.dim() == 0 else x, data), **options)
    torch.Tensor.tolist, torch.tensor = of_values, of_numbers
    try:
        yield
    finally:
        torch.Tensor.tolist, torch.tensor = tolist, make


@contextlib.contextmanager
def ordered_cache(stream):
    """Autocast's cache of weights is a hash table of pointers, which it drops in an order of its own,
    behind the forward pass and behind what backward computes again: here in that of births."""
    clear = torch.clear_autocast_cache
    torch.clear_autocast_cache = lambda: stream.in_order(clear)
    try:
        yield
    finally:
        torch.clear_autocast_cache = clear


# --------------------------------------------------------------------------------------------
# The stream of one micro-batch
# --------------------------------------------------------------------------------------------

class Tables:
    """What variants share: names, types of storages, calls. A row's index is its number."""

    def __init__(self):
        self.ops, self.types, self.calls = {}, {}, {}

    @staticmethod
    def number(table, row):
        return table.setdefault(row, len(table))

    def op(self, name):
        return self.number(self.ops, name)

    @staticmethod
    def rows(table):
        return [json.loads(row) if row[:1] == "[" else row for row in table]


@functools.lru_cache(maxsize=None)
def op_name(func):
    return str(func).removeprefix("aten.").removesuffix(".default")


@functools.lru_cache(maxsize=None)
def makes_view(func):
    returns = func._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


@functools.lru_cache(maxsize=None)
def depends_on_data(func):
    return torch.Tag.dynamic_output_shape in func.tags


SILENT = {"empty.memory_format", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
          "_local_scalar_dense", "lift_fresh", "detach", "alias", "resize_", "record_stream", "sym_size.int"}


# What has a tensor's shape, and nothing of its values.
LIKE = {"ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full"}


def is_number_of_python(func, tensor):
    """What torch.tensor([...]) or an index by a list is made of first: the host's, and gone. What lives is the
    copy that lift_fresh returns."""
    return func is aten.lift_fresh.default and not isinstance(tensor, FakeTensor)


def is_dense(tensor):
    """Elements are one after the other, in whatever order of dims."""
    step = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != step:
            return False
        step *= size
    return True


def grouped_mm(x, y, offs=None, bias=None, out_dtype=None):
    """Of dtypes that fake tensors have no kernel for: what both a CPU and a GPU fall back to allocates its result
    alone (_grouped_mm_fallback of GroupedMMUtils.h)."""
    from torch._meta_registrations import _create_grouped_mm_output_tensor
    return _create_grouped_mm_output_tensor(x, y, offs, out_dtype or x.dtype)


def simple(value):
    if isinstance(value, (bool, int, float)):
        return value if abs(value) < float("inf") else None
    if isinstance(value, (list, tuple)) and all(isinstance(v, (int, bool)) for v in value):
        return list(value)
    return None


def flops_of(func, args, kwargs, out):
    count = flop_registry.get(func._overloadpacket)
    if count is None:
        return 0
    try:
        return int(count(*args, **kwargs, out_val=out))
    except Exception:       # a call that its formula does not foresee
        return 0


class Stream(TorchDispatchMode):
    """Writes down births, deaths and calls while it is entered."""

    current = None
    linears = maths = 0     # calls of nn.functional.linear, and of attention that is written out, that are under way
    values = WeakIdKeyDictionary()      # of integers and truth values, those of an earlier step too

    def __init__(self, tables, places):
        super().__init__()
        self.tables = tables
        self.fake = fake_mode()
        self.place = dict(places)       # id of a storage -> "p0", "i0", "m0" or the number of a buffer
        self.kept = []                  # what keeps those ids from meaning something else
        self.constants = []             # storages that were there before, and are nothing else
        self.refs = {}
        self.steps = []
        self.dead, self.waiting = [], False     # not yet written down
        self.buffers = 0
        self.backward = False
        self.evaluation = 0             # node of the backward pass that is run
        self.incoming = ()              # storages of the gradients that it was given
        self.born_in = {}               # id of a storage -> evaluation
        self.sums = []                  # (step, buffer): additions that may be in place
        self.given = {}                 # gradients that are the strategy's, each with its parameter's name
        self.guessed = collections.Counter()

    # ---- storages ----

    def death(self, key):
        self.refs.pop(key, None)
        number = self.place.pop(key, None)
        self.born_in.pop(key, None)
        if number is not None and number not in self.given:
            self.dead.append(number)
            if not self.waiting:
                self.bury()

    def bury(self):
        self.steps += [f"-{number}" for number in sorted(self.dead)]
        self.dead.clear()

    def in_order(self, function):
        """What dies in it dies in the order of births."""
        self.waiting = True
        function()
        self.waiting = False
        self.bury()

    def birth(self, tensor, op):
        storage = tensor.untyped_storage()
        key = id(storage)
        if key in self.place:
            return
        size = storage.nbytes()
        if size == 0:
            return
        row = json.dumps([op, dtype_name(tensor.dtype), list(tensor.shape), size], separators=(",", ":"))
        self.place[key] = self.buffers
        self.buffers += 1
        self.refs[key] = weakref.ref(storage, lambda _, key=key: self.death(key))
        self.born_in[key] = self.evaluation
        self.steps.append(f"+{Tables.number(self.tables.types, row)}")

    def place_of(self, tensor, registered=False):
        """None: it takes no memory, or none of a GPU's: a number that is no buffer of a module stays
        where it was made when the model is moved, and kernels take it from there."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self.place:
            if storage.nbytes() == 0 or tensor.dim() == 0 and not registered:
                return None
            self.place[key] = f"m{len(self.constants)}"
            self.constants.append([dtype_name(tensor.dtype), list(tensor.shape), storage.nbytes()])
            self.kept.append(storage)
        return self.place[key]

    # ---- calls ----

    @staticmethod
    def describe(tensor, position):
        strides = 0 if tensor.is_contiguous() else list(tensor.stride())
        return [dtype_name(tensor.dtype), list(tensor.shape), strides, position]

    def call(self, name, ins, outs, arguments, flops):
        """ins, outs: (tensor, position of the argument)."""
        places, described = [], ([], [])
        for side, tensors in zip(described, (ins, outs)):
            for tensor, position in tensors:
                place = self.place_of(tensor)
                if place is not None:
                    if place in self.given:
                        fail(f"{name} reads what has the gradient of {self.given[place]}, too (parameters joined by torch.cat "
                             "or torch.stack where they are used): what lives as long as both is not recorded")
                    places.append(str(place))
                    side.append(self.describe(tensor, position))
        if not places:
            return
        row = json.dumps([self.tables.op(name), described[0], described[1], arguments, flops],
                         separators=(",", ":"))
        again = "r" if self.backward and torch.is_grad_enabled() else ""
        self.steps.append(f"{Tables.number(self.tables.calls, row)}:{','.join(places)}{again}")

    @staticmethod
    def note(name, ins, outs):
        """A kernel that no call of the dispatcher stands for."""
        if Stream.current is not None:
            number = lambda tensors: [(t, i) for i, t in enumerate(tensors)]
            Stream.current.call(name, number(ins), number(outs), {}, 0)

    def is_sum(self, func, args, tensors):
        """Whether this adds to its first operand on real tensors, if nobody needs that then: a linear layer its bias,
        attention its mask, or the engine two gradients. The first of them is an earlier node's, and was not given to the one that is run."""
        if (self.linears or self.maths) and func is aten.add.Tensor:
            return True
        if not self.backward or func is not aten.add.Tensor or torch.is_grad_enabled():
            return False
        if len(args) != 2 or len(tensors) != 2 or tensors[0][0].shape != tensors[1][0].shape:
            return False
        key = id(args[0].untyped_storage())
        return 0 < self.born_in.get(key, 0) < self.evaluation and key not in self.incoming

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default:
            return self.scalar(args[0])
        if func is aten.roll.default and len(args[1]) > 1:      # one dim after the other (roll_common of TensorTransformations.h)
            first = self.__torch_dispatch__(func, types, (args[0], args[1][:1], args[2][:1]))
            return self.__torch_dispatch__(func, types, (first, args[1][1:], args[2][1:]))
        name = op_name(func)
        within = self.within_repeat(args[0]) if func is aten.repeat_interleave.Tensor else None
        if name == "_grouped_mm" and args[0].dtype != torch.bfloat16:
            out = grouped_mm(*args, **kwargs)
        elif func is aten.native_group_norm_backward.default:   # of a gradient in one piece, whatever it was given
            out = func(args[0].contiguous(), *args[1:], **kwargs)
        else:
            out = self.of_known_shape(func, args, kwargs) if depends_on_data(func) else func(*args, **kwargs)
        outs = [(t, i) for i, t in enumerate(out if isinstance(out, (tuple, list)) else (out,))
                if isinstance(t, torch.Tensor)]
        self.follow(func, args, kwargs, [t for t, _ in outs])
        for value in args:      # a view of what was there before is no birth
            if isinstance(value, torch.Tensor) and not is_number_of_python(func, value):
                self.place_of(value)
        before = self.buffers
        for tensor, _ in outs:
            self.birth(tensor, self.tables.op(name))
        mutable = func._schema.is_mutable
        if name in SILENT or not outs or not mutable and (makes_view(func) or self.buffers == before):
            return out
        ins, arguments = [], {}
        for position, value in enumerate(args):
            for v in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(v, torch.Tensor):
                    ins.append((v, position))
            if simple(value) is not None:
                arguments[str(position)] = simple(value)
        for key, value in kwargs.items():
            if isinstance(value, torch.Tensor):
                ins.append((value, -1))
            elif simple(value) is not None:
                arguments[key] = simple(value)
        if self.is_sum(func, args, ins):
            if self.maths or not args[0]._is_view() and is_dense(args[0]):
                self.sums.append((len(self.steps), self.place_of(args[0])))
            if self.backward:       # the engine's sum is where its first operand was: a third gradient is added there, too
                self.born_in[id(out.untyped_storage())] = self.born_in.get(id(args[0].untyped_storage()), 0)
        self.call(name, ins, outs, arguments, flops_of(func, args, kwargs, out))
        return out

    def within_repeat(self, repeats):
        """What that kernel itself calls, on a GPU, too (repeat_interleave_common of Repeat.h): alive while it is held."""
        made = [self.__torch_dispatch__(aten.cumsum.default, (), (repeats, 0))]
        if not repeats.is_contiguous():
            made.append(self.__torch_dispatch__(aten.clone.default, (), (repeats,), {"memory_format": torch.contiguous_format}))
        return made

    # ---- values ----

    def know_inputs(self, inputs):
        """Whatever is no number of a pixel or a sound is zero, if nobody said what it is."""
        for t in pytree.tree_leaves(inputs):
            if isinstance(t, torch.Tensor) and not t.is_floating_point() and t not in self.values:
                with _disable_current_modes():
                    self.know(t, torch.zeros(t.shape, dtype=t.dtype))

    def know(self, tensor, value):
        if value.numel() <= KNOWN_ELEMENTS:
            self.values[tensor] = value

    def follow(self, func, args, kwargs, outs):
        """What follows from known numbers is computed: models ask whether a mask is all ones, how long a
        sequence is, or which picture is black."""
        if func is aten.rand.default and outs[0].numel() == 1:      # such as whether a layer is dropped: it seldom is
            self.guessed["a number drawn at random was taken for 0.5: what is done as it is less, such as dropping a layer, is not "
                         "what every step does"] = 1
            with _disable_current_modes():
                self.values[outs[0]] = torch.full(outs[0].shape, 0.5, dtype=outs[0].dtype)
            return
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        limit = max([KNOWN_ELEMENTS] + [t.numel() for t in tensors if t in self.values])
        if not outs or any(t.numel() > limit or t.is_floating_point() and not tensors for t in outs):
            return
        like = op_name(func) in LIKE and not any(t.is_floating_point() for t in outs)
        if not like and any(isinstance(t, FakeTensor) and t not in self.values for t in tensors):
            return

        def real(t):
            if not isinstance(t, torch.Tensor):
                return t
            return torch.empty(t.shape, dtype=t.dtype) if like else self.values.get(t, t)
        try:
            with _disable_current_modes():
                got = func(*pytree.tree_map(real, args), **pytree.tree_map(real, kwargs))
        except Exception:
            return
        for tensor, value in zip(outs, got if isinstance(got, (tuple, list)) else (got,)):
            self.values[tensor] = value

    def of_known_shape(self, func, args, kwargs):
        """What a call returns whose shape follows from values: where those of all integers are known, so is it. Of
        other numbers a shape does not follow, if there are integers."""
        tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        integers = [t for t in tensors if not t.is_floating_point()]
        if not integers or any(t not in self.values for t in integers):
            return self.of_any_shape(func, args, kwargs)

        def real(t):
            if not isinstance(t, torch.Tensor):
                return t
            return self.values[t] if t in self.values else torch.zeros(t.shape, dtype=t.dtype)

        with _disable_current_modes():
            got = func(*pytree.tree_map(real, args), **pytree.tree_map(real, kwargs))
        return pytree.tree_map(lambda t: self.fake.from_tensor(t) if isinstance(t, torch.Tensor) else t, got)

    @staticmethod
    def of_any_shape(func, args, kwargs):
        try:
            return func(*args, **kwargs)
        except DynamicOutputShapeException:
            fail(f"the model calls {op_name(func)}, whose result has a shape that depends on data (such as the tokens of one "
                 "expert): a step is not as the next one, and none stands for all. Written over all tokens, such as by products "
                 "of groups (torch._grouped_mm), shapes depend on none")

    def scalar(self, tensor):
        if tensor in self.values:
            with _disable_current_modes():
                return self.values[tensor].item()
        if tensor.dtype == torch.bool:
            self.guessed["a condition on data was taken for true"] += 1
            return True
        fail(f"the model asks for the value of a tensor ({dtype_name(tensor.dtype)}): what it does depends on data")

    # ---- the text ----

    def text(self):
        for step, buffer in self.sums:
            after = step + 1
            while after < len(self.steps) and self.steps[after][0] == "-":
                if self.steps[after] == f"-{buffer}":
                    self.steps[step] += "a"
                    break
                after += 1
        return " ".join(self.steps)


# --------------------------------------------------------------------------------------------
# Modules that may be units, and what happens at their borders
# --------------------------------------------------------------------------------------------

def candidates(model):
    """(name, module) of what users wrap: members of lists of modules that have parameters, the
    outermost lists only."""
    found, inside = [], set()
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in inside):
            continue
        children = list(module.named_children())
        alike = len({type(child) for _, child in children}) == 1 and len(children) > 1
        if isinstance(module, nn.ModuleList) or isinstance(module, nn.Sequential) and name and alike:
            members = [(f"{name}.{n}" if name else n, child) for n, child in children
                       if any(True for _ in child.parameters())]
            if members:
                found += members
                inside.add(name + ".")
    return found


def called_once(model, found, run):
    """Those of the candidates whose forward runs once a micro-batch."""
    calls = collections.Counter()
    handles = [module.register_forward_pre_hook(lambda m, _: calls.update([id(m)])) for _, module in found]
    run()
    for handle in handles:
        handle.remove()
    return [(name, module) for name, module in found if calls[id(module)] == 1]


def of_own_parameters(found):
    """Those that have no parameter of another: fully_shard takes it for one unit alone, and then fails."""
    users = collections.Counter(id(p) for _, module in found for p in set(module.parameters()))
    own = [(name, module) for name, module in found if all(users[id(p)] == 1 for p in module.parameters())]
    left = [name for name, module in found if (name, module) not in own]
    if left:
        print(f"record.py: {', '.join(left)}: share parameters, so are no units of their own", file=sys.stderr)
    return own


def cast_tensors(tree, dtype):
    def cast(t):
        if not isinstance(t, torch.Tensor) or not t.is_floating_point() or t.dtype == dtype:
            return t
        other = t.to(dtype)
        if t in Stream.values:
            with _disable_current_modes():
                Stream.values[other] = Stream.values[t].to(dtype)
        return other
    return pytree.tree_map(cast, tree)


def grad_tensors(tree):
    """Those that need a gradient, as FullyShardedDataParallel finds them in what a module returns."""
    found = []
    apply_to_tensors(lambda t: found.append(t) if t.requires_grad else None, tree)
    tensors = tuple(found)
    found.clear()       # its functions call themselves, and so live until they are collected
    return tensors


class PostBackward(torch.autograd.Function):
    """Its node runs when the gradients of a module's inputs are there."""

    @staticmethod
    def forward(ctx, write, *inputs):
        ctx.write = write
        return inputs

    @staticmethod
    def backward(ctx, *grads):
        ctx.write()
        return (None,) + grads


class Borders:
    """Hooks on the root and on units. fully_shard's cast a module's inputs and pass them through a node,
    FullyShardedDataParallel's cast the root's."""

    def __init__(self, stream, root, units, hooks, dtype):
        self.stream, self.hooks, self.dtype = stream, hooks, dtype
        self.seen, self.queued = set(), False
        self.begun = {}     # module -> number of the next node when its forward began
        self.handles = []
        for index, module in [("r", root)] + list(enumerate(units)):
            self.handles.append(module.register_forward_pre_hook(self.pre(index), prepend=True, with_kwargs=True))
            self.handles.append(module.register_forward_hook(self.post(index)))

    def write(self, step):
        self.stream.steps.append(step)

    def pre(self, index):
        def hook(module, args, kwargs):
            cast = self.hooks == "fsdp" or self.hooks == "fsdp1" and index == "r"
            if cast:
                narrow = functools.partial(cast_tensors, dtype=self.dtype)
                args, kwargs = apply_to_tensors(narrow, args), apply_to_tensors(narrow, kwargs)
            self.write(f"({index}")
            if self.hooks in ("plain", "fsdp1") and index != "r" and index not in self.begun:
                self.begun[index] = torch.autograd._get_sequence_nr()
            if self.hooks != "fsdp":
                self.post_backward(index, pytree.tree_leaves((args, kwargs)))
                return (args, kwargs) if cast else None
            tensors = collect_grad_tensors((args, kwargs)) if torch.is_grad_enabled() else ()
            if tensors:
                passed = PostBackward.apply(lambda: self.write(f">{index}"), *tensors)
                del tensors
                args, kwargs = replace_grad_tensors((args, kwargs), iter(passed))
                del passed
            return args, kwargs
        return hook

    def post_backward(self, index, leaves):
        """Without nodes: when the gradients of all inputs are there."""
        inputs = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
        missing = [len(inputs)]

        def hook(grad):
            missing[0] -= 1
            if missing[0] == 0:
                self.write(f">{index}")
        for t in inputs:
            t.register_hook(hook)

    def post(self, index):
        find = collect_grad_tensors if self.hooks == "fsdp" else grad_tensors

        def hook(module, args, output):
            self.write(f"){index}")
            for t in find(output):
                t.register_hook(self.pre_backward(index, t.grad_fn))
        return hook

    def come_back(self, number):
        """The engine is at a node of that number: later ones ran before it."""
        for index, begun in reversed(self.begun.copy().items()):
            if number < begun and index in self.seen:
                del self.begun[index]
                self.write(f"|{index}")

    def pre_backward(self, index, node):
        number = node._sequence_nr() if node is not None else 0

        def hook(grad):
            self.come_back(number)
            if not self.queued:
                self.queued = True
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self.write("=final"))
            if index in self.seen:
                return
            if index != "r" and not self.seen - {"r"}:
                self.write("=blocks")
            self.seen.add(index)
            self.write(f"<{index}")
        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


# --------------------------------------------------------------------------------------------
# Hooks on every module, as DeepSpeed's ZeRO-3 has them (deepspeed 0.19.8, parameter_offload.py)
# --------------------------------------------------------------------------------------------

class OwnLinear(torch.autograd.Function):
    """zero/linear.py: saves the parameter itself, which is gathered again for backward."""

    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        if input.dim() == 2 and bias is not None:
            return torch.addmm(bias, input, weight.t())
        output = input.matmul(weight.t())
        if bias is not None:
            output += bias
        return output

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        dim = grad_output.dim()
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.matmul(weight)
        if ctx.needs_input_grad[1]:
            if dim > 2:
                grad_weight = grad_output.reshape(-1, grad_output.shape[-1]).t().matmul(
                    input.reshape(-1, input.shape[-1]))
            elif dim == 1:
                grad_weight = grad_output.unsqueeze(-1) * input.unsqueeze(0)
            else:
                grad_weight = grad_output.t().matmul(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output if dim == 1 else grad_output.sum(list(range(dim - 1)) if dim > 2 else 0)
        return grad_input, grad_weight, grad_bias


def on_tensors(function, value):
    """apply_to_tensors_only: in lists, tuples and dictionaries, which are changed in place."""
    if isinstance(value, (tuple, list)):
        done = [on_tensors(function, v) for v in value]
        return type(value)(*done) if hasattr(value, "_fields") else type(value)(done)
    if isinstance(value, dict):
        for key in value.keys():
            value[key] = on_tensors(function, value[key])
        return value
    return function(value) if isinstance(value, torch.Tensor) else value


class BeforeBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, called, output):
        ctx.called = called
        called.outputs += 1
        return output.detach()

    @staticmethod
    def backward(ctx, grad):
        if ctx.called.outputs > 0:
            ctx.called.write("[")
            ctx.called.outputs -= 1
        return None, grad


class BehindBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, called, input):
        ctx.called = called
        if input.requires_grad:
            called.inputs += 1
        return input.detach()

    @staticmethod
    def backward(ctx, grad):
        ctx.called.inputs -= 1
        if ctx.called.inputs == 0:
            ctx.called.write("]")
        return None, grad


LEAVES = {"transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",        # leaf_module_config.py
          "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
          "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock"}


def is_leaf(module):
    """Whether DeepSpeed puts no hooks within it, by default."""
    return f"{type(module).__module__}.{type(module).__qualname__}" in LEAVES


class Called:
    """The hooks of one module, and what they count."""

    def __init__(self, calls, index, module):
        self.calls, self.index = calls, index
        self.inputs = self.outputs = 0
        self.handles = [module.register_forward_pre_hook(lambda m, args: self.enter()),
                        module.register_forward_hook(lambda m, args, output: self.leave()),
                        module.register_forward_hook(self.wrap_output),
                        module.register_forward_pre_hook(self.wrap_inputs)]
        if is_leaf(module):     # reduce_leaf_module_grads
            self.handles.append(module.register_full_backward_hook(lambda m, inputs, outputs: None))

    def write(self, kind):
        self.calls.stream.steps.append(f"{kind}{self.index}")

    def enter(self):
        self.write("{")
        self.calls.open.append(self.index)

    def leave(self):
        self.calls.open.pop()
        self.write("}")

    def wrap_output(self, module, args, output):
        return on_tensors(lambda t: BeforeBackward.apply(self, t), output)

    def wrap_inputs(self, module, args):
        self.inputs = 0
        return on_tensors(lambda t: BehindBackward.apply(self, t), args)


def called_modules(model):
    """(name, module) of all, parents first, as often as they are found; not of those in leaf modules."""
    def visit(name, module):
        yield name, module
        for child_name, child in module.named_children() if not is_leaf(module) else ():
            yield from visit(f"{name}.{child_name}" if name else child_name, child)
    return list(visit("", model))


def called_table(model, external):
    """What the header says of them."""
    index = {id(p): i for i, p in enumerate(model.parameters())}
    return [[name, [index[id(p)] for p in module.parameters(recurse=is_leaf(module))], external.get(i, [])]
            + ([type(module).__name__] if is_leaf(module) else []) for i, (name, module) in enumerate(called_modules(model))]


class Parameters(dict):
    """A module's parameters, which tells when a module reads them while their own (`called`: that, or the leaf
    module that it is in) is not called: to DeepSpeed they are that module's, too, from then on (ZeROOrderedDict)."""

    def __init__(self, calls, module, called, index):
        super().__init__(module._parameters)
        self.calls, self.called, self.index = calls, called, index

    def __getitem__(self, key):
        param = super().__getitem__(key)
        within = self.calls.open
        if param is not None and within and all(self.calls.modules[i] is not self.called for i in within):
            found = self.calls.external.setdefault(within[-1], [])
            if self.index[id(param)] not in found:
                found.append(self.index[id(param)])
        return param


class Calls:
    def __init__(self, stream, model):
        self.stream, self.open, self.external = stream, [], {}
        self.modules = [module for _, module in called_modules(model)]
        self.of = [Called(self, i, module) for i, module in enumerate(self.modules)]
        index = {id(p): i for i, p in enumerate(model.parameters())}
        self.parameters = [(module, module._parameters) for module in model.modules()]
        around = {within: leaf for leaf in self.modules if is_leaf(leaf) for within in leaf.modules()}
        for module, _ in self.parameters:
            module._parameters = Parameters(self, module, around.get(module, module), index)
        self.linear = F.linear
        F.linear = lambda input, weight, bias=None: OwnLinear.apply(input, weight, bias)

    def remove(self):
        F.linear = self.linear
        for module, parameters in self.parameters:
            module._parameters = parameters
        for called in self.of:
            for handle in called.handles:
                handle.remove()


class SavedView:
    """What a node keeps of a parameter's memory: a tensor that is not the parameter itself."""

    def __init__(self, stream, index, tensor):
        self.stream, self.index, self.tensor = stream, index, tensor
        stream.steps.append(f"s{index}")

    def __del__(self):
        self.stream.steps.append(f"u{self.index}")


def saved_views(stream, params):
    """Says of each tensor that a node saves whether it is such a view. What comes back of other tensors is no
    tensor with a node, which might be the one that saves it."""
    of = {id(p.untyped_storage()): i for i, p in enumerate(params)}
    own = {id(p) for p in params}

    def pack(tensor):
        index = of.get(id(tensor.untyped_storage()))
        kept = tensor.detach() if tensor.requires_grad else tensor
        return kept if index is None or id(tensor) in own else SavedView(stream, index, kept)
    return torch.autograd.graph.saved_tensors_hooks(
        pack, lambda kept: kept.tensor if isinstance(kept, SavedView) else kept)


# --------------------------------------------------------------------------------------------
# One micro-batch
# --------------------------------------------------------------------------------------------

def loss_of(output, loss):
    if loss is not None:
        return loss(output)
    if isinstance(output, torch.Tensor) and output.dim() == 0:
        return output
    if getattr(output, "loss", None) is not None:
        return output.loss
    fail("the model's output has no loss: build(batch, seq) of record.py FILE.py:build returns (model, inputs, loss), where "
         "loss(output) is a scalar")


def call_model(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def nodes_of(grad_fn):
    seen, stack = set(), [grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [n for n, _ in node.next_functions]
    return seen


def of_own_storage(tensors):
    """Each storage's first: one tensor may be several arguments."""
    found = {}
    for t in tensors:
        found.setdefault(id(t.untyped_storage()), t)
    return list(found.values())


def record(model, inputs, loss, units, tables, places, hooks, dtype, lower):
    """The steps of one variant, and what it needs to be read. Where no hook casts inputs, they come
    in the dtype that parameters have."""
    if hooks in ("plain", "zero3"):
        inputs = cast_tensors(inputs, dtype)
    stream = Stream(tables, places)
    tensors = of_own_storage(t for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor))
    for i, t in enumerate(tensors):
        stream.place[id(t.untyped_storage())] = f"i{i}"
    stream.know_inputs(inputs)
    for buffer in model.buffers():
        stream.place_of(buffer, registered=True)
    names, params = zip(*model.named_parameters())
    grads, handles = [], []

    def complete(index):
        def hook(param):
            number = stream.place_of(param.grad)
            if not isinstance(number, int) or number in stream.given:
                fail(f"the gradient of {names[index]} is a part of a tensor that others are parts of, too (parameters joined by "
                     "torch.cat or torch.stack where they are used): what lives as long as all of them is not recorded")
            stream.given[number] = names[index]
            stream.steps.append(f"g{index}:{number}")
            grads.append(param.grad)
            param.grad = None
        return hook

    def before(number, given):
        borders.come_back(number)
        stream.evaluation += 1
        stream.incoming = {id(t.untyped_storage()) for t in given if t is not None}

    for index, param in enumerate(params):
        if param.requires_grad:
            handles.append(param.register_post_accumulate_grad_hook(complete(index)))
    borders = Borders(stream, model, units, hooks, dtype)
    calls = Calls(stream, model) if hooks == "zero3" else None
    Stream.current = stream
    gc.collect()
    gc.disable()
    try:
        with stream, ordered_cache(stream):
            with saved_views(stream, params) if calls else contextlib.nullcontext():
                with autocast(lower):
                    output = call_model(model, inputs)
                if loss is not None:
                    stream.steps.append("=logits")
                scalar = loss_of(output, loss)
                del output
            stream.steps.append("=loss")
            for node in nodes_of(scalar.grad_fn):
                if type(node).__name__ == "CheckpointFunctionBackward":
                    stream.guessed["a reentrant checkpoint computes backward within backward: under fsdp1 some buffers die in "
                                   "another order than is planned (use_reentrant=False: in this one)"] = 1
                handles.append(node.register_prehook(functools.partial(before, node._sequence_nr())))
            node = None
            stream.backward = True
            scalar.backward()
            del scalar
    finally:
        gc.enable()
        Stream.current = None
        borders.remove()
        if calls:
            calls.remove()
        for handle in handles:
            handle.remove()
    left = [k for k, n in stream.place.items() if isinstance(n, int) and n not in stream.given]
    for key in left:
        stream.steps.append(f"-{stream.place[key]}")
    stream.refs.clear()
    notes = dict(stream.guessed)
    if left:
        many = "1 tensor outlives" if len(left) == 1 else f"{len(left)} tensors outlive"
        notes[f"{many} the step: taken to die at its end"] = 1
    return {"inputs": [[dtype_name(t.dtype), list(t.shape), t.untyped_storage().nbytes()] for t in tensors],
            "external": calls.external if calls else None,
            "constants": stream.constants, "notes": sorted(notes), "steps": stream.text()}


# --------------------------------------------------------------------------------------------
# Checkpointing
# --------------------------------------------------------------------------------------------

def selective_contexts():
    """torchtitan's policy: products and attention are kept, but every second mm."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    kept = {aten.mm.default, aten.addmm.default, aten.bmm.default,
            aten._scaled_dot_product_flash_attention.default,
            aten._scaled_dot_product_efficient_attention.default,
            aten._scaled_dot_product_cudnn_attention.default}
    count = collections.Counter()

    def policy(ctx, func, *args, **kwargs):
        if func == aten.mm.default:
            mode = "recompute" if ctx.is_recompute else "forward"
            count[mode] += 1
            if count[mode] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if func in kept else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def replace(model, old, new):
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if child is old and module is not new:
                setattr(module, name, new)


@contextlib.contextmanager
def checkpointed(model, blocks, how):
    """The blocks, wrapped as torch's checkpoint_wrapper wraps them."""
    if how == "none":
        yield blocks
        return
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    keywords = {"preserve_rng_state": False, "early_stop": True}
    if how == "selective":
        keywords["context_fn"] = selective_contexts
    wrapped = [checkpoint_wrapper(block, **keywords) for block in blocks]
    for block, wrapper in zip(blocks, wrapped):
        replace(model, block, wrapper)
    try:
        yield wrapped
    finally:
        for block, wrapper in zip(blocks, wrapped):
            replace(model, wrapper, block)


# --------------------------------------------------------------------------------------------
# Models
# --------------------------------------------------------------------------------------------

def parts_of(config):
    """A config, and those of the models that it is of."""
    return [config] + [part for part in vars(config).values() if hasattr(part, "model_type")]


def plain_token(config):
    """One that is nothing special to any part of a model: one that pads would be masked, one of an image has to have it."""
    ids = [value for part in parts_of(config) for name, value in vars(part).items() if name.endswith(("token_id", "token_index"))]
    special = {i for value in ids for i in (value if isinstance(value, (list, tuple)) else (value,))}
    return next(i for i in itertools.count() if i not in special)


def fake_mode():
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def known(real):
    """A fake tensor of which that is known; where tensors are real, itself."""
    if fake_mode() is None:
        return real
    made = torch.zeros(real.shape, dtype=real.dtype)
    Stream.values[made] = real
    return made


def tokens(values):
    if fake_mode() is None:
        return torch.tensor(values, dtype=torch.int64)
    with _disable_current_modes():
        real = torch.tensor(values, dtype=torch.int64)
    return known(real)


def hf_inputs(model, config, batch, seq, pictures=None):
    """What the class's forward asks for, with labels where it takes them. `pictures`: of a sequence, and their size."""
    names = inspect.signature(model.forward).parameters
    whole = lambda *shape: torch.zeros(*shape, dtype=torch.int64)
    plain = plain_token(config)
    text = lambda: tokens([[plain] * seq] * batch)
    inputs = {}
    if "input_ids" in names:
        inputs["input_ids"] = text()
    vision = getattr(config, "vision_config", None) or config
    if "pixel_values" in names and "input_ids" in names and is_told_where(config):
        inputs |= with_pictures(model, config, names, batch, seq, pictures or (1, None), plain)
    elif pictures:
        fail(f"--images and --image-size: {type(model).__name__} takes no pictures among its tokens")
    elif "pixel_values" in names and hasattr(vision, "image_size"):
        inputs["pixel_values"] = torch.zeros(batch, getattr(vision, "num_channels", 3), *pair(vision.image_size))
    elif "pixel_values" in names:       # a network of convolutions takes any size: ImageNet's
        inputs["pixel_values"] = torch.zeros(batch, getattr(vision, "num_channels", 3), 224, 224)
    if "input_features" in names and hasattr(config, "input_feat_per_channel"):
        inputs["input_features"] = torch.zeros(batch, seq, config.input_feat_per_channel * config.input_channels)
    elif "input_features" in names and hasattr(config, "num_mel_bins"):
        inputs["input_features"] = torch.zeros(batch, config.num_mel_bins, 2 * config.max_source_positions)
    if "input_values" in names and hasattr(config, "frequency_stride"):     # a spectrogram
        inputs["input_values"] = torch.zeros(batch, config.max_length, config.num_mel_bins)
    elif "input_values" in names:
        inputs["input_values"] = torch.zeros(batch, samples_of(config, seq))
    if "return_loss" in names:
        inputs["return_loss"] = True
    elif "labels" in names:
        of_text = "input_ids" in names or "decoder_input_ids" in names
        of_class = type(model).__name__.endswith(("Classification",))
        of_tokens = of_text or type(model).__name__.endswith("ForCTC")
        inputs["labels"] = text() if of_tokens and not of_class else whole(batch)
    return inputs


# Pictures among the tokens of a sequence. What a processor would make of one goes by what
# get_image_features asks for beside pixel_values; how many tokens it is, by what that gives.

def pair(size):
    return tuple(size) if isinstance(size, (list, tuple)) else (size, size)


def first_of(config, *names):
    """The first of these that a config has."""
    found = [getattr(config, name) for name in names if getattr(config, name, None) is not None]
    return found[0] if found else fail(f"{type(config).__name__} has none of {', '.join(names)}")


def is_told_where(config):
    """Whether pictures have tokens of their own (CLIP's have none)."""
    return any(getattr(config, name, None) is not None for name in ("image_token_id", "image_token_index"))


def patches_of(vision, size, multiple):
    """Height and width in patches, which come in squares of so many."""
    sides = [side // length for side, length in zip(size, pair(vision.patch_size))]
    lengths = [length * multiple for length in pair(vision.patch_size)]
    if any(side % length for side, length in zip(size, lengths)) or 0 in sides:
        fail(f"--image-size {size[0]}x{size[1]}: this model's are multiples of {lengths[0]}x{lengths[1]}")
    return sides


def patch_elements(vision):
    height, width = pair(vision.patch_size)
    return getattr(vision, "num_channels", getattr(vision, "in_channels", 3)) * height * width


def packed(model, config, batch, count, size):
    """Qwen2-VL's and its like: patches of all pictures in one row, each of temporal_patch_size frames."""
    vision = config.vision_config
    height, width = patches_of(vision, size, vision.spatial_merge_size)
    return {"pixel_values": torch.zeros(batch * count * height * width, vision.temporal_patch_size * patch_elements(vision)),
            "image_grid_thw": tokens([[1, height, width]] * batch * count)}


def at_positions(model, config, batch, count, size):
    """Gemma 4's: patches, and where each is."""
    vision = config.vision_config
    height, width = patches_of(vision, size, vision.pooling_kernel_size)
    return {"pixel_values": torch.zeros(batch * count, height * width, patch_elements(vision)),
            "image_position_ids": tokens([[[x, y] for y in range(height) for x in range(width)]] * batch * count)}


def of_shapes(model, config, batch, count, size):
    """SigLIP 2's: patches, up to a number of them."""
    height, width = patches_of(config.vision_config, size, config.downsample_factor)
    return {"pixel_values": torch.zeros(batch * count, height * width, patch_elements(config.vision_config)),
            "spatial_shapes": tokens([[height, width]] * batch * count),
            "pixel_attention_mask": tokens([[1] * (height * width)] * batch * count)}


def of_sizes(model, config, batch, count, size):
    """Pixtral's are as they are; LLaVA-NeXT's are cut into tiles of its tower's size, behind the whole as one."""
    shape = (3, *size)
    if hasattr(config, "image_grid_pinpoints"):
        side = config.vision_config.image_size
        tiles = sys.modules[type(model).__module__].image_size_to_num_patches(list(size), config.image_grid_pinpoints, side)
        shape = (tiles, 3, side, side)
    return {"pixel_values": torch.zeros(batch * count, *shape), "image_sizes": tokens([list(size)] * batch * count)}


def of_one_size(model, config, batch, count, size):
    return {"pixel_values": torch.zeros(batch * count, 3, *size)}


def in_rows(model, config, batch, count, size):
    """Idefics 3's: a row of each sequence's, of which those that are black count as none."""
    with _disable_current_modes():
        white = torch.ones(()).expand(batch, count, 3, *size)
    return {"pixel_values": known(white) if fake_mode() else white.contiguous()}


def attended(config, batch, seq, count, size):
    """Llama 3.2's have no places among tokens: what is said attends to their tiles."""
    vision = config.vision_config
    ones = lambda *shape: torch.ones(shape, dtype=torch.int64).tolist()
    with _disable_current_modes():
        ids, mask = ones(batch, count), ones(batch, count, vision.max_num_tiles)
        seen = ones(batch, seq, count, vision.max_num_tiles)
    return {"pixel_values": torch.zeros(batch, count, vision.max_num_tiles, 3, *size), "aspect_ratio_ids": tokens(ids),
            "aspect_ratio_mask": tokens(mask), "cross_attention_mask": tokens(seen)}


PICTURES = {"image_grid_thw": packed, "image_position_ids": at_positions, "spatial_shapes": of_shapes, "image_sizes": of_sizes,
            "pixel_attention_mask": in_rows}


def with_pictures(model, config, names, batch, seq, pictures, plain):
    """Of a batch, `pictures` (count, size) in each sequence: a plain token before the first and between them."""
    count, size = pictures
    if count == 0:
        return {}
    vision = config.vision_config
    if "cross_attention_mask" in names:
        return attended(config, batch, seq, count, size or pair(vision.image_size))
    features = getattr(model, "get_image_features", None) or fail(
        f"{type(model).__name__} has no get_image_features: --images 0 records it without pictures")
    wanted = inspect.signature(features).parameters
    make = next((make for name, make in PICTURES.items() if name in wanted), of_one_size)
    own = pair(getattr(vision, "image_size", None) or 672)
    if make in (of_one_size, in_rows) and size not in (None, own):
        fail(f"--image-size {size[0]}x{size[1]}: {type(model).__name__} scales pictures to {own[0]}x{own[1]}")
    inputs = make(model, config, batch, count, size or own)
    each = tokens_of_a_picture(features, make(model, config, 1, 1, size or own))
    if 1 + count * (each + 1) > seq:
        fail(f"--images {count}: {count} x {each} tokens and those between them do not fit in --seq {seq}; --image-size makes "
             "pictures smaller where they have no size of their own, --images 0 leaves them out")
    row = ([plain] + ([first_of(config, "image_token_id", "image_token_index")] * each + [plain]) * count)
    row += [plain] * (seq - len(row))
    inputs["input_ids"] = tokens([row] * batch)
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in names:
            inputs[name] = tokens([[int(token != plain) for token in row]] * batch)
    return inputs


def pictures_of(args):
    """(count, size) of --images and --image-size; None: what the model's config says."""
    given = getattr(args, "images", None), getattr(args, "image_size", None)
    if given == (None, None):
        return None
    size = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", given[1]) if given[1] else None
    if given[1] and not size:
        fail(f"--image-size {given[1]}: height x width is needed, such as 448x672, or one number")
    if given[0] is not None and given[0] < 0:
        fail("--images: 0 or more")
    return 1 if given[0] is None else given[0], size and (int(size[1]), int(size[2] or size[1]))


def said_of_pictures(inputs):
    """Which of the tokens are theirs."""
    if not isinstance(inputs, dict) or not {"pixel_values", "input_ids"} <= inputs.keys():
        return
    with _disable_current_modes():
        ids = Stream.values.get(inputs["input_ids"])
        theirs = 0 if ids is None else int((ids[0] != ids[0, 0]).sum())
    if theirs:
        yield f"{theirs:,} of the {ids.shape[1]:,} tokens of each sequence are pictures'"


def tokens_of_a_picture(features, inputs):
    dtype = next(p.dtype for p in features.__self__.parameters())
    stream = Stream(Tables(), {})
    with torch.no_grad(), stream if fake_mode() else contextlib.nullcontext():
        stream.know_inputs(inputs)
        output = features(**cast_tensors(inputs, dtype))
        found = pytree.tree_leaves(output.last_hidden_state if output.pooler_output is None else output.pooler_output)
    return sum(t.numel() // t.shape[-1] for t in found)


def samples_of(config, frames):
    """Of a sound whose convolutions leave so many frames."""
    for kernel, stride in reversed(list(zip(getattr(config, "conv_kernel", ()), getattr(config, "conv_stride", ())))):
        frames = (frames - 1) * stride + kernel
    return frames


def as_real():
    """In transformers, where they are used, fake tensors count as tracing, which builds causal masks
    that a real run does without."""
    if "transformers" in sys.modules:
        from transformers.utils import import_utils
        import_utils.is_fake_tensor = lambda x: False


def hf_model(source, attention):
    try:
        import transformers
    except ImportError as error:
        fail(f"--hf needs transformers: {error}")
    as_real()
    if source.endswith(".json") and not os.path.exists(source):     # no name on the hub ends so
        fail(f"--hf {source}: no such file")
    try:
        config = transformers.AutoConfig.from_pretrained(source)
    except (OSError, ValueError) as error:
        fail(f"--hf {source}: " + str(error).strip().splitlines()[0])
    for part in parts_of(config):
        part.use_cache = False
    name = (config.architectures or [None])[0]
    own = getattr(transformers, name, None) if name else None
    make = own or transformers.AutoModelForCausalLM.from_config
    # what a model has of these it says itself; by default the first that it takes
    for experts in ("grouped_mm", None):
        for kind in ("sdpa", "eager") if attention == "auto" else (attention,):
            config._attn_implementation = kind
            config._experts_implementation = experts
            try:
                with Building():
                    return make(config).train(), config
            except ValueError as error:
                refusal = error
    raise refusal


def cast_parameters(model, dtype):
    """Parameters alone, as MixedPrecisionPolicy does: buffers keep their dtype. Tied ones stay tied."""
    cast = {}
    for module in model.modules():
        for name, param in list(module._parameters.items()):
            if param is None or not param.is_floating_point() or param.dtype == dtype:
                continue
            if id(param) not in cast:
                cast[id(param)] = (param, nn.Parameter(param.detach().to(dtype), param.requires_grad))
            module._parameters[name] = cast[id(param)][1]


def made_otherwise(model):
    """Of parameters that are not in fp32, which shardplan stores them in unless it is told otherwise."""
    dtypes = {dtype_name(p.dtype) for p in model.parameters() if p.is_floating_point()} - {"fp32"}
    return [f"parameters were made in {' and '.join(sorted(dtypes))}: they are stored in fp32 unless --store-dtype says "
            f"otherwise"] if dtypes else []


def listed_order(model):
    """Parameters as fully_shard lists a unit's: by modules, children before their parent's own."""
    index = {id(p): i for i, p in enumerate(model.parameters())}
    order, seen = [], set()

    def visit(module):
        for child in module.children():
            visit(child)
        for param in module._parameters.values():
            if param is not None and id(param) not in seen:
                seen.add(id(param))
                order.append(index[id(param)])
    visit(model)
    return order


def load(args):
    """A function of (batch, seq) that gives (model, inputs, loss), the config or None, and a name."""
    if args.hf:
        model, config = hf_model(args.hf, args.attention)
        pictures = pictures_of(args)
        return (lambda batch, seq: (model, hf_inputs(model, config, batch, seq, pictures), None)), \
            f"{type(model).__name__}"
    path, _, name = args.source.rpartition(":")
    if not path:
        fail(f"{args.source}: FILE.py:FUNCTION is needed")
    if not os.path.exists(path):
        fail(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location("recorded_model", path)
    if spec is None:
        fail(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec.loader.exec_module(module)
    build = getattr(module, name, None)
    if build is None:
        fail(f"{path} has no function {name}")
    wanted = f"{name}(batch, seq) returns (model, inputs) or (model, inputs, loss): the module, its arguments, what makes a " \
             f"scalar of its output (the head of record.py says more)"
    try:
        inspect.signature(build).bind(1, 1)
    except TypeError as error:
        fail(f"{path}: {name}: {error}; {wanted}")
    except ValueError:      # a function of C has no signature
        pass
    built = []

    def make(batch, seq):
        with Building():
            got = build(batch, seq)
        as_real()
        if not isinstance(got, (tuple, list)) or len(got) not in (2, 3) or not isinstance(got[0], torch.nn.Module):
            fail(f"{path}: {name}: it returned {type(got).__name__}; {wanted}")
        got = tuple(got) + (None,) * (3 - len(got))
        if built:       # one model, whatever the batch
            return (built[0],) + got[1:]
        built.append(got[0].train())
        return got
    return make, name


def main():
    parser = argparse.ArgumentParser(description="Records a model's training step for shardplan.")
    parser.add_argument("source", nargs="?", metavar="FILE.py:build")
    parser.add_argument("--hf", metavar="CONFIG_OR_DIR", help="a config.json, its folder, or a name on the hub")
    parser.add_argument("--seq", type=int, default=2048, help="tokens a sequence (default 2048)")
    parser.add_argument("--batch", default="1", help="sequences a micro-batch, one recording each: 1,2,4 (default 1)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="what parameters compute in (default bf16)")
    parser.add_argument("--autocast", choices=("bf16",), help="the forward pass is under torch.autocast, "
                        "and parameters are in fp32: as DDP is used")
    parser.add_argument("--attention", choices=("auto", "sdpa", "eager"), default="auto",
                        help="of transformers (default: sdpa where the model has it)")
    parser.add_argument("--images", type=int, metavar="N", help="with --hf: pictures in each sequence of a model that has tokens "
                        "for them (default 1)")
    parser.add_argument("--image-size", metavar="HxW", help="of each, in pixels, as the model's processor hands it on (default: "
                        "what the config says, else 672x672)")
    parser.add_argument("--checkpointing", default="none,full,selective", help="which are recorded (default all)")
    parser.add_argument("--freeze", action="append", default=[], metavar="PATTERNS",
                        help="also with these parameters frozen, by name: 'model.embed*,*.mlp.*'; may be given again")
    parser.add_argument("-o", "--output", required=True, metavar="MODEL.stream.json.gz")
    args = parser.parse_args()
    if bool(args.hf) == bool(args.source):
        fail("give --hf CONFIG_OR_DIR or FILE.py:build")
    if args.source and pictures_of(args):
        fail("--images and --image-size are of --hf: build(batch, seq) says what pictures there are")
    if not args.output.endswith((".stream.json", ".stream.json.gz")):
        fail(f"-o {args.output}: by its end, .stream.json.gz, shardplan knows a recording")
    modes = args.checkpointing.split(",")
    if set(modes) - {"none", "full", "selective"}:
        fail(f"--checkpointing {args.checkpointing}: allowed are none, full, selective")
    try:
        batches = [int(b) for b in args.batch.split(",")]
    except ValueError:
        fail(f"--batch {args.batch}: numbers are needed, such as 1,2,4")
    if args.seq < 1 or min(batches) < 1:
        fail("--seq and --batch: 1 or more")
    started = time.time()
    with FakeTensorMode(allow_non_fake_inputs=True), as_on_cuda(), lists_of_values():
        header, variants = record_all(args, batches, modes)
    write(args.output, header, variants)
    kilobytes = (os.path.getsize(args.output) + 1023) // 1024
    print(f"{args.output}: {header['model']['parameters']:,} parameters, {len(header['modules'])} units, "
          f"{len(variants)} variants, {kilobytes} KiB, {time.time() - started:.1f} s")
    for note in header["notes"]:
        print(f"note: {note}")


@contextlib.contextmanager
def frozen(names, params, patterns):
    """Parameters that comma-separated patterns name are not trained here; gives their numbers."""
    globs = patterns.split(",") if patterns else []
    numbers = [i for i, (name, param) in enumerate(zip(names, params))
               if param.requires_grad and any(fnmatch.fnmatchcase(name, glob) for glob in globs)]
    if patterns and not numbers:
        fail(f"--freeze {patterns}: no parameter that is trained has such a name")
    if len(numbers) == sum(p.requires_grad for p in params):
        fail(f"--freeze {patterns}: no parameter is left to train")
    for i in numbers:
        params[i].requires_grad_(False)
    try:
        yield numbers
    finally:
        for i in numbers:
            params[i].requires_grad_(True)


def record_all(args, batches, modes):
    gc.collect()
    gc.freeze()     # what imports made is not looked through again before each variant
    make, name = load(args)
    tables, variants, external, missing = Tables(), [], {}, []
    model, inputs, loss = or_said(args, name, lambda: make(batches[0], args.seq))
    if args.autocast:
        args.dtype = "fp32"
    library = as_cuda_autocasts() if args.autocast else None    # lives as long as it is used
    dtype = DTYPES[args.dtype]
    # transformers' are made in what their config.json says
    notes = list(said_of_pictures(inputs)) if args.hf else made_otherwise(model)
    cast_parameters(model, dtype)
    names = [n for n, _ in model.named_parameters()]
    params = list(model.parameters())
    found = or_said(args, name, lambda: called_once(model, of_own_parameters(candidates(model)),
                                                    lambda: warm(model, cast_tensors(inputs, dtype), loss)))
    places = {id(p.untyped_storage()): f"p{i}" for i, p in enumerate(params)}
    prefixes = [(i, n + ".") for i, (n, _) in enumerate(found)]
    owners = [next((i for i, prefix in prefixes if n.startswith(prefix)), -1) for n in names]
    for patterns, batch, mode in itertools.product([None] + args.freeze, batches, modes):
        _, inputs, loss = make(batch, args.seq)
        with frozen(names, params, patterns) as numbers, \
                checkpointed(model, [m for _, m in found], mode) as units:
            for hooks in ("plain",) if args.autocast else hooks_of(inputs, dtype, mode):
                try:
                    variant = record(model, inputs, loss, units, tables, places, hooks, dtype, args.autocast)
                except (Exception, SystemExit) as error:
                    if hooks != "zero3":
                        raise
                    missing.append(f"with DeepSpeed's hooks on every module (ZeRO-3) it was not recorded: {str(error).splitlines()[0]}")
                    model.zero_grad(set_to_none=True)
                    continue
                external.update(variant.pop("external") or {})
                variants.append({"batch": batch, "checkpointing": mode, "hooks": hooks,
                                 **({"frozen": numbers} if numbers else {}), **variant})
    header = {
        "format": "shardplan stream", "version": VERSION,
        "model": {"name": name, "parameters": sum(p.numel() for p in params), "dtype": args.dtype, "seq": args.seq,
                  **({"autocast": args.autocast} if library else {}),
                  **{key: value for key in ("images", "image_size") if (value := getattr(args, key)) is not None},
                  "torch": torch.__version__, "python": ".".join(map(str, sys.version_info[:2]))},
        "parameters": [[n, list(p.shape), p.requires_grad, owner] for n, p, owner in zip(names, params, owners)],
        "order": listed_order(model),
        "modules": [n for n, _ in found],
        "called": called_table(model, external),
        "batch_norms": [n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)],
        "ops": list(tables.ops), "types": Tables.rows(tables.types), "calls": Tables.rows(tables.calls),
        "notes": sorted({n for v in variants for n in v["notes"]} | set(missing)) + notes + list(otherwise_on_a_gpu(model)),
        "variants": [{k: v[k] for k in ("batch", "checkpointing", "hooks", "frozen") if k in v} for v in variants],
    }
    return header, variants


def hooks_of(inputs, dtype, mode):
    """Those that a variant is recorded with."""
    cast = any(t.is_floating_point() and t.dtype != dtype for t in pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor))
    return ("fsdp", "plain") + (("fsdp1",) if cast else ()) + (("zero3",) if mode == "none" else ())


def converted(module, convert, recurse=True):
    """Module._apply, which half(), bfloat16(), float() and the like are of, where parameters cannot be
    changed in place, as fake ones cannot: new ones where it gives others. Tied ones stay tied."""
    made = {}

    def new(tensor):
        if tensor is None:
            return None
        if id(tensor) not in made:
            other = convert(tensor.detach())
            same = other.dtype == tensor.dtype and other.shape == tensor.shape
            made[id(tensor)] = tensor if same else \
                nn.Parameter(other, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else other
        return made[id(tensor)]

    for owner in module.modules() if recurse else [module]:
        for tensors in owner._parameters, owner._buffers:
            tensors.update({name: new(tensor) for name, tensor in tensors.items()})
    return module


def moved(module, *args, **kwargs):
    """Module.to, where there is one device."""
    dtype = torch._C._nn._parse_to(*args, **kwargs)[1]
    return converted(module, lambda t: t.to(dtype) if dtype is not None and t.is_floating_point() else t)


class Building(TorchDispatchMode):
    """While a model draws its first values: what it asks of those that are drawn does not matter, and drawing
    again until they please has no end. What follows from no draw, such as a list of rates, is computed.
    Wrappers such as peft's move their parts to where they are. Copies of modules (nn.TransformerEncoder's of
    its layer) are of the same mode: fake tensors of another one would be converted at each call."""

    def __enter__(self):
        self.values = WeakIdKeyDictionary()
        self.drawing, self.to = getattr(nn.init, "_no_grad_trunc_normal_", None), nn.Module.to
        nn.init._no_grad_trunc_normal_ = lambda tensor, *args, **kwargs: tensor
        self.apply = nn.Module._apply
        nn.Module.to, nn.Module._apply = moved, converted
        self.tolist = tolist = torch.Tensor.tolist      # of tensors that are not fake it reads memory itself
        torch.Tensor.tolist = lambda tensor: tolist(self.values.get(tensor, tensor))
        FakeTensorMode.__deepcopy__ = lambda mode, memo: mode
        return super().__enter__()

    def __exit__(self, *exception):
        nn.init._no_grad_trunc_normal_, nn.Module.to, torch.Tensor.tolist = self.drawing, self.to, self.tolist
        nn.Module._apply = self.apply
        del FakeTensorMode.__deepcopy__
        return super().__exit__(*exception)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is aten._local_scalar_dense.default:
            if args[0] in self.values:
                with _disable_current_modes():
                    return self.values[args[0]].item()
            return args[0].dtype != torch.bool and 1
        out = func(*args, **(kwargs or {}))
        self.follow(func, args, kwargs or {}, out)
        return out

    def follow(self, func, args, kwargs, out):
        if func._schema.is_mutable:
            self.values.pop(args[0], None) if args and isinstance(args[0], torch.Tensor) else None
            return
        outs = pytree.tree_leaves(out)
        drawn = "empty" in op_name(func) or torch.Tag.nondeterministic_seeded in func.tags
        if drawn or any(not isinstance(t, torch.Tensor) or t.numel() > KNOWN_RATES for t in outs):
            return
        known = lambda t: self.values.get(t) if isinstance(t, torch.Tensor) else t
        if any(known(t) is None for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)):
            return
        try:
            with _disable_current_modes():
                got = func(*pytree.tree_map(known, args), **pytree.tree_map(known, kwargs))
        except Exception:
            return
        self.values.update(zip(outs, pytree.tree_leaves(got)))


def or_said(args, name, run):
    """What the first run of a model gives. One that a config made is run on inputs that were guessed from it: where they do not
    fit (an image wants its tokens), there is nothing to mend here, and a way out. Nor is there where a kernel does not take the
    dtype that parameters are in (a Fourier transform)."""
    try:
        return run()
    except Exception as error:
        if args.dtype != "fp32" and re.search("dtype|scalar type|not implemented for", str(error)):
            print(f"record.py: parameters and inputs are in {args.dtype}, as they compute under fully_shard: if that is what "
                  f"{name} does not run in, --dtype fp32, or --autocast bf16 for DDP", file=sys.stderr)
        if not args.hf:
            raise
        fail(f"--hf {args.hf}: {name} does not run on what its config says of its inputs ({type(error).__name__}: "
             f"{(str(error).strip().splitlines() or ['?'])[0][:300]}): a file of your own has others, record.py my_model.py:build, "
             "whose build(batch, seq) returns (model, inputs)")


def warm(model, inputs, loss):
    """A first micro-batch, in which models fill their caches."""
    with Stream(Tables(), {}) as stream:
        stream.know_inputs(inputs)
        loss_of(call_model(model, inputs), loss).backward()
    model.zero_grad(set_to_none=True)


def otherwise_on_a_gpu(model):
    """What of a model runs otherwise there than it was recorded: to be said."""
    of = lambda kind: [name or "the model" for name, module in model.named_modules() if kind(module)]
    recurrent = of(lambda m: isinstance(m, (nn.RNNBase, nn.RNNCellBase)))
    compiled = of(lambda m: hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None)
    for names, what in ((recurrent, "cuDNN's or a fused kernel on a GPU, recorded as the operators of a CPU, which keep other memory"),
                        (compiled, "compiled (torch.compile), recorded as the calls of eager PyTorch")):
        if names:
            yield f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {what}"


def write(path, header, variants):
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
            for line in [header] + variants:
                out.write((json.dumps(line, separators=(",", ":")) + "\n").encode())
        os.replace(part, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        fail(f"{path}: {error.strerror}")


if __name__ == "__main__":
    main()
