/* validate.c - prints reports/validation/memory-fsdp2.md, memory-ddp.md, memory-fsdp1.md or
 * memory-zero.md: planned beside recorded, row by row. */
#include "tests/support/truth.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct sums {
    enum system_kind system; /* whose rows come next */
    const char *before;      /* a file's name in its title */
    size_t rows, exact;
};

static void print_row(void *context, const struct truth_result *r)
{
    struct sums *sums = context;
    const double error = r->recorded_peak ? ((double)r->planned_peak - (double)r->recorded_peak) /
                                                (double)r->recorded_peak
                                          : 0.0;
    printf("| %s | %" PRIu64 " | %" PRIu64 " | %+.4f %% | %zu | %u | %zu |\n", r->name,
           r->recorded_peak, r->planned_peak, 100 * error, r->unequal, r->events, r->wrong_events);
    sums->rows++;
    sums->exact += r->unequal == 0 && r->wrong_events == 0;
}

static void print_file(const char *name, const char *about, bool events, truth_read_model read,
                       struct sums *sums)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/truth/%s", name);
    printf(
        "\n## %s%s\n\n%s\n\n"
        "| configuration | recorded peak | planned peak | error | numbers that differ | events | "
        "events that differ |\n|---|---:|---:|---:|---:|---:|---:|\n",
        sums->before, name, about);
    truth_each(path, sums->system, events, read, print_row, sums);
}

static void print_drawn_linear(struct sums *sums)
{
    print_file("linear_systems_events.jsonl",
               "Whole event lists of models with linear attention, short convolutions or Mamba.",
               true, truth_read_either, sums);
}

static void print_reentrant(struct sums *sums)
{
    print_file("reentrant_events.jsonl",
               "Whole event lists with reentrant checkpoints (`--checkpoint-reentrant on`).", true,
               truth_read_either, sums);
}

static void print_offloading(struct sums *sums)
{
    print_file("offloading_events.jsonl",
               "Whole event lists of jobs whose saved tensors wait on the host "
               "(`--activation-offloading`).",
               true, truth_read_either, sums);
}

static void print_flash_attn(struct sums *sums)
{
    print_file("flash_attn_events.jsonl",
               "Whole event lists with the package flash-attn (attn_implementation "
               "flash_attention_2).",
               true, truth_read_hf, sums);
}

static void print_padding(struct sums *sums)
{
    print_file("padding_events.jsonl",
               "Whole event lists of batches that are padded (`--padding-tokens`).", true,
               truth_read_hf, sums);
}

static void print_cudnn(struct sums *sums)
{
    print_file("cudnn_events.jsonl",
               "Whole event lists with attention chosen as on Hopper and Blackwell, cuDNN's first "
               "(`--attention cudnn`).",
               true, truth_read_either, sums);
}

static void print_towers(struct sums *sums)
{
    print_file("tower_events.jsonl",
               "Whole event lists of models that see or hear, called with text alone (`--tower`).",
               true, truth_read_hf, sums);
}

static void print_padded_pairs(struct sums *sums)
{
    print_file("padded_pairs_events.jsonl",
               "Whole event lists of steps of TRL's trainers of preferences and rewards, with "
               "pairs that are padded.",
               true, truth_read_hf, sums);
    print_file("padded_pairs_visible.jsonl", "Likewise. Numbers: peaks, marks, segments.", false,
               truth_read_hf, sums);
}

static void print_padding_numbers(struct sums *sums)
{
    print_file("padding_visible.jsonl",
               "Batches that are padded, of other families. Numbers: peaks, marks, segments.",
               false, truth_read_hf, sums);
}

/* Files that have rows of every system. */
static void print_all_systems(struct sums *sums)
{
    print_reentrant(sums);
    print_flash_attn(sums);
    print_padding(sums);
    print_cudnn(sums);
    print_towers(sums);
    print_padded_pairs(sums);
}

static void print_random(struct sums *sums)
{
    print_file("random_events.jsonl",
               "Whole event lists of jobs drawn at random (tests/truth/random_jobs.py) that were "
               "planned wrong once.",
               true, truth_read_either, sums);
    print_file("outputs_events.jsonl",
               "Jobs whose script keeps what the model returned (`--keep-outputs`).", true,
               truth_read_either, sums);
    print_all_systems(sums);
    if (sums->system == SYSTEM_DDP || sums->system == SYSTEM_FSDP2)
        print_offloading(sums);
    if (sums->system == SYSTEM_DDP || sums->system == SYSTEM_ZERO3)
        print_file("options_events.jsonl",
                   "What random jobs led to: DDP's options, autocast under checkpoints, dropout's "
                   "modules.",
                   true, truth_read_either, sums);
}

static void print_optimizers(struct sums *sums)
{
    print_file("optimizers_events.jsonl",
               "Whole event lists with bitsandbytes' and torchao's AdamW.", true, truth_read_either,
               sums);
}

static void print_direct(struct sums *sums)
{
    print_file("direct_events.jsonl",
               "Whole event lists of losses on the logits in their own dtype.", true,
               truth_read_written, sums);
}

static void print_attention(struct sums *sums)
{
    print_file("attention_events.jsonl",
               "Whole event lists with attention in single ops: `--attention math`, and `eager` as "
               "transformers writes it.",
               true, truth_read_either, sums);
}

static void print_liger_numbers(struct sums *sums)
{
    print_file("liger_visible.jsonl",
               "Likewise of other families. Numbers: peaks, marks, segments.", false, truth_read_hf,
               sums);
}

static void print_liger(struct sums *sums)
{
    print_file("liger_events.jsonl", "Whole event lists of models with Liger's kernels.", true,
               truth_read_hf, sums);
    print_liger_numbers(sums);
}

static void print_lora_kernels(struct sums *sums, bool numbers)
{
    print_file("lora_kernels_events.jsonl",
               "Whole event lists of models with axolotl's kernels of adapters.", true,
               truth_read_hf, sums);
    if (numbers)
        print_file("lora_kernels_visible.jsonl", "Likewise. Numbers: peaks, marks, segments.",
                   false, truth_read_hf, sums);
}

static void print_preferences(struct sums *sums)
{
    print_file("dpo_visible.jsonl",
               "Steps of TRL's trainer of preferences. Numbers: peaks, marks, segments.", false,
               truth_read_hf, sums);
}

static void print_policies(struct sums *sums)
{
    print_file("grpo_visible.jsonl",
               "Steps of TRL's trainer of policies, and prompts without labels. Numbers: peaks, "
               "marks, segments.",
               false, truth_read_hf, sums);
}

static void print_classification(struct sums *sums)
{
    print_file("classification_visible.jsonl",
               "Models that classify sequences. Numbers: peaks, marks, segments.", false,
               truth_read_hf, sums);
}

static void print_llama_factory(struct sums *sums)
{
    print_file("llama_factory_events.jsonl", "Whole event lists as LLaMA-Factory v1 trains.", true,
               truth_read_hf, sums);
}

static void print_cut(struct sums *sums)
{
    print_file("cut_events.jsonl", "Whole event lists with cut cross entropy.", true, truth_read_hf,
               sums);
    print_file("lm_head_events.jsonl", "Whole event lists with TRL's fused LM head.", true,
               truth_read_hf, sums);
    print_file("dpo_events.jsonl", "Whole event lists of steps of TRL's trainer of preferences.",
               true, truth_read_hf, sums);
    print_preferences(sums);
    print_file("grpo_events.jsonl",
               "Whole event lists of steps of TRL's trainer of policies, and prompts without "
               "labels.",
               true, truth_read_hf, sums);
    print_policies(sums);
    print_file("classification_events.jsonl",
               "Whole event lists of models that classify sequences.", true, truth_read_hf, sums);
    print_classification(sums);
}

static void print_titan_numbers(struct sums *sums)
{
    print_file("titan_visible.jsonl",
               "torchtitan's own mixtures of experts. Numbers: peaks, marks, segments.", false,
               truth_read_hf, sums);
}

static void print_titan(struct sums *sums)
{
    print_file("titan_events.jsonl", "Whole event lists of torchtitan's own mixtures of experts.",
               true, truth_read_hf, sums);
    print_titan_numbers(sums);
}

static void print_accelerate(struct sums *sums)
{
    print_file(
        "accelerate_events.jsonl",
        "Whole event lists in bf16 as accelerate runs it: autocast, and outputs in fp32, around "
        "the model's own forward.",
        true, truth_read_either, sums);
}

static void print_fsdp2(struct sums *sums)
{
    print_file("visible.jsonl",
               "Models up to 70B on up to 1,024 GPUs. Numbers: peak, live bytes at "
               "six marks, peaks of five segments, number of events.",
               false, truth_read_written, sums);
    print_file("events.jsonl", "Whole event lists: bytes, sign, order, category, place, label.",
               true, truth_read_written, sums);
    print_file("more_events.jsonl", "Whole event lists of more strategies.", true,
               truth_read_written, sums);
    print_file("fsdp2_events.jsonl",
               "Whole event lists with frozen parameters, flags set by micro-batch, shards by "
               "columns. 2 more rows are of what is not planned: reshard_after_forward of a number "
               "by unit.",
               true, truth_read_written, sums);
    print_file("keep_events.jsonl", "Whole event lists where some units are not resharded.", true,
               truth_read_written, sums);
    print_file("blocks_events.jsonl", "Whole event lists where some blocks are checkpointed.", true,
               truth_read_written, sums);
    print_file("blocks_hf_events.jsonl", "The same of Hugging Face transformers' own models.", true,
               truth_read_hf, sums);
    print_file("lora_events.jsonl", "Whole event lists of models with peft's adapters.", true,
               truth_read_hf, sums);
    print_liger(sums);
    print_lora_kernels(sums, true);
    print_padding_numbers(sums);
    print_cut(sums);
    print_llama_factory(sums);
    print_titan(sums);
    print_file("hf_events.jsonl", "Whole event lists of Hugging Face transformers' own models.",
               true, truth_read_hf, sums);
    print_file("moe_events.jsonl", "Whole event lists of their mixtures of experts.", true,
               truth_read_hf, sums);
    print_file("experts_events.jsonl",
               "The same where experts are units of their own, on a mesh of their own.", true,
               truth_read_hf, sums);
    print_file("families_events.jsonl", "Whole event lists of more families of them.", true,
               truth_read_hf, sums);
    print_file("decoders_events.jsonl", "Whole event lists of more of their decoders.", true,
               truth_read_hf, sums);
    print_file("linear_events.jsonl",
               "Whole event lists of those with linear attention, short convolutions or Mamba.",
               true, truth_read_hf, sums);
    print_direct(sums);
    print_attention(sums);
    print_random(sums);
    print_optimizers(sums);
    print_file(
        "recorded_events.jsonl",
        "Whole event lists of models that no builder knows, or knew when they were recorded: "
        "planned from what tools/record.py wrote down of each once.",
        true, truth_read_recorded, sums);
}

static void print_ddp(struct sums *sums)
{
    print_file(
        "systems_visible.jsonl",
        "Models of 125M and 300M on 2 to 8 GPUs. Numbers: peak, live bytes at six marks, "
        "peaks of five segments, number of events (but where static_graph rebuilds buckets).",
        false, truth_read_written, sums);
    print_file("systems_events.jsonl", "A whole event list.", true, truth_read_written, sums);
    print_file("ddp_events.jsonl", "Whole event lists: bytes, sign, order, category, place, label.",
               true, truth_read_written, sums);
    print_file("recorded_ddp_events.jsonl",
               "The same of models that tools/record.py recorded, most under autocast.", true,
               truth_read_recorded, sums);
    print_file("ddp_hf_events.jsonl", "Whole event lists of Hugging Face transformers' own models.",
               true, truth_read_hf, sums);
    print_file("lora_events.jsonl", "Whole event lists of models with peft's adapters.", true,
               truth_read_hf, sums);
    print_liger(sums);
    print_lora_kernels(sums, false);
    print_cut(sums);
    print_llama_factory(sums);
    print_titan(sums);
    print_file("frozen_events.jsonl",
               "The same of models in 16 bits, with peft's adapters in fp32.", true, truth_read_hf,
               sums);
    print_file("bits4_events.jsonl",
               "The same of models whose linear layers are in 4 bits of bitsandbytes.", true,
               truth_read_hf, sums);
    print_file("bits8_events.jsonl", "The same of models whose linear layers are in 8 bits of it.",
               true, truth_read_hf, sums);
    print_accelerate(sums);
    print_direct(sums);
    print_attention(sums);
    print_drawn_linear(sums);
    print_random(sums);
    print_optimizers(sums);
}

static void print_zero(struct sums *sums)
{
    sums->before = sums->system == SYSTEM_ZERO1   ? "ZeRO-1: "
                   : sums->system == SYSTEM_ZERO2 ? "ZeRO-2: "
                                                  : "ZeRO-3: ";
    print_file("systems_visible.jsonl",
               "Models of 124M to 1.5B on 8 GPUs. Numbers: peak, live bytes at six marks, peaks of "
               "five segments, number of events.",
               false, truth_read_written, sums);
    print_file("systems_events.jsonl", "Whole event lists.", true, truth_read_written, sums);
    print_file("zero_events.jsonl", "Whole event lists: bytes, sign, order, place, label.", true,
               truth_read_written, sums);
    print_file(
        "zero_offload_events.jsonl",
        "offload_optimizer and offload_param: whole event lists of the device and of the host "
        "(peaks are of both).",
        true, truth_read_written, sums);
    print_file("zero_offload_visible.jsonl",
               "Likewise of models of 124M and 1B on 8 GPUs. Numbers: peaks, pinned bytes, marks, "
               "segments.",
               false, truth_read_written, sums);
    print_file("zero_lora_events.jsonl", "Whole event lists of models with peft's adapters.", true,
               truth_read_hf, sums);
    print_file("few_bits_events.jsonl", "The same of models in few bits of bitsandbytes.", true,
               truth_read_hf, sums);
    print_file("zero_liger_events.jsonl", "Whole event lists of models with Liger's kernels.", true,
               truth_read_hf, sums);
    if (sums->system == SYSTEM_ZERO3)
        print_liger_numbers(sums);
    else
        print_file("zero_cut_events.jsonl", "Whole event lists with cut cross entropy.", true,
                   truth_read_hf, sums);
    print_file("zero_lm_head_events.jsonl", "Whole event lists with TRL's fused LM head.", true,
               truth_read_hf, sums);
    print_file("zero_llama_factory_events.jsonl", "Whole event lists as LLaMA-Factory v1 trains.",
               true, truth_read_hf, sums);
    if (sums->system != SYSTEM_ZERO1)
        print_file("zero_dpo_events.jsonl",
                   "Whole event lists of steps of TRL's trainer of preferences.", true,
                   truth_read_hf, sums);
    print_preferences(sums);
    print_file("zero_grpo_events.jsonl",
               "Whole event lists of steps of TRL's trainer of policies, and prompts without "
               "labels.",
               true, truth_read_hf, sums);
    print_policies(sums);
    if (sums->system != SYSTEM_ZERO1)
        print_file("zero_classification_events.jsonl",
                   "Whole event lists of models that classify sequences.", true, truth_read_hf,
                   sums);
    print_classification(sums);
    print_file("zero_hf_events.jsonl",
               "Whole event lists of Hugging Face transformers' own models.", true, truth_read_hf,
               sums);
    print_drawn_linear(sums);
    if (sums->system != SYSTEM_ZERO1)
        print_random(sums);
    else
        print_all_systems(sums);
    print_optimizers(sums);
    if (sums->system != SYSTEM_ZERO3)
        return;
    print_file("zero_moe_events.jsonl",
               "Mixtures of experts of Hugging Face transformers: whole event lists.", true,
               truth_read_hf, sums);
    print_file("zero_quantized_events.jsonl",
               "zero_quantized_weights, alone and with hpZ: whole event lists.", true,
               truth_read_written, sums);
    print_file("zero_recorded_events.jsonl",
               "Models that tools/record.py recorded, of which six are mixtures of experts: whole "
               "event lists.",
               true, truth_read_recorded, sums);
}

static void print_fsdp1(struct sums *sums)
{
    print_file(
        "systems_visible.jsonl",
        "Models of 125M to 1.5B on 3 to 8 GPUs. Numbers: peak, live bytes at six marks, peaks "
        "of five segments (of three where blocks are no units), number of events.",
        false, truth_read_written, sums);
    print_file("systems_events.jsonl", "Whole event lists.", true, truth_read_written, sums);
    print_file("fsdp1_events.jsonl",
               "Whole event lists: bytes, sign, order, category, place, label.", true,
               truth_read_written, sums);
    print_file("fsdp1_hf_events.jsonl",
               "Whole event lists of Hugging Face transformers' own models.", true, truth_read_hf,
               sums);
    print_file("recorded_fsdp1_events.jsonl", "The same of models that tools/record.py recorded.",
               true, truth_read_recorded, sums);
    print_file("lora_events.jsonl", "Whole event lists of models with peft's adapters.", true,
               truth_read_hf, sums);
    print_file("few_bits_events.jsonl", "The same of models in 4 bits of bitsandbytes.", true,
               truth_read_hf, sums);
    print_liger(sums);
    print_cut(sums);
    print_titan_numbers(sums);
    print_file("frozen_events.jsonl",
               "The same of models in 16 bits, with peft's adapters in fp32.", true, truth_read_hf,
               sums);
    print_file("offload_events.jsonl", "Whole event lists with CPUOffload(offload_params=True).",
               true, truth_read_written, sums);
    print_accelerate(sums);
    print_direct(sums);
    print_attention(sums);
    print_drawn_linear(sums);
    print_random(sums);
    print_optimizers(sums);
}

int main(int argc, char **argv)
{
    static const struct {
        enum system_kind system;
        void (*print)(struct sums *sums);
    } systems[] = {
        {SYSTEM_FSDP2, print_fsdp2}, {SYSTEM_DDP, print_ddp},    {SYSTEM_FSDP1, print_fsdp1},
        {SYSTEM_ZERO1, print_zero},  {SYSTEM_ZERO2, print_zero}, {SYSTEM_ZERO3, print_zero},
    };
    struct sums sums = {.before = ""};
    for (int a = argc > 1 ? 1 : 0; a < argc; a++) /* no system: FSDP2 */
        for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
            if (strcmp(argc > 1 ? argv[a] : system_name(SYSTEM_FSDP2),
                       system_name(systems[i].system)) == 0) {
                sums.system = systems[i].system;
                systems[i].print(&sums);
            }
    printf("\n%zu of %zu configurations without any difference.\n", sums.exact, sums.rows);
    return sums.rows ? 0 : 1; /* a row that differs is a line of the report; tests hold the rest */
}
