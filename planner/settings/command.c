/* command.c - see command.h. */
#include "settings/command.h"

const struct command_about *command_about(enum command command)
{
    static const struct command_about about[COMMAND_COUNT] = {
        [COMMAND_FIT] =
            {"fit",
             "shardplan fit",
             "bytes per GPU, and whether the job fits",
             "Bytes per GPU and the verdict; when a job does not fit, what would make "
             "it fit. MODEL is a preset or a config.json (or its folder). Several "
             "systems side by side, each with settings of its own: --strategy "
             "ddp+autocast=bf16,zero2,fsdp2,fsdp2+reshard=never.",
             {"shardplan fit llama-3.1-8b --gpus 8 --seq 8k --checkpointing full",
              "shardplan fit path/to/config.json --strategy fsdp2,zero3 --gpu a100-sxm-80gb",
              "shardplan fit --from accelerate.yaml llama-3.1-8b --seq 4096"}},
        [COMMAND_PLAN] =
            {"plan",
             "shardplan plan",
             "the step: plan.json, timeline, memory curve",
             "One training step: memory and timeline, written to a folder. MODEL is a "
             "preset or a config.json (or its folder). Several systems, by commas, "
             "are a table, as of `fit`.",
             {"shardplan plan llama-3.1-8b --gpus 8 --seq 8k --checkpointing full -o step",
              "shardplan plan gpt2-xl --strategy ddp --autocast bf16 --micro-batch 4",
              "shardplan plan --from accelerate.yaml llama-3.1-8b --seq 4096"}},
        [COMMAND_TUNE] =
            {"tune",
             "shardplan tune",
             "the fastest settings that fit, and why",
             "Searches all systems, and of each all settings that do not change what is "
             "trained, for those with "
             "the shortest step that fit, and shows what they give and take. A setting "
             "that is given is not searched. Exit status: 0 some fit, 1 none does, 2 "
             "bad input.",
             {"shardplan tune llama-3.1-8b --gpus 8 --seq 8k --global-batch 64",
              "shardplan tune llama-3.1-8b --strategy fsdp2 --allow loss --headroom 4GiB",
              "shardplan tune llama-3.1-8b --to torchtitan -o best"}},
        [COMMAND_SWEEP] =
            {"sweep",
             "shardplan sweep",
             "a job over one or two settings: a table and a picture",
             "A job over the values of one setting (a table) or two (a heat map), or "
             "the largest or fewest of a number that fits. An axis is a setting with "
             "values (reshard=default,never; micro-batch=1..8; seq=2048..16384+2048; "
             "gpus=8..64x2), a setting alone (its usual values), or a number of the "
             "profile (profile.nic_bytes_per_s=x0.5,x1,x2). Exit status: 0 something "
             "fits, 1 nothing does, 2 bad input.",
             {"shardplan sweep llama-3.1-8b --over checkpointing --over micro-batch=1,2,4",
              "shardplan sweep llama-3.1-8b --largest micro-batch --over seq=2k,4k,8k",
              "shardplan sweep llama-3.1-70b --fewest gpus"}},
        [COMMAND_DIFF] =
            {"diff", "shardplan diff", "what changed between two plans or settings",
             "Two jobs side by side: settings, bytes by category and phase, time by "
             "lane and kind, and unit by unit. Each of A and B is a plan.json (or a "
             "folder with one) or a model (with the options); B may also be changes to A, such as "
             "reshard=never,micro-batch=2. Exit status: 0 done, 2 bad input.",
             .of_plan = "shardplan diff DIR B"},
        [COMMAND_RUN] = {"run",
                         "shardplan run",
                         "execute a plan on real ranks and record it",
                         "Executes a plan, each rank as a process on the host or on a GPU of its "
                         "own, and records the last step.",
                         {"shardplan run plan/plan.json",
                          "shardplan run plan/plan.json --device cuda --steps 20 -o plan",
                          "shardplan run plan/plan.json --rehearse 0/64"},
                         .of_plan = "shardplan run DIR"},
        [COMMAND_COMPARE] = {"compare", "shardplan compare",
                             "predicted beside recorded, instruction by instruction",
                             "A plan beside the recorded trace of a run of it, instruction by "
                             "instruction. Exit status: 0 memory is equal (and time within "
                             "--tolerance), 1 it is not, 2 bad input.",
                             .of_plan = "shardplan compare DIR TRACE"},
        [COMMAND_EXPORT] = {"export", "shardplan export", "a plan as a framework's configuration",
                            "The settings of a plan as a file of FSDP2 (Python), torchtitan "
                            "(TOML), accelerate (YAML) or DeepSpeed (JSON). What the framework "
                            "cannot say is refused; what the training script has to say is listed "
                            "on standard error and in the file. `--from` reads it back.",
                            .of_plan = "shardplan export DIR"},
        [COMMAND_CALIBRATE] = {"calibrate", "shardplan calibrate",
                               "measure this machine: the profile that plans of it need",
                               "Measures this machine by running small plans on it, and writes the "
                               "profile that plans of it are timed with: `shardplan plan --profile "
                               "FILE`."},
        [COMMAND_MODELS] = {"models", "shardplan models", "built-in models",
                            "Lists the built-in models with their parameters."},
        [COMMAND_GPUS] = {"gpus", "shardplan gpus", "built-in GPUs and node types",
                          "Lists the built-in GPUs and node types; with --json every number of "
                          "them with its source."},
        [COMMAND_KERNELS] = {"kernels", "shardplan kernels",
                             "predicted beside measured kernels, a table of them",
                             "Prints a table of measured kernels again, as CSV, with predicted_us "
                             "added to each row: the time of the kernel alone; of a norm, forward "
                             "and backward, with each in a column of its own. Empty where the cost "
                             "model does not know the kernel. The header says what a table is of: "
                             "launches of torch.profiler, products, attention or norms."},
        [COMMAND_RANK] = {"shardrun", "shardrun", "one rank of a run",
                          "One rank of a run: executes the plan on the host or on a GPU. "
                          "`shardplan run` starts as many ranks as the plan asks for; mpirun, "
                          "torchrun and srun can, too."},
    };
    return &about[command];
}
