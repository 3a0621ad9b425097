/* start_up_result.c - see start_up_result.h. */
#include "report/start_up_result.h"

#include "report/compare_print.h"
#include "report/style.h"

static json_t *row_json(const struct start_up_row *row)
{
    json_t *fits_host = row->host_capacity_bytes ? json_boolean(row->fits_host) : json_null();
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:o}", "gpu_bytes",
        (json_int_t)row->gpu_bytes, "resident_bytes", (json_int_t)row->resident_bytes,
        "device_bytes", (json_int_t)row->device_bytes, "host_rank0_bytes",
        (json_int_t)row->host_rank0_bytes, "host_other_bytes", (json_int_t)row->host_other_bytes,
        "host_node_bytes", (json_int_t)row->host_node_bytes, "host_needed_bytes",
        (json_int_t)row->host_needed_bytes, "storage_rank_bytes", (json_int_t)row->rank_bytes,
        "storage_node_bytes", (json_int_t)row->node_bytes, "storage_bytes", (json_int_t)row->bytes,
        "blocking_s", row->blocking_s, "seconds", row->seconds, "fits_gpu", (int)row->fits_gpu,
        "fits_host", fits_host);
}

json_t *start_up_json(const struct start_up *start_up, const struct machine *machine)
{
    json_t *parts[2] = {json_object(), json_object()};
    for (int way = 0; way < START_UP_WAYS; way++)
        if (start_up->rows[way].title)
            json_object_set_new(parts[start_up_is_checkpoint((enum start_up_way)way)],
                                start_up_name((enum start_up_way)way),
                                row_json(&start_up->rows[way]));
    const struct quantity *store = &machine->profile.of[PROFILE_STORE];
    return json_pack("{s:f, s:s?, s:o, s:o}", "storage_bytes_per_s", store->value, "storage_source",
                     store->source, "initialisation", parts[0], "checkpoints", parts[1]);
}

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

static void print_rows(FILE *file, const struct start_up *start_up, const struct style *s,
                       bool checkpoints)
{
    char time[32];
    fprintf(file, "\n  %s%-17s %8s %8s %8s %9s%s\n", s->bold,
            checkpoints ? "checkpoint" : "initialisation", "GPU", "host", "storage", "time",
            s->off);
    for (int way = 0; way < START_UP_WAYS; way++) {
        const struct start_up_row *row = &start_up->rows[way];
        if (!row->title || start_up_is_checkpoint((enum start_up_way)way) != checkpoints)
            continue;
        fprintf(file, "  %-17s %8.2f %8.2f %8.2f %9s  %s%s%s%s\n",
                start_up_name((enum start_up_way)way), gib(row->gpu_bytes),
                gib(row->host_node_bytes), gib(row->node_bytes),
                row->blocking_s > 0 ? compare_seconds(row->blocking_s, time) : "-",
                row->fits_gpu && row->fits_host ? "" : s->bad,
                !row->fits_gpu    ? "does not fit: "
                : !row->fits_host ? "does not fit the host: "
                                  : "",
                row->fits_gpu && row->fits_host ? "" : s->off, row->title);
    }
}

void start_up_print(FILE *file, const struct start_up *start_up, const struct machine *machine)
{
    const struct style s = style_of(file);
    const struct quantity *store = &machine->profile.of[PROFILE_STORE];
    print_rows(file, start_up, &s, false);
    print_rows(file, start_up, &s, true);
    fprintf(
        file,
        "  %sGiB: tensors of this rank's GPU at the peak; memory of one host, storage of one "
        "node.\n"
        "  Time is that of moving bytes, for which training stands still: storage at %.3g GB/s\n"
        "  a node (%s), copies at the rate of pinned memory.%s\n",
        s.dim, store->value / 1e9, store->source ? store->source : "no source", s.off);
}
