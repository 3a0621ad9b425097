/* command.c - see command.h. */
#include "settings/command.h"

const struct command_about *command_about(enum command command)
{
    static const struct command_about about[COMMAND_COUNT] = {
        [COMMAND_FIT] = {"fit", "shardplan fit", "bytes per GPU, and whether the job fits",
                         "Bytes per GPU and the verdict; when a job does not fit, what would make "
                         "it fit. MODEL is a preset or a config.json (or its folder)."},
        [COMMAND_PLAN] = {"plan", "shardplan plan", "the step: plan.json, timeline, memory curve",
                          "One training step: memory and timeline, written to a folder. MODEL is a "
                          "preset or a config.json (or its folder)."},
        [COMMAND_TUNE] = {"tune", "shardplan tune", "the fastest settings that fit, and why",
                          "Searches all settings that do not change what is trained for those with "
                          "the shortest step that fit, and shows what they give and take. A setting "
                          "that is given is not searched. Exit status: 0 some fit, 1 none does, 2 "
                          "bad input."},
        [COMMAND_RUN] = {"run", "shardplan run", "execute a plan on real ranks and record it",
                         "Executes a plan, each rank as a process on the host or on a GPU of its "
                         "own, and records the last step."},
        [COMMAND_COMPARE] = {"compare", "shardplan compare",
                             "predicted beside recorded, instruction by instruction",
                             "A plan beside the recorded trace of a run of it, instruction by "
                             "instruction. Exit status: 0 memory is equal (and time within "
                             "--tolerance), 1 it is not, 2 bad input."},
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
        [COMMAND_RANK] = {"shardrun", "shardrun", "one rank of a run",
                          "One rank of a run: executes the plan on the host or on a GPU. "
                          "`shardplan run` starts as many ranks as the plan asks for; mpirun, "
                          "torchrun and srun can, too."},
    };
    return &about[command];
}
