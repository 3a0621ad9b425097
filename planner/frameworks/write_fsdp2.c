/* write_fsdp2.c - a plan as a Python file with apply(model, mesh): fully_shard as it was planned.
 *
 * Modules are named as the plan's units are, which are the names of the code that it planned
 * (torchtitan's "layers.0", transformers' "model.layers.0", ...). A module is a block when the last
 * part of its name is a number: blocks are checkpointed, and their units have prefetch lists. */
#include "frameworks/export.h"

#include "base/names.h"
#include "base/number.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char apply_text[] = /* the part that is alike in all files */
    "DTYPES = {\"bf16\": torch.bfloat16, \"fp16\": torch.float16, \"fp32\": torch.float32, "
    "\"same\": None}\n"
    "\n"
    "\n"
    "def make_mesh(device_type=\"cuda\", setting=\"replicate\"):\n"
    "    \"\"\"The mesh that was planned: replicas x shards, or shards alone.\"\"\"\n"
    "    world, replicas = dist.get_world_size(), SETTINGS[setting]\n"
    "    if replicas == 1:\n"
    "        return init_device_mesh(device_type, (world,))\n"
    "    return init_device_mesh(device_type, (replicas, world // replicas),\n"
    "                            mesh_dim_names=(\"replicate\", \"shard\"))\n"
    "\n"
    "\n"
    "def is_block(name):\n"
    "    return name.rpartition(\".\")[2].isdigit()\n"
    "\n"
    "\n"
    "def is_experts(name):\n"
    "    return name.rpartition(\".\")[2] == \"experts\"\n"
    "\n"
    "\n"
    "def keep_every_second_matmul():\n"
    "    \"\"\"torchtitan's op policy: attention and every second matmul are kept.\"\"\"\n"
    "    aten = torch.ops.aten\n"
    "    kept = {aten.mm.default, aten.addmm.default, aten.bmm.default,\n"
    "            aten._scaled_dot_product_flash_attention.default,\n"
    "            aten._scaled_dot_product_efficient_attention.default,\n"
    "            aten._scaled_dot_product_cudnn_attention.default}\n"
    "    seen = {True: 0, False: 0}\n"
    "\n"
    "    def policy(context, function, *args, **kwargs):\n"
    "        if function == aten.mm.default:\n"
    "            seen[context.is_recompute] += 1\n"
    "            if seen[context.is_recompute] % 2 == 0:\n"
    "                return CheckpointPolicy.PREFER_RECOMPUTE\n"
    "        return CheckpointPolicy.MUST_SAVE if function in kept "
    "else CheckpointPolicy.PREFER_RECOMPUTE\n"
    "    return create_selective_checkpoint_contexts(policy)\n"
    "\n"
    "\n"
    "def is_checkpointed(block, count):\n"
    "    kind, _, number = SETTINGS[\"checkpoint_blocks\"].partition(\"-\")\n"
    "    if kind == \"every\":\n"
    "        return (block + 1) % int(number) == 0\n"
    "    if number.endswith(\"%\"):\n"
    "        return 100 * block < int(number[:-1]) * count\n"
    "    return kind == \"all\" or block < int(number)\n"
    "\n"
    "\n"
    "def reentrant(forward):\n"
    "    def call(*args, **keywords):\n"
    "        return checkpoint(functools.partial(forward, **keywords), *args, use_reentrant=True,\n"
    "                          preserve_rng_state=PRESERVE_RNG_STATE)\n"
    "    return call\n"
    "\n"
    "\n"
    "def checkpoint_blocks(model):\n"
    "    \"\"\"Puts the blocks that were chosen into checkpoint wrappers, under the same names; or "
    "has\n"
    "    each call its own forward by a reentrant checkpoint, and the tokens' embedding return "
    "what\n"
    "    needs a gradient.\"\"\"\n"
    "    keywords = {\"preserve_rng_state\": PRESERVE_RNG_STATE,\n"
    "                \"early_stop\": SETTINGS[\"early_stop\"] == \"on\"}\n"
    "    if SETTINGS[\"checkpointing\"] == \"selective\":\n"
    "        keywords[\"context_fn\"] = keep_every_second_matmul\n"
    "    blocks = [name for names, *_ in UNITS for name in filter(is_block, names)]\n"
    "    if SETTINGS[\"checkpoint_reentrant\"] == \"on\":\n"
    "        tokens = next(m for m in model.modules() if isinstance(m, torch.nn.Embedding))\n"
    "        tokens.register_forward_hook(lambda module, given, out: out.requires_grad_(True))\n"
    "    for block, name in enumerate(blocks):\n"
    "        module = model.get_submodule(name)\n"
    "        if not is_checkpointed(block, len(blocks)):\n"
    "            continue\n"
    "        if SETTINGS[\"checkpoint_reentrant\"] == \"on\":\n"
    "            module.forward = reentrant(module.forward)\n"
    "        else:\n"
    "            parent, _, last = name.rpartition(\".\")\n"
    "            parent = model.get_submodule(parent)\n"
    "            setattr(parent, last, checkpoint_wrapper(module, **keywords))\n"
    "\n"
    "\n"
    "def add_adapters(model):\n"
    "    \"\"\"Puts peft's adapters beside linear layers, in place, and freezes all else.\"\"\"\n"
    "    from peft import LoraConfig, inject_adapter_in_model\n"
    "    rank, *targets = SETTINGS[\"lora\"].split(\",\")\n"
    "    targets = targets[0] if targets == [\"all-linear\"] else targets or None\n"
    "    inject_adapter_in_model(LoraConfig(r=int(rank), lora_alpha=8, target_modules=targets,\n"
    "                                       lora_dropout=SETTINGS[\"lora_dropout\"]), model)\n"
    "\n"
    "\n"
    "def apply(model, mesh, experts_mesh=None):\n"
    "    \"\"\"Freezes, checkpoints and shards the model in place. Call it before the optimizer is "
    "made.\n"
    "    Experts that are units of their own are sharded over experts_mesh; None: over "
    "mesh.\"\"\"\n"
    "    if SETTINGS[\"lora\"]:\n"
    "        add_adapters(model)\n"
    "    frozen = (SETTINGS[\"freeze\"] or \"\").split(\",\")\n"
    "    for name, parameter in model.named_parameters():\n"
    "        if any(fnmatch.fnmatchcase(name, pattern) for pattern in frozen):\n"
    "            parameter.requires_grad_(False)\n"
    "        low = SETTINGS[\"frozen_dtype\"] == \"param\" and not parameter.requires_grad\n"
    "        store = DTYPES[SETTINGS[\"param_dtype\" if low else \"store_dtype\"]]\n"
    "        if parameter.dtype != store:\n"
    "            parameter.data = parameter.data.to(store)\n"
    "    if SETTINGS[\"input_grads\"] == \"on\":\n"
    "        model.enable_input_require_grads()\n"
    "    if SETTINGS[\"checkpointing\"] != \"none\":\n"
    "        checkpoint_blocks(model)\n"
    "    if SETTINGS[\"compile\"] == \"on\":\n"
    "        for name in [name for names, *_ in UNITS for name in filter(is_block, names)]:\n"
    "            model.get_submodule(name).compile(fullgraph=True)\n"
    "    if SETTINGS[\"compile\"] == \"model\":     # hooks break its graph at blocks\n"
    "        model.compile()\n"
    "    keywords = {\"mesh\": mesh,\n"
    "                \"mp_policy\": "
    "MixedPrecisionPolicy(param_dtype=DTYPES[SETTINGS[\"param_dtype\"]"
    "],\n"
    "                                                  "
    "reduce_dtype=DTYPES[SETTINGS[\"reduce_dtype\""
    "]])}\n"
    "    if SETTINGS[\"offload\"] == \"cpu\":\n"
    "        keywords[\"offload_policy\"] = CPUOffloadPolicy()\n"
    "    if SETTINGS[\"placement\"] == \"columns\":\n"
    "        keywords[\"shard_placement_fn\"] = lambda p: Shard(1 if p.ndim > 1 else 0)\n"
    "    if SETTINGS[\"ignore\"]:     # the optimizer takes them in a param_group of their own\n"
    "        keywords[\"ignored_params\"] = {\n"
    "            parameter for name, parameter in model.named_parameters()\n"
    "            if any(fnmatch.fnmatchcase(name, pattern) for pattern in "
    "SETTINGS[\"ignore\"].split(\",\"))}\n"
    "    for names, reshard, _, _ in UNITS:\n"
    "        modules = [model.get_submodule(name) for name in names]\n"
    "        if is_experts(names[0]):\n"
    "            keywords[\"mesh\"] = experts_mesh or mesh\n"
    "        fully_shard(modules if len(modules) > 1 else modules[0], "
    "reshard_after_forward=reshard, **keywords)\n"
    "        keywords[\"mesh\"] = mesh\n"
    "    for names, _, forward, backward in UNITS:\n"
    "        unit = model.get_submodule(names[0])\n"
    "        if forward:\n"
    "            unit.set_modules_to_forward_prefetch([model.get_submodule(n) for n in forward])\n"
    "        if backward:\n"
    "            unit.set_modules_to_backward_prefetch([model.get_submodule(n) for n in "
    "backward])\n"
    "        for pattern in filter(None, (SETTINGS[\"not_in_backward\"] or \"\").split(\",\")):\n"
    "            if names[0] and fnmatch.fnmatchcase(names[0], pattern):\n"
    "                unit.set_unshard_in_backward(False)\n"
    "    if SETTINGS[\"reduce_buffers\"] > 1:\n"
    "        model.set_reduce_scatter_max_input_buffers(SETTINGS[\"reduce_buffers\"])\n"
    "    return model\n"
    "\n"
    "\n"
    "def before_micro_batch(model, last):\n"
    "    \"\"\"Call it before the forward pass of each micro-batch of a step; `last`: of its "
    "last.\"\"\""
    "\n"
    "    model.set_requires_gradient_sync(last or SETTINGS[\"accumulate_sync\"] == \"each\")\n"
    "    if SETTINGS[\"last_backward\"] == \"last\":\n"
    "        model.set_is_last_backward(last)\n"
    "    if SETTINGS[\"all_reduce\"] == \"last\":\n"
    "        model.set_requires_all_reduce(last)\n"
    "    if SETTINGS[\"reshard_after_backward\"] == \"last\":\n"
    "        model.set_reshard_after_backward(last)\n";

/* ---- literals ---- */

static void write_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\x%02x", (unsigned)*text);
        else
            fputc(*text, file);
    fputc('"', file);
}

static void write_value(FILE *file, const json_t *value)
{
    char number[NUMBER_TEXT];
    if (json_is_string(value))
        write_text(file, json_string_value(value));
    else if (json_is_integer(value))
        fprintf(file, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        fputs(number_real_text(json_real_value(value), false, number), file);
    else
        fputs(json_is_true(value) ? "True" : json_is_false(value) ? "False" : "None", file);
}

/* With the dtype of reductions by its name: what a policy without one means depends on the version
 * of PyTorch that runs the file. */
static struct settings with_reduce_dtype(const struct settings *settings)
{
    struct settings out = *settings;
    struct strategy *s = &out.job.strategy, own = *s;
    if (own.compute == DTYPE_COUNT)
        own.compute = own.store;
    if (s->reduce == DTYPE_COUNT)
        s->reduce = strategy_own_reduce(&own, out.job.model.torch);
    return out;
}

static void write_settings(FILE *file, const struct settings *settings)
{
    const char *key;
    const struct settings named = with_reduce_dtype(settings);
    json_t *echo = settings_echo(&named), *value;
    json_object_del(echo, "from");
    fputs("# What was planned; `shardplan fit --from` reads it back.\nSETTINGS = {\n", file);
    json_object_foreach(echo, key, value)
    {
        fprintf(file, "    \"%s\": ", key);
        write_value(file, value);
        fputs(",\n", file);
    }
    fputs("}\n\n", file);
    json_decref(echo);
}

/* ---- units ---- */

/* "norm, output" as ["norm", "output"]. */
static void write_modules(FILE *file, const char *name)
{
    fputc('[', file);
    for (;;) {
        const size_t length = strcspn(name, ",");
        fprintf(file, "\"%.*s\"", (int)length, name);
        if (!name[length])
            break;
        name += length + 2;
        fputs(", ", file);
    }
    fputc(']', file);
}

static bool is_block(const char *unit)
{
    const size_t length = strcspn(unit, ",");
    size_t digits = 0;
    while (digits < length && isdigit((unsigned char)unit[length - 1 - digits]))
        digits++;
    return digits > 0 && digits < length && unit[length - 1 - digits] == '.';
}

/* The first module of up to `depth` units of blocks, from `at` on in steps of `step`. */
static void write_prefetch(FILE *file, const struct plan *plan, uint32_t at, int step,
                           uint32_t depth)
{
    uint32_t written = 0;
    fputc('[', file);
    for (int64_t u = (int64_t)at + step; u > 0 && u < plan->unit_count && written < depth;
         u += step) {
        const char *name = plan->units[u].name;
        if (is_block(name))
            fprintf(file, "%s\"%.*s\"", written++ ? ", " : "", (int)strcspn(name, ","), name);
    }
    fputc(']', file);
}

/* Whether it is one of the last units of blocks, which --keep-unsharded means, or of --keep-units.
 */
static bool is_kept(const struct plan *plan, const struct strategy *s, uint32_t unit)
{
    const char *name = plan->units[unit].name;
    char first[128];
    uint32_t later = 0;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(name, ","), name);
    if (unit > 0 && names_in(s->keep_units, first))
        return true;
    for (uint32_t u = unit + 1; u < plan->unit_count; u++)
        later += is_block(plan->units[u].name);
    return is_block(name) && later < s->keep_last;
}

/* reshard_after_forward of a unit, as fully_shard takes it. */
static void write_reshard(FILE *file, const struct strategy *s, const struct plan *plan,
                          uint32_t index)
{
    const char *unit = plan->units[index].name;
    if (is_kept(plan, s, index)) {
        fputs("False", file);
        return;
    }
    const bool tail = s->units == UNITS_TORCHTITAN && !is_block(unit) && strchr(unit, ',');
    switch (s->reshard) {
    case RESHARD_ALWAYS:
        fputs("True", file);
        return;
    case RESHARD_NEVER:
        fputs("False", file);
        return;
    case RESHARD_INT:
        fprintf(file, "%u", s->reshard_ranks);
        return;
    default:
        fputs(tail ? "False" : "None", file);
    }
}

static bool is_experts(const char *unit)
{
    const char *last = strrchr(unit, '.');
    return last && strcmp(last, ".experts") == 0;
}

/* Within a block. */
static bool is_inner(const char *unit)
{
    return is_experts(unit) || strstr(unit, ".lora_");
}

static void write_unit(FILE *file, const struct strategy *s, const struct plan *plan, uint32_t unit)
{
    const char *name = plan->units[unit].name;
    const bool block = is_block(name);
    fputs("    (", file);
    write_modules(file, name);
    fputs(", ", file);
    write_reshard(file, s, plan, unit);
    fputs(", ", file);
    write_prefetch(file, plan, unit, 1, block ? s->forward_prefetch : 0);
    fputs(", ", file);
    write_prefetch(file, plan, unit, -1, block ? s->backward_prefetch : 0);
    fputs("),\n", file);
}

/* What is within a block is wrapped before it. */
static void write_units(FILE *file, const struct settings *settings, const struct plan *plan)
{
    const struct strategy *s = &settings->job.strategy;
    fputs("# A line for each call of fully_shard, in their order: the modules that are gathered "
          "together,\n# reshard_after_forward, and the units that it prefetches in forward and in "
          "backward. \"\" is the\n# model itself, with every parameter that no other unit has.\n"
          "UNITS = [\n",
          file);
    const uint32_t count = plan->unit_count - (s->ignore ? 1 : 0); /* PLAN_UNIT_IGNORED is last */
    for (uint32_t u = 1; u < count; u++)
        if (is_inner(plan->units[u].name))
            write_unit(file, s, plan, u);
    for (uint32_t i = 1; i <= count; i++) { /* the root is the last */
        const uint32_t u = i % count;
        if (!is_inner(plan->units[u].name))
            write_unit(file, s, plan, u);
    }
    fputs("]\n\n", file);
}

/* Recomputation must drop what the first pass dropped. */
static bool has_dropout(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        if (!plan_op_is_kernel((enum plan_op)plan->instructions[i].op))
            continue;
        const struct kernel *k = plan_kernel(plan, plan->instructions[i].arg);
        const bool random = k->work == WORK_DROPOUT || k->work == WORK_ATTENTION ||
                            k->work == WORK_EFFICIENT_ATTENTION;
        if (random && k->attr.p > 0)
            return true;
    }
    return false;
}

static bool has_two_meshes(const struct strategy *s)
{
    return s->experts_replicate && s->experts_replicate != s->replicate;
}

void write_fsdp2(FILE *file, const struct text_file *from)
{
    fprintf(file,
            "\"\"\"FSDP2 as it was planned: %s on %u GPUs. Written by shardplan " SHARDPLAN_VERSION
            ", for %s.\n\n"
            "    mesh = make_mesh()\n"
            "    apply(model, mesh%s)                  # before the optimizer is made\n"
            "    ...\n"
            "    before_micro_batch(model, last)     # when gradients are accumulated\n",
            from->settings->model, from->settings->job.strategy.world, from->framework->versions,
            has_two_meshes(&from->settings->job.strategy)
                ? ", make_mesh(setting=\"experts_replicate\")"
                : "");
    if (from->script_count)
        fputs("\nWhat the training script has to say itself:\n", file);
    for (uint32_t i = 0; i < from->script_count; i++)
        fprintf(file, "    %s\n", from->script[i]);
    fputs("\"\"\"\nimport fnmatch\nimport functools\n\nimport torch\nimport torch.distributed as "
          "dist\n"
          "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
          "checkpoint_wrapper\n"
          "from torch.distributed.device_mesh import init_device_mesh\n"
          "from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard\n"
          "from torch.distributed.tensor import Shard\n"
          "from torch.utils.checkpoint import CheckpointPolicy, checkpoint, "
          "create_selective_checkpoint_contexts\n\n",
          file);
    write_settings(file, from->settings);
    write_units(file, from->settings, from->plan);
    fprintf(file,
            "# Recomputed blocks drop what they dropped before: needed with dropout only.\n"
            "PRESERVE_RNG_STATE = %s\n\n",
            has_dropout(from->plan) ? "True" : "False");
    fputs(apply_text, file);
}
