/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_file.c - plans as text: there and back, and everything that is not
 * one */
#include "config.h"

#include "unit/near.h"
#include "unit/plan_sample.h"

#include "io/plan_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *encoded(struct merak_plan_file *file)
{
    json_t *object = merak_plan_file_object(file);
    char *text = json_dumps(object, JSON_INDENT(2));

    assert_non_null(text);
    json_decref(object);
    return text;
}

static void saved_plans_are_read_back(void **state)
{
    struct merak_plan_file file = plan_sample(), *back = NULL;
    struct merak_error err = {.text = ""};
    char *text = encoded(&file);
    const struct merak_plan *p, *was = &file.plan;

    (void)state;
    assert_int_equal(
        merak_plan_file_decode(text, strlen(text), "x", &back, &err), MERAK_OK);
    p = &back->plan;
    assert_int_equal(back->sent.pp_bytes, 123456789012);
    assert_int_equal(back->sent.dp_bytes, 345);
    assert_int_equal(p->tp, 2);
    assert_int_equal(p->pp, 2);
    assert_int_equal(p->dp, 3);
    assert_int_equal(p->cp, 2);
    assert_int_equal(p->cp_axes, 2);
    assert_int_equal(p->cp_form, MERAK_CP_HEADS);
    assert_int_equal(p->cp_order, MERAK_CP_CONTIGUOUS);
    assert_int_equal(p->tp_axes, 2);
    assert_int_equal(p->split.samples[0], 0x6);
    assert_string_equal(p->tp_plan.text, "a.*:0+b:rowwise");
    assert_int_equal(p->chunks, 2);
    assert_int_equal(p->microbatches, 8);
    assert_int_equal(p->micro_batch, 4);
    assert_true(p->sub_pipeline);
    assert_string_equal(p->schedule, "interleaved");
    assert_int_equal(p->recompute, MERAK_RECOMPUTE_AUTO);
    assert_int_equal(p->memory_bytes, 1234567890123);
    assert_int_equal(p->zero, 1);
    assert_true(p->order_tp_pp_dp);
    assert_int_equal(p->branches, MERAK_BRANCHES_BLOCKS);
    assert_int_equal(p->scatter, 4);
    assert_int_equal(p->sp, MERAK_SP_ON);
    assert_int_equal(p->tp_batch_percent, 75);
    assert_int_equal(p->dtype, MERAK_BF16);
    assert_memory_equal(p->cut, was->cut, 3 * sizeof(*was->cut));
    for (int i = 0; i < 4; i++) {
        assert_int_equal(p->drop[i].attention, was->drop[i].attention);
        assert_int_equal(p->drop[i].blocks, was->drop[i].blocks);
        assert_int_equal(p->drop[i].again, was->drop[i].again);
    }
    assert_string_equal(back->model, file.model);
    assert_int_equal(back->seq, 512);
    assert_int_equal(back->global_batch, 96);
    assert_true(back->program == file.program);
    assert_true(back->step_s == 0.25);
    assert_int_equal(back->memory_bytes, 4096);
    assert_string_equal(back->device, "h200");
    assert_string_equal(back->id, file.id);
    merak_plan_file_destroy(back);
    free(text);
}

/* As files were written before nodes could stand by blocks: an order of
 * branches was a flag, and nothing said how samples are cut. */
static void older_files_are_read(void **state)
{
    static const char text[] =
        "{\"merak_plan\":2,\"plan\":{\"tp\":1,\"pp\":2,\"dp\":1,"
        "\"order\":\"tp-dp-pp\",\"chunks\":1,\"microbatches\":4,"
        "\"micro_batch\":1,\"schedule\":\"1f1b\",\"sub_pipeline\":false,"
        "\"recompute\":\"none\",\"memory_bytes\":0,\"zero1\":true,"
        "\"sp\":\"auto\",\"dtype\":\"fp32\",\"cut\":[7],\"drop\":null,"
        "\"gathered\":true},\"run\":{\"model\":\"0123456789abcdef\","
        "\"seq\":8,\"global_batch\":4},\"program\":\"fedcba9876543210\","
        "\"id\":\"8454598723bb6d0d\"}";
    struct merak_plan_file *back = NULL;
    struct merak_error err = {.text = ""};

    (void)state;
    if (merak_plan_file_decode(text, strlen(text), "x", &back, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(back->plan.branches, MERAK_BRANCHES_GATHERED);
    assert_int_equal(back->plan.tp_batch_percent, 0);
    assert_int_equal(back->plan.scatter, 0);
    merak_plan_file_destroy(back);
}

/* The plugin reads the head without a JSON library. */
static void degrees_are_the_first_keys_of_a_plan_file(void **state)
{
    struct merak_plan_file file = plan_sample();
    json_t *object = merak_plan_file_object(&file);
    char *text = json_dumps(object, JSON_COMPACT);
    const char *head = "{\"merak_plan\":2,\"sent\":{\"pp_bytes\":123456789012,"
                       "\"dp_bytes\":345},\"plan\":{\"tp\":2,\"pp\":2,"
                       "\"dp\":3,\"order\":\"tp-pp-dp\",";

    (void)state;
    assert_memory_equal(text, head, strlen(head));
    free(text);
    json_decref(object);
}

/* All blocks are fetched where a file does not say how many. */
static void blocks_to_be_fetched_and_sums_are_saved(void **state)
{
    (void)state;
    for (int fetch = 0; fetch < 8; fetch += 7) {
        struct merak_plan_file file = plan_sample(), *back = NULL;
        struct merak_error err = {.text = ""};
        char *text;

        file.plan.zero = MERAK_ZERO_PARAMS;
        file.plan.fetch = fetch;
        file.plan.grad_sum = fetch > 0 ? MERAK_SUM_STEP : MERAK_SUM_MICRO;
        text = encoded(&file);
        assert_true((strstr(text, "\"fetch\"") != NULL) == (fetch == 7));
        assert_int_equal(
            merak_plan_file_decode(text, strlen(text), "x", &back, &err),
            MERAK_OK);
        assert_int_equal(back->plan.fetch, fetch);
        assert_int_equal(back->plan.grad_sum, file.plan.grad_sum);
        merak_plan_file_destroy(back);
        free(text);
    }
}

/* A file of a Merak that had no choice of it says nothing: f32. */
static void the_dtype_of_gradients_is_saved_if_it_is_bf16(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) {
        struct merak_plan_file file = plan_sample(), *back = NULL;
        struct merak_error err = {.text = ""};
        char *text;

        file.plan.dtype = MERAK_BF16;
        file.plan.grad_dtype = narrow ? MERAK_BF16 : MERAK_F32;
        text = encoded(&file);
        assert_int_equal(strstr(text, "\"grad_dtype\"") != NULL, narrow);
        assert_int_equal(
            merak_plan_file_decode(text, strlen(text), "x", &back, &err),
            MERAK_OK);
        assert_int_equal(back->plan.grad_dtype, file.plan.grad_dtype);
        merak_plan_file_destroy(back);
        free(text);
    }
}

static void an_even_cut_and_no_recomputation_are_saved_as_none(void **state)
{
    struct merak_plan_file file = plan_sample(), *back = NULL;
    struct merak_error err = {.text = ""};
    char *text;

    (void)state;
    file.plan.cut = NULL;
    file.plan.drop = NULL;
    text = encoded(&file);
    assert_int_equal(
        merak_plan_file_decode(text, strlen(text), "x", &back, &err), MERAK_OK);
    assert_null(back->plan.cut);
    assert_null(back->plan.drop);
    merak_plan_file_destroy(back);
    free(text);
}

/* Any change of what a plan is has another id; of what was predicted, not. */
static void ids_tell_plans_apart(void **state)
{
    struct merak_plan_file a = plan_sample(), b = plan_sample();

    (void)state;
    free(encoded(&a));
    b.step_s = 9;
    b.memory_bytes = 1;
    free(encoded(&b));
    assert_string_equal(a.id, b.id);
    b.plan.micro_batch++;
    free(encoded(&b));
    assert_string_not_equal(a.id, b.id);
    b = plan_sample();
    b.seq++;
    free(encoded(&b));
    assert_string_not_equal(a.id, b.id);
    b = plan_sample();
    b.program++;
    free(encoded(&b));
    assert_string_not_equal(a.id, b.id);
}

static const struct {
    const char *path[2], *value; /* NULL: the key is taken away */
    const char *says;
} bad_rows[] = {
    {{"merak_plan"}, "1", "merak_plan is 1, expected an integer 2..3"},
    {{"merak_plan"}, NULL, "it has no merak_plan"},
    {{"plan"}, "[]", "plan is [], expected an object"},
    {{"plan", "tp"}, "0", "tp is 0, expected an integer 1..65535"},
    {{"plan", "tp"}, "2.5", "tp is 2.5"},
    {{"plan", "pp"}, "\"2\"", "pp is \"2\""},
    {{"plan", "dp"}, NULL, "dp is missing"},
    {{"plan", "order"}, "\"dp-tp-pp\"", "expected one of tp-dp-pp tp-pp-dp"},
    {{"plan", "chunks"}, "1025", "is 1025, expected an integer 1..1024"},
    {{"plan", "microbatches"}, "-1", "microbatches is -1"},
    {{"plan", "schedule"}, "\"none\"", "schedule is \"none\""},
    {{"plan", "schedule"}, "7", "schedule is 7"},
    {{"plan", "sub_pipeline"}, "1", "expected true or false"},
    {{"plan", "recompute"}, "\"some\"", "none full selective auto"},
    {{"plan", "dtype"}, "\"fp16\"", "one of fp32 bf16"},
    {{"plan", "scatter"}, "-1", "scatter is -1, expected an integer 0..65535"},
    {{"plan", "scatter"}, NULL, "was changed after it was saved"},
    {{"plan", "cut"}, "[3, 7]", "expected 3 ascending integers"},
    {{"plan", "cut"}, "[3, 7, 7]", "expected 3 ascending integers"},
    {{"plan", "cut"}, "[-1, 7, 8]", "expected 3 ascending integers"},
    {{"plan", "cut"}, "[3, 7, 1e3]", "expected 3 ascending integers"},
    {{"plan", "cut"}, "[3, 7, 13]", "was changed after it was saved"},
    {{"plan", "cut"}, "null", "was changed after it was saved"},
    {{"plan", "drop"}, "[]", "expected 4 objects"},
    {{"plan", "drop"}, "[1, 2, 3, 4]", "attention is missing"},
    {{"plan", "drop"},
     "[{\"attention\": false, \"blocks\": 2, \"again\": 3}, 2, 3, 4]",
     "again is 3, expected an integer 1..2"},
    {{"plan", "drop"}, "null", "was changed after it was saved"},
    {{"plan", "micro_batch"},
     "7",
     "micro_batch is 7, expected a multiple of 2"},
    {{"plan", "zero1"}, "false", "was changed after it was saved"},
    {{"plan", "zero1"}, NULL, "zero1 is missing, expected true or false"},
    {{"plan", "zero1"}, "2", "zero1 is 2, expected true or false"},
    {{"plan", "zero"}, "true", "zero is true, expected an integer 0.."},
    {{"plan", "zero"}, "-1", "zero is -1, expected an integer 0.."},
    {{"plan", "zero"}, "0", "was changed after it was saved"},
    {{"run"}, NULL, "run is missing"},
    {{"run", "model"}, "\"0123456789ABCDEF\"", "16 hexadecimal digits"},
    {{"run", "model"}, "\"0123456789abcde0\"", "was changed"},
    {{"run", "seq"}, "513", "was changed"},
    {{"program"}, "\"12\"", "16 hexadecimal digits"},
    {{"id"}, NULL, "id is missing"},
    {{"id"}, "\"0000000000000000\"", "was changed"},
};

static void change(json_t *object, size_t row)
{
    const char *key = bad_rows[row].path[0], *inner = bad_rows[row].path[1];
    const char *value = bad_rows[row].value;

    if (inner != NULL) {
        object = json_object_get(object, key);
        key = inner;
    }
    if (value == NULL)
        json_object_del(object, key);
    else
        json_object_set_new(object, key,
                            json_loads(value, JSON_DECODE_ANY, NULL));
}

static void what_is_no_plan_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(bad_rows[0]); i++) {
        struct merak_plan_file file = plan_sample(), *back = NULL;
        struct merak_error err = {.text = ""};
        json_t *object = merak_plan_file_object(&file);
        char *text;

        change(object, i);
        text = json_dumps(object, 0);
        assert_int_equal(
            merak_plan_file_decode(text, strlen(text), "p.json", &back, &err),
            MERAK_ERR_CONFIG);
        assert_null(back);
        if (strstr(err.text, bad_rows[i].says) == NULL ||
            strstr(err.text, "p.json") == NULL)
            fail_msg("row %zu says \"%s\", not \"%s\"", i, err.text,
                     bad_rows[i].says);
        free(text);
        json_decref(object);
    }
}

/* A plan of unlike stages is of version 3, and only such a plan is. */
static void lists_of_stages_are_read_back(void **state)
{
    static const struct merak_stage_degrees stage[] = {{2, 4}, {8, 1}};
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"tp", "2", "tp is 2, expected 1 beside meshes"},
        {"dp", "2", "dp is 2, expected 1 beside meshes"},
        {"cp", "2", "cp is 2, expected 1 beside meshes"},
        {"order", "\"tp-pp-dp\"", "expected tp-dp-pp beside meshes"},
        {"sub_pipeline", "true",
         "micro_batch is 8, expected a multiple of 16, which"},
        {"meshes", "[]", "meshes is [], expected 2 objects"},
        {"meshes", "[{\"dp\": 2, \"tp\": 2}, {\"dp\": 2, \"tp\": 2}]",
         "expected 2 objects of unlike degrees"},
        {"meshes", "[{\"dp\": 2, \"tp\": 0}, {\"dp\": 2, \"tp\": 2}]",
         "tp is 0, expected an integer 1..65535"},
        {"meshes", "[{\"dp\": 5, \"tp\": 1}, {\"dp\": 2, \"tp\": 2}]",
         "a micro-batch of 8 cannot be divided among 5 replicas of stage 0"},
        {"meshes", "[{\"dp\": 4, \"tp\": 2}, {\"dp\": 8, \"tp\": 1}]",
         "was changed after it was saved"},
    };
    struct merak_plan_file file = {.plan = {.tp = 1,
                                            .pp = 2,
                                            .dp = 1,
                                            .microbatches = 3,
                                            .micro_batch = 8,
                                            .chunks = 1,
                                            .schedule = "1f1b",
                                            .stage = stage},
                                   .model = "0123456789abcdef",
                                   .seq = 32,
                                   .global_batch = 24};
    struct merak_plan_file *back = NULL;
    struct merak_error err = {.text = ""};
    char *text = encoded(&file);

    (void)state;
    assert_non_null(strstr(text, "\"merak_plan\": 3"));
    if (merak_plan_file_decode(text, strlen(text), "x", &back, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(back->plan.pp, 2);
    assert_int_equal(back->plan.micro_batch, 8);
    assert_memory_equal(back->plan.stage, stage, sizeof(stage));
    assert_string_equal(back->id, file.id);
    merak_plan_file_destroy(back);
    free(text);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *object = merak_plan_file_object(&file);

        json_object_set_new(json_object_get(object, "plan"), rows[i].key,
                            json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        text = json_dumps(object, 0);
        assert_int_equal(
            merak_plan_file_decode(text, strlen(text), "x", &back, &err),
            MERAK_ERR_CONFIG);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu says \"%s\", not \"%s\"", i, err.text,
                     rows[i].says);
        free(text);
        json_decref(object);
    }
}

/* Hops that are sent in part, of stages that have them. */
static void ratios_are_read_back(void **state)
{
    static const struct {
        const char *value, *says;
    } rows[] = {
        {"\"1:8\"", "those behind 0..0 send to another"},
        {"\"0:1\"", "lossy_hops is \"0:1\""},
        {"8", "lossy_hops is 8"},
    };
    struct merak_plan_file file = plan_sample(), *back = NULL;
    struct merak_error err = {.text = ""};
    char *text, none[sizeof(file.id)];

    (void)state;
    file.plan.branches = MERAK_BRANCHES_DESCRIBED;
    text = encoded(&file);
    assert_null(strstr(text, "lossy"));
    memcpy(none, file.id, sizeof(none));
    free(text);
    file.plan.lossy.ratio[0] = 8;
    text = encoded(&file);
    assert_non_null(strstr(text, "\"lossy_hops\": \"0:8\""));
    assert_int_equal(
        merak_plan_file_decode(text, strlen(text), "x", &back, &err), MERAK_OK);
    assert_true(merak_lossy_equal(&back->plan.lossy, &file.plan.lossy));
    assert_string_not_equal(back->id, none);
    merak_plan_file_destroy(back);
    free(text);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        json_t *object = merak_plan_file_object(&file);

        json_object_set_new(json_object_get(object, "plan"), "lossy_hops",
                            json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        text = json_dumps(object, 0);
        assert_int_equal(
            merak_plan_file_decode(text, strlen(text), "x", &back, &err),
            MERAK_ERR_CONFIG);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu says \"%s\"", i, err.text);
        free(text);
        json_decref(object);
    }
}

/* Cut short anywhere, or with any byte gone bad, it is refused. */
static void damage_is_refused(void **state)
{
    struct merak_plan_file file = plan_sample(), *back = NULL;
    char *text = encoded(&file);
    size_t end = (size_t)(strstr(text, "\"predicted\"") - text), n;

    (void)state;
    n = strlen(text);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(merak_plan_file_decode(text, i, "x", &back, NULL),
                         MERAK_ERR_CONFIG);
    for (size_t i = 0; i < end; i++) {
        char was = text[i];

        if (was == ' ' || was == '\n')
            continue;
        text[i] = was == '7' ? '8' : '7';
        assert_int_equal(merak_plan_file_decode(text, n, "x", &back, NULL),
                         MERAK_ERR_CONFIG);
        text[i] = was;
    }
    free(text);
}

static void files_are_read(void **state)
{
    struct merak_plan_file file = plan_sample(), *back = NULL;
    char path[] = "plan-XXXXXX", *text = encoded(&file);
    struct merak_error err = {.text = ""};
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    assert_int_equal(merak_plan_file_load(path, &back, &err), MERAK_OK);
    assert_string_equal(back->id, file.id);
    merak_plan_file_destroy(back);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(merak_plan_file_load(path, &back, &err), MERAK_ERR_CONFIG);
    unlink(path);
    assert_int_equal(merak_plan_file_load(path, &back, &err), MERAK_ERR_CONFIG);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(merak_plan_file_load(".", &back, &err), MERAK_ERR_CONFIG);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_plans_are_read_back),
        cmocka_unit_test(older_files_are_read),
        cmocka_unit_test(degrees_are_the_first_keys_of_a_plan_file),
        cmocka_unit_test(blocks_to_be_fetched_and_sums_are_saved),
        cmocka_unit_test(the_dtype_of_gradients_is_saved_if_it_is_bf16),
        cmocka_unit_test(an_even_cut_and_no_recomputation_are_saved_as_none),
        cmocka_unit_test(ids_tell_plans_apart),
        cmocka_unit_test(what_is_no_plan_is_named),
        cmocka_unit_test(lists_of_stages_are_read_back),
        cmocka_unit_test(ratios_are_read_back),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(files_are_read),
    };

    return cmocka_run_group_tests_name("plan_file", tests, NULL, NULL);
}
