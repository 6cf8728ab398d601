/* SPDX-License-Identifier: Apache-2.0 */
/* test_inputs.c - the samples of steps, some of them read ahead: which they
 * are, and how much is read when they are loaded
 */
#include "config.h"

#include "unit/data_files.h"

#include "runtime/train/trainer.h"

#define SEQ 8
#define TOKENS (400 * SEQ + 1)
#define B 2  /* samples of a micro-batch */
#define M 3  /* micro-batches of a step */
#define DP 2 /* replicas; this rank is of the second */
#define STEPS 6

static void write_tokens(void)
{
    const int32_t length = TOKENS;

    write_megatron(at("a"), 0, &length, 1);
}

/* What this thread has read so far; -1: the kernel does not count. */
static long long bytes_read(void)
{
    FILE *f = fopen("/proc/thread-self/io", "re");
    long long bytes = -1;

    if (f == NULL)
        return -1;
    if (fscanf(f, "rchar: %lld", &bytes) != 1)
        bytes = -1;
    fclose(f);
    return bytes;
}

/* A second opening of the same data: what is to be loaded. */
static void check_microbatch(const struct merak_data *data,
                             enum merak_split split, uint64_t base, int m,
                             const int32_t *tokens, const int32_t *targets)
{
    uint64_t first = base + ((uint64_t)m * DP + 1) * B;

    for (size_t b = 0; b < B; b++) {
        int32_t x[SEQ], y[SEQ];

        assert_int_equal(merak_data_sample(data, split, first + b, x, y, NULL),
                         MERAK_OK);
        assert_memory_equal(tokens + b * SEQ, x, sizeof(x));
        assert_memory_equal(targets + b * SEQ, y, sizeof(y));
    }
}

static const struct merak_input inputs[] = {
    {.name = "tokens", .class = MERAK_INPUT_TOKENS},
    {.name = "targets", .class = MERAK_INPUT_TARGETS}};

/* Load and check a step's micro-batches; returns bytes read by loads. */
static long long run(struct merak_trainer *t, const struct merak_data *data,
                     enum merak_split split, uint64_t base)
{
    long long before, sum = 0;

    t->load.split = split;
    t->load.base = base;
    for (int m = 0; m < M; m++) {
        int32_t tokens[B * SEQ], targets[B * SEQ];
        struct merak_load load = {.microbatch = m, .of = &inputs[0]};

        before = bytes_read();
        assert_int_equal(merak_trainer_load(t, &load, tokens, NULL), MERAK_OK);
        load.of = &inputs[1];
        assert_int_equal(merak_trainer_load(t, &load, targets, NULL), MERAK_OK);
        sum += bytes_read() - before;
        check_microbatch(data, split, base, m, tokens, targets);
    }
    return sum;
}

static const struct row {
    const char *name;
    bool ahead, validates;
    uint64_t from; /* the first step's first sample */
} rows[] = {
    {"samples are read once", false, false, 0},
    {"samples are read ahead", true, false, 0},
    {"samples are read ahead of a resumed run, into the next epoch", true,
     false, 320},
    {"samples are read ahead while others validate", true, true, 24},
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

/* A trainer as far as loads see it, on an accelerator or not. */
struct fixture {
    struct merak_instr load;
    struct merak_graph graph;
    struct merak_sharded sharded;
    struct merak_program program;
    struct merak_accel accel;
    struct merak_trainer t;
};

static void set_up(struct fixture *f, bool accel)
{
    memset(f, 0, sizeof(*f));
    f->load.kind = MERAK_INSTR_LOAD;
    f->load.input = 0;
    memcpy(f->graph.input, inputs, sizeof(inputs));
    f->sharded.graph = &f->graph;
    f->program.sharded = &f->sharded;
    f->program.dp_index = 1;
    f->program.instr = &f->load;
    f->program.n_instrs = 1;
    f->t.compute.accel = accel ? &f->accel : NULL;
    f->t.program = &f->program;
    f->t.plan = (struct merak_plan){
        .tp = 1, .pp = 1, .dp = DP, .microbatches = M, .micro_batch = B};
    f->program.mesh = merak_plan_mesh(&f->t.plan, 0);
    f->t.opt.seq = SEQ;
    f->t.opt.global_batch = M * DP * B;
}

static void samples_are_loaded(void **state)
{
    const struct row *row = *state;
    const struct merak_data_options opt = {
        .seq = SEQ, .seed = 7, .valid_fraction = 0.1, .spec = at("a")};
    struct fixture f;
    struct merak_trainer *t = &f.t;
    /* of each sample, and what the kernel's counters take to read */
    long long once = (long long)M * B * (SEQ + 1) * (long long)sizeof(int32_t);
    long long own = -bytes_read();
    struct merak_data *data = NULL;

    own += bytes_read();
    set_up(&f, row->ahead);
    t->consumed = row->from;
    write_tokens();
    assert_int_equal(merak_data_open(&opt, &t->data, NULL), MERAK_OK);
    assert_int_equal(merak_data_open(&opt, &data, NULL), MERAK_OK);
    assert_int_equal(merak_inputs_open(t, NULL), MERAK_OK);
    for (int s = 0; s < STEPS; s++) {
        long long got, want;

        merak_inputs_begin(t, s == STEPS - 1);
        got = run(t, data, MERAK_TRAIN, t->consumed);
        want = row->ahead && s > 0 ? 0 : once;
        got -= M * own; /* which grows by a digit now and then */
        assert_true(own == 0 || (got >= want && got < want + once / 2));
        if (row->validates)
            (void)run(t, data, MERAK_VALID, 0);
        t->consumed += t->opt.global_batch;
    }
    merak_inputs_close(t);
    merak_data_close(t->data);
    merak_data_close(data);
}

/* What cannot be read ahead is an error when it is loaded. */
static void errors_are_those_of_the_step(void **state)
{
    const struct merak_data_options opt = {
        .seq = SEQ, .seed = 7, .vocab = TOKENS, .spec = at("a")};
    struct fixture f;
    struct merak_trainer *t = &f.t;
    struct merak_error err = {.text = ""};
    struct merak_load load = {.of = &inputs[0]};
    int32_t ids[B * SEQ];

    (void)state;
    set_up(&f, true);
    write_tokens();
    assert_int_equal(merak_data_open(&opt, &t->data, NULL), MERAK_OK);
    assert_int_equal(merak_inputs_open(t, NULL), MERAK_OK);
    assert_int_equal(truncate(at("a.bin"), 0), 0);
    for (int s = 0; s < 2; s++) {
        merak_inputs_begin(t, false);
        t->load.base = t->consumed;
        assert_int_not_equal(merak_trainer_load(t, &load, ids, &err), MERAK_OK);
        assert_non_null(strstr(err.text, "a.bin"));
        t->consumed += t->opt.global_batch;
    }
    merak_inputs_close(t);
    merak_data_close(t->data);
}

int main(void)
{
    struct CMUnitTest tests[N_ROWS + 1];

    for (size_t i = 0; i < N_ROWS; i++)
        tests[i] = (struct CMUnitTest){
            .name = rows[i].name,
            .test_func = samples_are_loaded,
            .setup_func = make_scratch,
            .teardown_func = remove_scratch,
            .initial_state = (void *)(uintptr_t)&rows[i],
        };
    tests[N_ROWS] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(
        errors_are_those_of_the_step, make_scratch, remove_scratch);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("inputs", tests, NULL, NULL);
}
