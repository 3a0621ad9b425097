/* test_gpu.c - a training step as one GPU allocated it, beside the same model recorded without one.
 *
 * tests/data/gpu/allocator/wl_medium_* is the history of PyTorch's allocator on a GPU (README.md
 * there); tests/data/recorded/wl_medium.py is the model. The recording was made under a dispatch
 * mode, which does less in place: what a GPU does follows by rule (recorded/recording_stream.c). */
#include "recorded/recording.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

enum { SMALL = 16 }; /* numbers: PyTorch keeps some of them elsewhere */

struct events {
    int64_t *of; /* bytes born, or minus those that died */
    uint32_t count, cap;
};

static void add(struct events *events, int64_t bytes)
{
    if (llabs(bytes) <= SMALL)
        return;
    ARRAY_GROW(events->of, events->count, events->cap);
    events->of[events->count++] = bytes;
}

static struct events of_gpu(const char *path)
{
    struct events events = {.of = NULL};
    char line[256];
    gzFile file = gzopen(path, "rb");
    assert_non_null(file);
    while (gzgets(file, line, sizeof line)) {
        unsigned long long address;
        long long bytes;
        char kind;
        if (sscanf(line, "%c %llu %lld", &kind, &address, &bytes) == 3 &&
            (kind == 'A' || kind == 'F'))
            add(&events, kind == 'A' ? bytes : -bytes);
    }
    gzclose(file);
    return events;
}

static struct events of_recording(const char *path, const struct recording_choice *choice)
{
    struct err err = {0};
    struct events events = {.of = NULL};
    struct recording *recording = NULL;
    struct stream *stream = NULL;
    if (recording_read(path, &recording, &err) != ERR_OK ||
        recording_stream(recording, choice, &stream, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; stream && i < stream->step_count; i++) {
        const struct stream_step step = stream->steps[i];
        if (step.kind == STEP_BIRTH || step.kind == STEP_DEATH) {
            const int64_t bytes = (int64_t)stream->buffers[step.arg].bytes;
            add(&events, step.kind == STEP_BIRTH ? bytes : -bytes);
        }
    }
    stream_free(stream);
    recording_free(recording);
    return events;
}

/* Two kernels here take workspaces from the allocator. index_put_ sorts its indices first, in ten
 * births and deaths of their size (native/cuda/Indexing.cu, index_put_with_sort_kernel). A sum over
 * many rows is shared by blocks, which leave their parts in one buffer and count themselves in
 * another (native/cuda/Reduce.cuh, gpu_reduce_kernel). The events of one of these from gpu[at] on.
 */
static uint32_t workspaces(const struct events *gpu, uint32_t at, int64_t index_bytes)
{
    const int64_t *of = gpu->of + at;
    uint32_t count = 0;
    int64_t live = 0;
    if (at + 4 <= gpu->count && of[0] > 0 && of[1] > 0 && of[2] == -of[1] && of[3] == -of[0] &&
        of[1] < 1024)
        return 4;
    while (at + count < gpu->count && llabs(of[count]) == index_bytes)
        live += of[count++];
    return live == 0 ? count : 0;
}

static int64_t peak(const struct events *events, uint32_t count)
{
    int64_t live = 0, most = 0;
    for (uint32_t i = 0; events->of && i < count; i++) {
        live += events->of[i];
        most = live > most ? live : most;
    }
    return most;
}

static void a_step_on_a_gpu_is_planned_event_for_event(void **state)
{
    static const struct {
        const char *gpu, *recording;
        uint32_t seq, workspaces; /* events of kernels' own */
    } steps[] = {{"tests/data/gpu/allocator/wl_medium_128_training.txt.gz",
                  "tests/data/recorded/wl_medium_128.stream.json.gz", 128, 10},
                 {"tests/data/gpu/allocator/wl_medium_256_training.txt.gz",
                  "tests/data/recorded/wl_medium_256.stream.json.gz", 256, 10 + 4 * 49}};
    enum {
        BATCH = 4,
        HELD_AT_THE_END = 1
    }; /* the logits, which the script drops in its next step */
    (void)state;
    for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        const struct recording_choice choice = {
            .batch = BATCH, .seq = steps[s].seq, .compute = DTYPE_FP32, .autograd = AUTOGRAD_GPU};
        struct events gpu = of_gpu(steps[s].gpu);
        struct events ours = of_recording(steps[s].recording, &choice);
        const uint32_t count = ours.count - HELD_AT_THE_END;
        uint32_t skipped = 0;
        assert_true(count > 6500 && gpu.count > count + 16); /* the update comes after */
        for (uint32_t i = 0; gpu.of && ours.of && i < count; i++) {
            if (gpu.of[i + skipped] != ours.of[i])
                skipped += workspaces(&gpu, i + skipped, (int64_t)BATCH * steps[s].seq * 8);
            if (gpu.of[i + skipped] != ours.of[i])
                fail_msg("%s: event %u of %u: %lld bytes on the GPU, %lld planned", steps[s].gpu, i,
                         count, (long long)gpu.of[i + skipped], (long long)ours.of[i]);
        }
        assert_int_equal(skipped, steps[s].workspaces);
        assert_int_equal(peak(&gpu, count + skipped), peak(&ours, count));
        free(gpu.of);
        free(ours.of);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_on_a_gpu_is_planned_event_for_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
