/* test_checkpoint.c - what is saved by one mesh is loaded by another, bit for bit, or refused.
 *
 * The execution is that of fake_execution.h. Saving by several ranks takes processes, forked here;
 * one test has them by mpirun: a copy of this program that finds its check in the environment is a
 * rank. Loading by several ranks needs no messages, so one process plays them in turn, and tests of
 * their own have it among ranks as well. */
#include "tests/support/fake_execution.h"
#include "tests/support/folder.h"
#include "tests/support/ranks.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define FOLDER_VARIABLE "SHARDPLAN_CHECKPOINT_FOLDER" /* where a rank works */
#define LAYOUT_VARIABLE "SHARDPLAN_CHECKPOINT_LAYOUT" /* and how it keeps its model */

/* Rank `rank` of world = replicas x ranks, FSDP2's rows. */
static struct plan *make_plan(uint32_t ranks, uint32_t replicas, uint32_t rank, int optimizer)
{
    return mesh_plan((struct mesh){ROWS, ranks, replicas}, rank, optimizer);
}

/* ---- a rank ---- */

struct rig {
    struct plan *plan;
    struct execution *execution;
    struct comm *comm;
};

static struct rig open_rig_of(struct mesh mesh, bool stepped, bool filled)
{
    const struct comm_group none = {.ranks = 1, .stride = 1};
    struct rig rig = {.comm = open_comm(&none, 1, 60)};
    rig.plan = mesh_plan(mesh, comm_rank(rig.comm), ADAMW);
    rig.execution = make_execution(rig.plan, stepped, filled);
    return rig;
}

static struct rig open_rig(uint32_t ranks, uint32_t replicas, bool stepped, bool filled)
{
    return open_rig_of((struct mesh){ROWS, ranks, replicas}, stepped, filled);
}

static void close_rig(struct rig *rig)
{
    free_execution(rig->execution);
    plan_free(rig->plan);
    comm_close(rig->comm);
}

static void rank_save(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, true, true);
    REQUIRE_OK(checkpoint_save(rig.execution, rig.plan, rig.comm, 7, folder, &err));
    close_rig(&rig);
}

static void rank_save_replicated(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks / 2, 2, true, true);
    REQUIRE_OK(checkpoint_save(rig.execution, rig.plan, rig.comm, 7, folder, &err));
    REQUIRE_OK(
        checkpoint_save_full(rig.execution, rig.plan, rig.comm, file_in(folder, "full"), &err));
    close_rig(&rig);
}

static void rank_save_layout(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    const char *layout = getenv(LAYOUT_VARIABLE);
    REQUIRE(layout);
    const struct mesh mesh = {(enum layout)atoi(layout), ranks, 1};
    struct rig rig = open_rig_of(mesh, true, true);
    REQUIRE_OK(checkpoint_save(rig.execution, rig.plan, rig.comm, 7, folder, &err));
    REQUIRE_OK(
        checkpoint_save_full(rig.execution, rig.plan, rig.comm, file_in(folder, "full"), &err));
    close_rig(&rig);
}

static void rank_save_unstepped(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, false, true);
    REQUIRE_OK(checkpoint_save(rig.execution, rig.plan, rig.comm, 0, folder, &err));
    close_rig(&rig);
}

static void rank_load(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, true, false);
    uint64_t step = 0;
    REQUIRE_OK(checkpoint_load(rig.execution, rig.plan, rig.comm, folder, &step, &err));
    REQUIRE(step == 7 && is_restored(rig.execution, EXECUTION_EXP_AVG_SQ));
    close_rig(&rig);
}

/* The temporary file of rank 1 is a full disk. */
static void rank_full_disk(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, true, true);
    struct err err = {0};
    REQUIRE(checkpoint_save(rig.execution, rig.plan, rig.comm, 8, folder, &err) == ERR_IO);
    REQUIRE(strstr(err.text, "shard-00001-of-") && strstr(err.text, "No space left"));
    REQUIRE(comm_rank(rig.comm) == 1 || strstr(err.text, "rank 1: "));
    close_rig(&rig);
}

static void rank_full_disk_of_full(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, true, true);
    struct err err = {0};
    REQUIRE(checkpoint_save_full(rig.execution, rig.plan, rig.comm, file_in(folder, "full"),
                                 &err) == ERR_IO);
    REQUIRE(strstr(err.text, "No space left"));
    close_rig(&rig);
}

/* A file that one rank finds broken is refused by all, before anything is written. */
static void rank_load_broken(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, true, false);
    struct err err = {0};
    uint64_t step = 99;
    REQUIRE(checkpoint_load(rig.execution, rig.plan, rig.comm, folder, &step, &err) == ERR_INVALID);
    REQUIRE(strstr(err.text, "shard-00002-of-00003") && strstr(err.text, "truncated"));
    REQUIRE(step == 99 && rig.execution->writes == 0);
    close_rig(&rig);
}

/* A parameter of more pieces than one. */
static void rank_large(uint32_t ranks)
{
    const char *folder = getenv(FOLDER_VARIABLE);
    struct rig rig = open_rig(ranks, 1, false, false);
    const struct shape whole = {{5, 1 << 20}, 2};
    struct execution *e = rig.execution;
    rig.plan->params[0].shape = whole;
    for (int state = EXECUTION_STORE; state <= EXECUTION_PARAM; state++)
        list_elements(e, 0, state);
    const uint64_t count = e->count[0][1], *element = e->element[0][1];
    for (uint64_t i = 0; i < count; i++)
        e->values[0][1][i] = (float)element[i];
    const char *path = file_in(folder, "large");
    REQUIRE_OK(checkpoint_save_full(e, rig.plan, rig.comm, path, &err));
    memset(e->values[0][1], 0, count * sizeof(float));
    REQUIRE_OK(checkpoint_load_full(e, rig.plan, rig.comm, path, &err));
    for (uint64_t i = 0; i < count; i++)
        REQUIRE(e->values[0][1][i] == (float)element[i]);
    close_rig(&rig);
}

static const struct rank_check checks[] = {
    {"save", rank_save},
    {"save_replicated", rank_save_replicated},
    {"save_layout", rank_save_layout},
    {"save_unstepped", rank_save_unstepped},
    {"load", rank_load},
    {"full_disk", rank_full_disk},
    {"full_disk_of_full", rank_full_disk_of_full},
    {"load_broken", rank_load_broken},
    {"large", rank_large},
    {NULL, NULL},
};

/* ---- runs ---- */

static void among_in(const char *folder, int ranks, const char *name)
{
    const struct rank_check *check = checks;
    while (strcmp(check->name, name) != 0)
        check++;
    setenv(FOLDER_VARIABLE, folder, 1);
    among_forked(check, ranks);
}

struct solo { /* a rank alone */
    struct plan *plan;
    struct execution *execution;
};

static struct solo open_solo(int optimizer)
{
    struct plan *plan = make_plan(1, 1, 0, optimizer);
    return (struct solo){plan, make_execution(plan, optimizer == ADAMW, true)};
}

static void close_solo(struct solo *solo)
{
    free_execution(solo->execution);
    plan_free(solo->plan);
}

static char *saved_by(uint32_t ranks, const char *check)
{
    char *folder = folder_new("checkpoint");
    if (ranks > 1) {
        among_in(folder, (int)ranks, check);
        return folder;
    }
    struct err err = {0};
    struct solo solo = open_solo(ADAMW);
    assert_int_equal(checkpoint_save(solo.execution, solo.plan, NULL, 7, folder, &err), ERR_OK);
    close_solo(&solo);
    return folder;
}

struct outcome {
    enum err_code rc;
    struct err err;
    uint64_t step;
    uint32_t writes;
    bool params, states; /* are what was saved */
    bool zeros;          /* the states of tiny.bias are */
};

/* What loading is for one rank; full: a file of whole parameters of that name. */
static struct outcome load_as(const struct plan *plan, const char *folder, const char *full)
{
    struct outcome outcome = {0};
    struct execution *e = make_execution(plan, true, false);
    outcome.rc = full ? checkpoint_load_full(e, plan, NULL, file_in(folder, full), &outcome.err)
                      : checkpoint_load(e, plan, NULL, folder, &outcome.step, &outcome.err);
    outcome.writes = e->writes;
    outcome.params = is_restored(e, EXECUTION_PARAM);
    outcome.states = is_restored(e, EXECUTION_EXP_AVG_SQ);
    outcome.zeros = e->count[4][2] && e->values[4][2][0] == 0 && e->values[4][3][0] == 0;
    free_execution(e);
    return outcome;
}

static struct outcome load_one(const char *folder, int optimizer)
{
    struct plan *plan = make_plan(1, 1, 0, optimizer);
    const struct outcome outcome = load_as(plan, folder, NULL);
    plan_free(plan);
    return outcome;
}

static void expect_restored(const char *folder, uint32_t ranks, uint32_t replicas)
{
    for (uint32_t rank = 0; rank < ranks * replicas; rank++) {
        struct plan *plan = make_plan(ranks, replicas, rank, ADAMW);
        const struct outcome outcome = load_as(plan, folder, NULL);
        assert_string_equal(outcome.err.text, "");
        assert_int_equal(outcome.step, 7);
        assert_true(outcome.states);
        plan_free(plan);
    }
}

/* Loading refuses before it has written anything, and says so. */
static void expect_refusal(const char *folder, enum err_code code, const char *message)
{
    const struct outcome outcome = load_one(folder, ADAMW);
    if (outcome.rc != code || !strstr(outcome.err.text, message))
        fail_msg("%s, not '%s': %s", err_name(outcome.rc), message, outcome.err.text);
    assert_int_equal(outcome.writes, 0);
}

/* ---- meshes ---- */

static void what_one_mesh_saves_another_loads(void **state)
{
    (void)state;
    static const uint32_t savers[] = {1, 2, 4};
    for (size_t i = 0; i < 3; i++) {
        char *folder = saved_by(savers[i], "save");
        assert_int_equal(files_in(folder), savers[i] + 1);
        for (uint32_t ranks = 1; ranks <= 12; ranks++)
            expect_restored(folder, ranks, 1);
        expect_restored(folder, 2, 3);
        folder_drop(folder);
    }
}

static void ranks_that_talk_load_too(void **state)
{
    (void)state;
    char *folder = saved_by(4, "save");
    among_in(folder, 3, "load");
    folder_drop(folder);
}

/* As above, over the other of comm.h's two kinds. */
static void ranks_of_mpirun_save_and_load(void **state)
{
    (void)state;
    char *folder = folder_new("checkpoint");
    setenv(FOLDER_VARIABLE, folder, 1);
    among(4, "save_replicated");
    expect_restored(folder, 3, 1);
    among(2, "save");
    among(3, "load");
    folder_drop(folder);
}

static char *saved_as(enum layout layout, int ranks)
{
    char *folder = folder_new("checkpoint"), number[8];
    snprintf(number, sizeof number, "%d", (int)layout);
    setenv(LAYOUT_VARIABLE, number, 1);
    among_in(folder, ranks, "save_layout");
    return folder;
}

static void expect_all_restored(const char *folder, struct mesh mesh)
{
    for (uint32_t rank = 0; rank < mesh.ranks; rank++) {
        struct plan *plan = mesh_plan(mesh, rank, ADAMW);
        const struct outcome outcome = load_as(plan, folder, NULL);
        const struct outcome full = load_as(plan, folder, "full");
        if (!outcome.states || outcome.step != 7 || !full.params)
            fail_msg("layout %d, rank %u of %u: %s%s", (int)mesh.layout, rank, mesh.ranks,
                     outcome.err.text, full.err.text);
        plan_free(plan);
    }
}

/* FSDP2's ranks, DDP's, ZeRO's: each loads what each of them saved. */
static void what_one_system_saves_another_loads(void **state)
{
    (void)state;
    for (int saver = 0; saver < LAYOUTS; saver++) {
        char *folder = saved_as((enum layout)saver, 3);
        /* whole copies are one rank's to save; and there are the index and the full file */
        assert_int_equal(files_in(folder), (saver == WHOLE ? 1 : 3) + 2);
        for (int loader = 0; loader < LAYOUTS; loader++)
            for (uint32_t ranks = 1; ranks <= 6; ranks++)
                expect_all_restored(folder, (struct mesh){(enum layout)loader, ranks, 1});
        folder_drop(folder);
    }
}

static void files_that_lack_elements_are_refused(void **state)
{
    (void)state;
    char *folder = saved_as(OWNED, 3);
    file_replace(folder, "index.json", "\"at\": 2", "\"at\": 3");
    expect_refusal(folder, ERR_INVALID, "conv.weight has 0 elements in 3 files, instead of 20");
    folder_drop(folder);
}

static void parameters_over_two_groups_cannot_be_saved(void **state)
{
    (void)state;
    char *folder = folder_new("checkpoint");
    struct err err = {0};
    struct plan *plan = make_plan(1, 1, 0, SGD);
    plan_add_group(plan, "shard", GROUP_SHARD, 1, 1);
    plan_add_group(plan, "experts", GROUP_SHARD, 1, 1);
    for (uint32_t p = 0; p < PARAMS; p++)
        plan->pieces[plan->params[p].piece[PIECE_STORE]].group = p == 2;
    struct execution *e = make_execution(plan, false, true);
    assert_int_equal(checkpoint_save(e, plan, NULL, 0, folder, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "conv.weight is spread over group experts"));
    assert_int_equal(files_in(folder), 0);
    free_execution(e);
    plan_free(plan);
    folder_drop(folder);
}

static void replicas_save_once(void **state)
{
    (void)state;
    char *folder = saved_by(4, "save_replicated");
    assert_true(file_exists(folder, "shard-00001-of-00002.step-7.safetensors"));
    assert_int_equal(files_in(folder), 4); /* two shards, the index and `full` */
    expect_restored(folder, 3, 1);
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct plan *plan = make_plan(3, 1, rank, SGD);
        const struct outcome outcome = load_as(plan, folder, "full");
        assert_string_equal(outcome.err.text, "");
        assert_true(outcome.params);
        plan_free(plan);
    }
    folder_drop(folder);
}

static void a_large_parameter_is_gathered_in_pieces(void **state)
{
    (void)state;
    char *folder = folder_new("checkpoint");
    among_in(folder, 4, "large");
    assert_int_equal(files_in(folder), 1);
    folder_drop(folder);
}

static void an_older_checkpoint_is_replaced(void **state)
{
    (void)state;
    char *folder = saved_by(4, "save_unstepped");
    among_in(folder, 2, "save");
    expect_restored(folder, 3, 1);
    folder_drop(folder);
}

/* ---- states ---- */

static void states_before_the_first_step_are_zeros(void **state)
{
    (void)state;
    char *folder = saved_by(2, "save_unstepped");
    size_t length = 0;
    char *index = file_text(file_in(folder, "index.json"), &length);
    assert_non_null(strstr(index, "\"states\": []"));
    const struct outcome outcome = load_one(folder, ADAMW);
    assert_string_equal(outcome.err.text, "");
    assert_true(outcome.params && outcome.zeros && outcome.step == 0);
    free(index);
    folder_drop(folder);
}

static void states_that_do_not_exist_are_not_made_to_be_zeros(void **state)
{
    (void)state;
    char *folder = saved_by(2, "save_unstepped");
    struct plan *plan = make_plan(1, 1, 0, ADAMW);
    struct execution *e = make_execution(plan, false, false);
    struct err err = {0};
    uint64_t step = 99;
    assert_int_equal(checkpoint_load(e, plan, NULL, folder, &step, &err), ERR_OK);
    assert_true(step == 0 && is_restored(e, EXECUTION_PARAM) && !e->stepped);
    free_execution(e);
    plan_free(plan);
    folder_drop(folder);
}

static void states_of_later_steps_must_be_there(void **state)
{
    (void)state;
    char *folder = saved_by(2, "save_unstepped");
    file_replace(folder, "index.json", "\"step\": 0", "\"step\": 3");
    expect_refusal(folder, ERR_INVALID, "no states of AdamW after step 3");
    folder_drop(folder);
}

static void states_are_those_of_adamw(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    file_replace(folder, "index.json", "\"exp_avg_sq\"", "\"exp_avg_sp\"");
    expect_refusal(folder, ERR_INVALID, "states: expected [] or [\"exp_avg\", \"exp_avg_sq\"]");
    folder_drop(folder);
}

static void states_are_left_aside_without_an_optimizer_for_them(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    const struct outcome outcome = load_one(folder, SGD);
    assert_string_equal(outcome.err.text, "");
    assert_true(outcome.params && outcome.writes == PARAMS);
    folder_drop(folder);
}

static void a_parameter_that_was_frozen_has_no_states_to_load(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    struct plan *plan = make_plan(1, 1, 0, ADAMW);
    plan->params[FROZEN].trainable = true;
    const struct outcome outcome = load_as(plan, folder, NULL);
    assert_int_equal(outcome.rc, ERR_INVALID);
    assert_non_null(strstr(outcome.err.text, "frozen.weight/exp_avg is missing"));
    assert_int_equal(outcome.writes, 0);
    plan_free(plan);
    folder_drop(folder);
}

/* ---- torn ---- */

#define SHARD_1 "shard-00001-of-00003.step-7.safetensors"
#define SHARD_2 "shard-00002-of-00003.step-7.safetensors"

static void a_folder_without_index_is_torn(void **state)
{
    (void)state;
    char *folder = saved_by(3, "save");
    unlink(file_in(folder, "index.json"));
    expect_refusal(folder, ERR_INVALID, "has no index.json: it was torn");
    file_write(file_in(folder, "index.json"), "{\"format\": \"sh", 14);
    expect_refusal(folder, ERR_INVALID, "index.json");
    file_write(file_in(folder, "index.json"), "[]", 2);
    expect_refusal(folder, ERR_INVALID, "is not of a shardplan-checkpoint");
    folder_drop(folder);
    expect_refusal("/nonexistent", ERR_INVALID, "has no index.json");
}

static void missing_and_truncated_shards_are_refused(void **state)
{
    (void)state;
    char *folder = saved_by(3, "save");
    assert_int_equal(truncate(file_in(folder, SHARD_2), 400), 0); /* within the header */
    expect_refusal(folder, ERR_INVALID, SHARD_2 ": truncated");
    among_in(folder, 3, "load_broken");
    unlink(file_in(folder, SHARD_2));
    expect_refusal(folder, ERR_IO, "open ");
    folder_drop(folder);
    folder = saved_by(3, "save");
    struct stat whole;
    assert_int_equal(stat(file_in(folder, SHARD_1), &whole), 0);
    assert_int_equal(truncate(file_in(folder, SHARD_1), whole.st_size - 1), 0);
    expect_refusal(folder, ERR_INVALID, "the file is truncated");
    assert_int_equal(truncate(file_in(folder, SHARD_1), whole.st_size + 1), 0);
    expect_refusal(folder, ERR_INVALID, "bytes after the last tensor");
    assert_int_equal(truncate(file_in(folder, SHARD_1), 0), 0);
    expect_refusal(folder, ERR_INVALID, "truncated");
    folder_drop(folder);
}

static void shards_of_another_save_are_refused(void **state)
{
    (void)state;
    char *folder = saved_by(3, "save");
    file_replace(folder, SHARD_1, "\"step\":\"7\"", "\"step\":\"6\"");
    expect_refusal(folder, ERR_INVALID, "is of step 6, index.json of step 7");
    file_replace(folder, SHARD_1, "\"step\":\"6\"", "\"step\":\"7\"");
    file_replace(folder, SHARD_1, "first/norm.weight\":\"3\"", "first/norm.weight\":\"2\"");
    expect_refusal(folder, ERR_INVALID, "norm.weight does not begin at element 3");
    file_replace(folder, SHARD_1, "first/norm.weight\":\"2\"", "first/norm.weight\":\"3\"");
    file_replace(folder, SHARD_1, "\"head.weight/exp_avg\"", "\"tail.weight/exp_avg\"");
    expect_refusal(folder, ERR_INVALID, "head.weight/exp_avg is missing");
    file_replace(folder, SHARD_1, "\"tail.weight/exp_avg\"", "\"head.weight/exp_avg\"");
    file_replace(folder, SHARD_1, "[2,2,2]", "[2,1,4]");
    expect_refusal(folder, ERR_INVALID, "has another shape");
    folder_drop(folder);
}

/* ---- foreign ---- */

static void another_model_is_refused_by_its_first_parameter(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    file_replace(folder, "index.json", "norm.weight", "form.weight");
    expect_refusal(folder, ERR_INVALID, "parameter 1 is form.weight, the plan's is norm.weight");
    file_replace(folder, "index.json", "form.weight", "norm.weight");
    struct plan *plan = make_plan(1, 1, 0, SGD);
    plan->params[4].shape = SHAPE(2);
    struct outcome outcome = load_as(plan, folder, NULL);
    assert_non_null(strstr(outcome.err.text, "tiny.bias has another shape"));
    plan->param_count = 4;
    outcome = load_as(plan, folder, NULL);
    assert_non_null(strstr(outcome.err.text, "it has 6 parameters, the plan 4"));
    plan_free(plan);
    file_replace(folder, "index.json", "\"version\": 3", "\"version\": 2");
    expect_refusal(folder, ERR_UNSUPPORTED, "another version");
    file_replace(folder, "index.json", "\"version\": 2", "\"version\": 3");
    file_replace(folder, "index.json", "\"ranks\": 1", "\"ranks\": 0");
    expect_refusal(folder, ERR_INVALID, "no valid step or ranks");
    folder_drop(folder);
}

static void a_plan_of_more_ranks_cannot_be_saved_by_one(void **state)
{
    (void)state;
    char *folder = folder_new("checkpoint");
    struct err err = {0};
    struct plan *plan = make_plan(2, 1, 0, SGD);
    struct execution *e = make_execution(plan, false, true);
    assert_int_equal(checkpoint_save(e, plan, NULL, 0, folder, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "a plan for 2 ranks, run by 1"));
    assert_int_equal(files_in(folder), 0);
    free_execution(e);
    plan_free(plan);
    folder_drop(folder);
}

/* ---- full disks ---- */

static void a_full_disk_leaves_the_older_checkpoint(void **state)
{
    (void)state;
    char *folder = saved_by(3, "save");
    assert_int_equal(
        symlink("/dev/full", file_in(folder, "shard-00001-of-00003.step-8.safetensors")), 0);
    among_in(folder, 3, "full_disk");
    assert_int_equal(files_in(folder), 4);
    expect_restored(folder, 2, 1);
    assert_int_equal(symlink("/dev/full", file_in(folder, "full.tmp")), 0);
    among_in(folder, 3, "full_disk_of_full");
    assert_int_equal(files_in(folder), 4);
    folder_drop(folder);
}

/* A limit on the size of files cuts a write in its middle. */
static void a_disk_that_fills_up_leaves_the_older_checkpoint(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    struct solo solo = open_solo(ADAMW);
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    static const rlim_t sizes[] = {5, 700, 1900, 2200};
    for (size_t i = 0; i < 4; i++) {
        struct err err = {0};
        const struct rlimit limit = {sizes[i], old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const enum err_code rc = checkpoint_save(solo.execution, solo.plan, NULL, 8, folder, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        assert_int_equal(rc, ERR_IO);
        assert_non_null(strstr(err.text, "File too large"));
        assert_int_equal(files_in(folder), 2);
        expect_restored(folder, 1, 1);
    }
    close_solo(&solo);
    folder_drop(folder);
}

static void an_index_that_cannot_be_written_leaves_the_older_checkpoint(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    struct err err = {0};
    struct solo solo = open_solo(ADAMW);
    assert_int_equal(symlink("/dev/full", file_in(folder, "index.json.tmp")), 0);
    assert_int_equal(checkpoint_save(solo.execution, solo.plan, NULL, 8, folder, &err), ERR_IO);
    assert_non_null(strstr(err.text, "index.json.tmp: No space left"));
    assert_int_equal(files_in(folder), 2);
    expect_restored(folder, 1, 1);
    close_solo(&solo);
    folder_drop(folder);
}

/* A folder stands where a shard should go, then where the index should. */
static void a_file_that_cannot_be_put_in_place_leaves_the_older_checkpoint(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    struct err err = {0};
    struct solo solo = open_solo(ADAMW);
    const char *shard = "shard-00000-of-00001.step-8.safetensors";
    assert_int_equal(mkdir(file_in(folder, shard), 0777), 0);
    assert_int_equal(checkpoint_save(solo.execution, solo.plan, NULL, 8, folder, &err), ERR_IO);
    expect_restored(folder, 1, 1);
    assert_int_equal(rmdir(file_in(folder, shard)), 0);
    assert_int_equal(files_in(folder), 2);
    close_solo(&solo);
    folder_drop(folder);
}

/* What is cut off leaves files that no index names: the next save takes them away. */
static void a_save_cleans_up_after_others(void **state)
{
    (void)state;
    char *folder = saved_by(2, "save");
    struct solo solo = open_solo(ADAMW);
    static const char *const left[] = {"shard-00004-of-00009.step-3.safetensors",
                                       "shard-00000-of-00002.safetensors",
                                       "shard-00000-of-00001.step-77.safetensors"};
    for (int i = 0; i < 3; i++)
        file_write(file_in(folder, left[i]), "x", 1);
    file_write(file_in(folder, "notes.txt"), "x", 1);
    for (int again = 0; again < 3; again++) {
        struct err err = {0};
        assert_int_equal(checkpoint_save(solo.execution, solo.plan, NULL, 7, folder, &err), ERR_OK);
        assert_int_equal(files_in(folder), 3); /* with the notes */
        assert_true(file_exists(folder, again % 2
                                            ? "shard-00000-of-00001.step-7.safetensors"
                                            : "shard-00000-of-00001.step-7-again.safetensors"));
        expect_restored(folder, 1, 1);
    }
    close_solo(&solo);
    folder_drop(folder);
}

/* Every byte of a shard, one of each group of 37. */
static void damage_is_found(void **state)
{
    (void)state;
    char *folder = saved_by(2, "save");
    char *path = strdup(file_in(folder, "shard-00001-of-00002.step-7.safetensors"));
    size_t length = 0;
    char *text = file_text(path, &length);
    for (size_t at = 0; at < length; at += 37) {
        text[at] = (char)(text[at] ^ 1 << at % 8);
        file_write(path, text, length);
        const struct outcome outcome = load_one(folder, ADAMW);
        assert_int_equal(outcome.rc, outcome.rc == ERR_UNSUPPORTED ? ERR_UNSUPPORTED : ERR_INVALID);
        assert_int_equal(outcome.writes, 0);
        text[at] = (char)(text[at] ^ 1 << at % 8);
    }
    file_write(path, text, length);
    expect_restored(folder, 1, 1);
    memset(text + length - 64, 0, 64); /* a page that never reached the disk */
    file_write(path, text, length);
    expect_refusal(folder, ERR_INVALID, "is damaged: its bytes are not those that were saved");
    free(text);
    free(path);
    folder_drop(folder);
}

static void names_of_saves_are_no_paths(void **state)
{
    (void)state;
    char *folder = saved_by(1, "save");
    file_replace(folder, "index.json", "step-7", "../p-7");
    expect_refusal(folder, ERR_INVALID, "no valid name of the save");
    file_replace(folder, "index.json", "../p-7", "step-7");
    file_replace(folder, "index.json", "\"sums\"", "\"sins\"");
    expect_refusal(folder, ERR_INVALID, "0 sums of 1 files");
    folder_drop(folder);
}

/* ---- full files ---- */

static void full_files_of_other_models_are_refused(void **state)
{
    (void)state;
    char *folder = folder_new("checkpoint");
    struct solo solo = open_solo(SGD);
    struct plan *plan = solo.plan;
    struct err err = {0};
    assert_int_equal(
        checkpoint_save_full(solo.execution, plan, NULL, file_in(folder, "full"), &err), ERR_OK);
    assert_int_equal(files_in(folder), 1);
    assert_true(load_as(plan, folder, "full").params);
    plan->params[2].shape = SHAPE(5, 4);
    assert_non_null(strstr(load_as(plan, folder, "full").err.text, "conv.weight has another"));
    plan->params[1].name = "other.weight";
    assert_non_null(strstr(load_as(plan, folder, "full").err.text, "other.weight is missing"));
    plan->param_count = 1;
    assert_non_null(strstr(load_as(plan, folder, "full").err.text, "the plan has no conv.weight"));
    close_solo(&solo);
    folder_drop(folder);
}

int main(void)
{
    const char *check = getenv(RANK_VARIABLE);
    if (check)
        return run_as_rank(checks, check);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_mesh_saves_another_loads),
        cmocka_unit_test(what_one_system_saves_another_loads),
        cmocka_unit_test(files_that_lack_elements_are_refused),
        cmocka_unit_test(parameters_over_two_groups_cannot_be_saved),
        cmocka_unit_test(ranks_that_talk_load_too),
        cmocka_unit_test(ranks_of_mpirun_save_and_load),
        cmocka_unit_test(replicas_save_once),
        cmocka_unit_test(a_large_parameter_is_gathered_in_pieces),
        cmocka_unit_test(an_older_checkpoint_is_replaced),
        cmocka_unit_test(states_before_the_first_step_are_zeros),
        cmocka_unit_test(states_that_do_not_exist_are_not_made_to_be_zeros),
        cmocka_unit_test(states_of_later_steps_must_be_there),
        cmocka_unit_test(states_are_those_of_adamw),
        cmocka_unit_test(states_are_left_aside_without_an_optimizer_for_them),
        cmocka_unit_test(a_parameter_that_was_frozen_has_no_states_to_load),
        cmocka_unit_test(a_folder_without_index_is_torn),
        cmocka_unit_test(missing_and_truncated_shards_are_refused),
        cmocka_unit_test(shards_of_another_save_are_refused),
        cmocka_unit_test(another_model_is_refused_by_its_first_parameter),
        cmocka_unit_test(a_plan_of_more_ranks_cannot_be_saved_by_one),
        cmocka_unit_test(a_full_disk_leaves_the_older_checkpoint),
        cmocka_unit_test(a_disk_that_fills_up_leaves_the_older_checkpoint),
        cmocka_unit_test(an_index_that_cannot_be_written_leaves_the_older_checkpoint),
        cmocka_unit_test(a_file_that_cannot_be_put_in_place_leaves_the_older_checkpoint),
        cmocka_unit_test(a_save_cleans_up_after_others),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(names_of_saves_are_no_paths),
        cmocka_unit_test(full_files_of_other_models_are_refused),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
