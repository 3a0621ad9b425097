/* predict.h - a job on a machine: the plan, its memory and the verdict. */
#ifndef SHARDPLAN_PREDICT_H
#define SHARDPLAN_PREDICT_H

#include "job/clocked.h"
#include "job/job.h"
#include "machine/machine.h"
#include "memory/replay.h"

/* What the allocator asks of the driver at one instruction of a step. */
struct segment_calls {
    uint32_t instruction;
    uint32_t mallocs, frees; /* cudaMalloc, cudaFree; before frees the host waits for the device */
};

struct prediction {
    struct plan *plan; /* owned: prediction_free */
    struct memory memory;
    uint64_t parameters;
    bool host_apart;        /* requested bytes are told of the device's tensors alone: something is
                               offloaded. Not on fake tensors (--autograd recorded), where both are one
                               memory; otherwise all tensors count, as recordings count them */
    uint64_t outside_bytes; /* context and communicators */
    uint64_t context_bytes, nccl_bytes;
    uint64_t workspace_bytes; /* cuBLAS, inside the allocator */
    uint64_t device_bytes;    /* reserved + outside: what nvidia-smi shows */
    /* What a device must have at the least (allocated at the peak, and what is outside the
     * allocator) and what the job would hold of one without end; between them PyTorch gives cached
     * segments back. */
    uint64_t least_bytes, unconstrained_bytes;
    /* What the ranks of one host take of it together, as if all took what this one does: tensors
     * (memory.host_held_bytes). Python, CUDA's own, data loaders and the page cache come on top,
     * and nothing is set aside for them. */
    uint64_t host_needed_bytes, host_capacity_bytes; /* of a host; capacity 0: not known */
    uint32_t host_ranks;
    /* Managed memory (buffer.paged), and how much of it finds no room on the device beside what
     * PyTorch reserves: that is on the host. */
    uint64_t paged_bytes, paged_out_bytes;
    /* Where blocks that another stream uses come back by the machine's clock (clocked.h), what the
     * allocator would reserve of a device without end; 0: there are none, or nobody asked
     * (predict_clocked): predict does where it decides. */
    uint64_t clocked_bytes;
    struct deferred_clock clock; /* memory is by these moments: owned; NULLs: by waits */
    bool fits;                   /* both of: */
    bool fits_gpu, fits_host;    /* the second also where the capacity is not known */
    bool tight; /* fits, with less free than predictions of reserved memory have been off by */
    bool after_release; /* fits the GPU only because cached segments are given back and asked for
                           anew */
    bool by_clock; /* fits the GPU without that, as blocks come back by its clock: more would be
                      held if they did where a wait shows it alone */
    struct segment_calls
        *calls; /* (call_count) then, in a step that is like the one before: owned */
    uint32_t call_count;
    uint32_t settling_mallocs, settling_frees; /* ... and all those of the steps until then, the
                                                  first aside */
};

/* Under a capacity, the step that is reported: by then the allocator has found where it can do
 * again what it did in the step before, as far as frees do not depend on clocks. Of the published
 * runs that fit only so (tests/job/test_published_fits.c) every one has after three. */
enum { STEPS_TO_SETTLE = 3 };

/* The kernel that a job's attention runs with there: the one that was asked for, or what PyTorch
 * takes by itself. */
enum attention_kernel attention_of(const struct job *job, const struct machine *machine);

/* The job as it runs there: with that kernel. ERR_UNSUPPORTED: what that keeps is not known. */
enum err_code job_on_machine(const struct job *job, const struct machine *machine, struct job *out,
                             struct err *err);

/* The largest error of reserved memory on runs that others published (README.md: Llama-3.1-8B under
 * torchtitan on 8 and 128 H100s, -1.6 and -1.2 %). */
#define RESERVED_ERROR 0.016

/* Plans and replays.
 *
 *     blocks come back where waits show it (deferred.h): does that fit?      yes: it fits
 *     by the machine's clock, as PyTorch takes them back: does that?         yes: by_clock
 *     by the clock, and given back to the driver before it runs out?         yes: after_release
 *
 * The first needs no clock; where it is too much, and there are such blocks, the clock decides (and
 * is told), since it is what the allocator goes by. Its moments are those of a step in which
 * nothing is given back: the waits that giving back costs would let more events pass, and excuse
 * themselves. What has no step time on that machine has no memory either (ERR_INVALID of
 * costs_check): no command says of a job that it fits where another refuses it. With the whole
 * demand known, a job whose segments exceed the device is replayed once more under the device's
 * capacity: PyTorch releases cached segments before it gives up. */
enum err_code predict(const struct job *job, const struct machine *machine, struct prediction *out,
                      struct err *err);
/* The same for those who ask for sums alone: where micro-batches repeat and find memory alike, of a
 * plan of few of them, with repeats (plan/repeat.h). Its cost does not grow with their number. */
enum err_code predict_few(const struct job *job, const struct machine *machine,
                          struct prediction *out, struct err *err);
/* The same of a plan that there is already: it is out's from the call on, whatever is returned.
 * out->parameters stays 0. */
enum err_code predict_plan(struct plan *plan, const struct machine *machine, struct prediction *out,
                           struct err *err);
void prediction_free(struct prediction *prediction);

/* Whether memory that another stream uses makes reserved more than it need be (memory/deferred.h):
 * by a tenth of what is allocated. */
bool prediction_frees_late(const struct prediction *prediction);

/* Of what fits so, fills in clocked_bytes where predict needed none. Errors as costs_of_plan. */
enum err_code predict_clocked(struct prediction *prediction, const struct machine *machine,
                              struct err *err);

/* cudaMallocs and cudaFrees of the step that is reported, those of repeats counted each time. */
void prediction_calls(const struct prediction *prediction, uint32_t *mallocs, uint32_t *frees);

/* The most that a rank may hold of its host, of which `world` have one or more; UINT64_MAX: it is
 * not known what a host has. */
uint64_t machine_host_limit(const struct machine *machine, uint32_t world);

/* Bytes that a plan needs outside the allocator: context and communicators. */
uint64_t machine_outside_bytes(const struct plan *plan, const struct machine *machine);

/* What NCCL takes on a rank for the communicators of a plan's groups. */
uint64_t communicators_bytes(const struct plan *plan, const struct machine *machine);

/* Bytes of a plan's managed memory (buffer.paged), and how many of so many find no room on the
 * device beside what else it holds: cudaMalloc takes its memory before pages do. */
uint64_t plan_paged_bytes(const struct plan *plan);
uint64_t machine_paged_out(const struct machine *machine, uint64_t paged_bytes,
                           uint64_t device_bytes);

/* What expandable segments may hold beyond the capacity that the allocator is given (allocator.h),
 * in bytes: a device has not got that. */
uint64_t machine_page_over(const struct machine *machine);

/* The allocator and workspaces that a machine stands for. */
struct memory_options machine_memory(const struct machine *machine);

/* The same as the prediction was replayed with: under the device's capacity where it fits only so,
 * and by its clock, which is lent, where that decides. */
struct memory_options prediction_memory(const struct prediction *prediction,
                                        const struct machine *machine);

#endif
