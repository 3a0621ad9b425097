"""Real CPU tensors that are never filled.

Libraries whose C++ code or pointer tests meet no fake tensors (DDP's reducer, FSDP1's flat
parameters) get real ones.  A result's shape comes from the fake-tensor kernels and its storage from
`torch.empty`; the arithmetic is skipped, so pages are never touched and a model of any size runs.
Operators that only look (views, set_, resize_) run; so do those on integers alone, whose values
decide things (positions, masks, the reducer's bucket indices).
"""
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map_only

import older_torch
import recorder

aten = torch.ops.aten
RUN = {aten._unsafe_view.default, aten.set_.source_Storage, aten.set_.source_Storage_storage_offset,
       aten.set_.source_Tensor, aten.set_.default, aten.resize_.default, aten.detach_.default}


def allocated(like):
    """What is made of unfilled numbers; integers are zeros, an index of anything (a router's experts)."""
    out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return out.zero_() if exact(out) and out.device.type == "cpu" else out


def exact(tensor):
    return not (tensor.is_floating_point() or tensor.is_complex())


class Unfilled(recorder.Births):
    def __init__(self):
        super().__init__()
        self.fake = FakeTensorMode()
        self.shapes = {}

    def call(self, func, args, kwargs):
        if func.namespace == "c10d":
            return self.collective(func, args, kwargs)
        if func.is_view or func in RUN or func.namespace == "flash_attn":   # of kernels that compute nothing
            return func(*args, **kwargs)
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        if func is aten._local_scalar_dense.default:
            return func(*args) if exact(args[0]) else 1.0
        integers = all(exact(t) for t in tensors)
        if func is aten.histc.default and integers:     # which CPUs have of no integers
            return allocated(torch.empty(args[1], dtype=args[0].dtype, device=args[0].device))
        if func is aten.nonzero.default and integers:   # whose shape is of what it finds
            return func(*args)
        if func._schema.is_mutable:
            return func(*args, **kwargs) if integers else mutated(func, args, kwargs)
        with self.fake:
            out = self.of_fakes(func, tree_map_only(torch.Tensor, self.shape, args),
                                tree_map_only(torch.Tensor, self.shape, kwargs))
            out = older_torch.results(recorder.op_name(func), args, out)
        if integers and isinstance(out, torch.Tensor) and exact(out):
            return func(*args, **kwargs)
        return tree_map_only(torch.Tensor, allocated, out)

    def shape(self, tensor):
        key = tensor.shape, tensor.stride(), tensor.dtype, tensor.device
        if key not in self.shapes:
            self.shapes[key] = allocated(tensor)
        return self.shapes[key]

    def collective(self, func, args, kwargs):
        """Moves integers (sizes, which are compared between ranks), nothing else; all is done at once."""
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        log = recorder.Log.current
        log.collectives.append([op_name(func), [t.numel() * t.element_size() for t in tensors],
                                "/".join(log.place)])
        if all(exact(t) for t in tensors):
            func(*args, **kwargs)
        future = torch.futures.Future()
        outputs = args[0]
        future.set_result(outputs if isinstance(outputs, list) else [outputs])
        work = torch._C._distributed_c10d._create_work_from_future(future).boxed()
        return work if len(func._schema.returns) == 1 else (outputs, work)


def op_name(func):
    return recorder.op_name(func).removeprefix("c10d.")


def mutated(func, args, kwargs):
    """What an in-place or out= operator returns: the arguments it has written."""
    written = {}
    for i, a in enumerate(func._schema.arguments):
        if a.alias_info and a.alias_info.is_write:
            value = kwargs[a.name] if a.name in kwargs else args[i]
            for name in a.alias_info.before_set:
                written[name] = value
    out = []
    for r in func._schema.returns:
        if not r.alias_info:
            raise NotImplementedError(f"{func} writes and returns something new")
        out.append(written[next(iter(r.alias_info.before_set))])
    return None if not out else out[0] if len(out) == 1 else tuple(out)
