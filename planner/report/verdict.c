/* verdict.c - see verdict.h. */
#include "report/verdict.h"

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* What that costs a step beyond the calls is not simulated: see step_time.h, RELEASING_LONGER. That
 * not all such jobs fit is what reports/validation/verdicts.md found. */
static void print_calls(FILE *file, const struct prediction *p)
{
    uint32_t mallocs, frees;
    prediction_calls(p, &mallocs, &frees);
    fprintf(
        file,
        "        only by giving cached memory back: tensors take %.2f GiB, and what the "
        "allocator keeps for\n        later %.2f on a larger GPU%s; here it runs full,\n        ",
        gib(p->least_bytes),
        gib(p->clocked_bytes ? p->clocked_bytes + p->outside_bytes : p->unconstrained_bytes),
        p->clocked_bytes ? ", as blocks that another stream uses come back late" : "");
    if (mallocs + frees)
        fprintf(file, "%u cudaFree and %u cudaMalloc a step.\n", frees, mallocs);
    else
        fprintf(file, "%u cudaFree and %u cudaMalloc in the first steps, none later.\n",
                p->settling_frees, p->settling_mallocs);
    fputs("        A risk: of 12 published runs like it 6 took 16 to 36 % longer than predicted, "
          "of 6 "
          "more\n        reports of such jobs 2 are of running out of memory\n",
          file);
}

/* On what that number rests. How far off it may be: reports/validation/verdicts.md. */
static void print_clock(FILE *file, const struct prediction *p)
{
    fprintf(
        file,
        "        by this machine's clock: blocks that another stream uses (record_stream) come "
        "back once it is\n        done with them; at once it were %.2f GiB, and as late as waits "
        "show it %.2f. Of 2 published\n        jobs like it one trained and one ran out of "
        "memory\n",
        gib(p->least_bytes), gib(p->unconstrained_bytes));
}

static void print_host(FILE *file, const struct style *s, const struct prediction *p)
{
    const double needed = gib(p->host_needed_bytes), there = gib(p->host_capacity_bytes);
    fprintf(file,
            "  %sdoes not fit the host%s: %.2f GiB needed by %u ranks, %.2f there, %.2f too much\n",
            s->bad, s->off, needed, p->host_ranks, there, needed - there);
}

void verdict_print(FILE *file, const struct style *s, const struct machine *machine,
                   const struct prediction *p)
{
    const double capacity = gib(profile_bytes(&machine->profile, PROFILE_CAPACITY));
    const double device = gib(p->device_bytes), least = gib(p->least_bytes);
    if (!p->fits_host)
        print_host(file, s, p);
    if (!p->fits_gpu && least > capacity)
        fprintf(file,
                "  %sdoes not fit%s: %.2f GiB with nothing cached, %.2f there, %.2f too much\n",
                s->bad, s->off, least, capacity, least - capacity);
    else if (!p->fits_gpu)
        fprintf(
            file,
            "  %sdoes not fit%s: %.2f of %.2f GiB with nothing cached, but %s (%.2f on a larger "
            "GPU)\n",
            s->bad, s->off, least, capacity,
            p->clocked_bytes ? "blocks that another stream uses come back too late"
                             : "fragmentation needs more",
            device);
    else
        fprintf(file, "  %s%s%s%s: %.2f of %.2f GiB, %.2f free\n", p->fits ? s->good : "",
                p->fits ? "fits" : "the GPU", p->fits ? s->off : "", p->tight ? ", tight" : "",
                device, capacity, capacity - device);
    if (p->after_release)
        print_calls(file, p);
    if (p->by_clock)
        print_clock(file, p);
    if (p->fits_gpu && !p->by_clock && gib(p->clocked_bytes + p->outside_bytes) > capacity)
        fprintf(
            file,
            "        a risk: %.2f by this machine's clock, where cached memory would have to be "
            "given back (below)\n",
            gib(p->clocked_bytes + p->outside_bytes));
}

void verdict_print_late(FILE *file, const struct prediction *p)
{
    if (!p->fits_gpu || p->by_clock || p->after_release || !prediction_frees_late(p))
        return;
    const bool later = p->clocked_bytes > p->memory.reserved_bytes;
    fprintf(file,
            "\n  late frees: blocks that another stream uses (record_stream) are counted until a "
            "wait shows that\n  it is done with them; a GPU has them back %s: reserved "
            "is %.2f GiB by this machine's\n  clock, %.2f at the least\n",
            later ? "when it is, here later" : "as soon as it is", gib(p->clocked_bytes),
            gib(p->memory.allocated.bytes));
}
