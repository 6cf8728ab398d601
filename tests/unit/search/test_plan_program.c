/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_program.c - programs that plan their own models: as `merak plan`
 * plans the same one, and without its weights
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "merak/merak.h"
#include "runtime/plan/plan_run.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MODEL TEST_SRCDIR "/vectors/gpt2.json"
#define MAX_ARGS 24

static char path[2][64];

static int make_paths(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof(path[i]), "/tmp/merak-plan-%d-%d.json",
                 (int)getpid(), i);
    }
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        unlink(path[i]);
    return 0;
}

/* Words of `text`, behind those that are there. */
static int add_words(char **argv, int argc, char *text)
{
    char *rest;

    for (char *w = strtok_r(text, " ", &rest); w != NULL;
         w = strtok_r(NULL, " ", &rest)) {
        assert_true(argc < MAX_ARGS);
        argv[argc++] = w;
    }
    argv[argc] = NULL;
    return argc;
}

static json_t *load(const char *file)
{
    json_t *object = json_load_file(file, 0, NULL);

    assert_non_null(object);
    return object;
}

/* --- as `merak plan` ------------------------------------------------------ */

static const char *const requests[] = {
    "--device h100 --nodes 2 --global-batch 32 --seq 16",
    ("--device cpu --ranks-per-node 4 --global-batch 8 --seq 16 --dtype fp32 "
     "--what-if tp=2,pp=2,schedule=gpipe"),
    "--tp 2 --pp 2 --recompute full --global-batch 8 --seq 16",
};

/* Take out what to type, which names the program, the model and the file. */
static void take_commands(json_t *plan, const char *program)
{
    json_t *advice = json_object_get(plan, "advice");
    json_t *commands = json_object_get(advice, "commands");

    assert_non_null(
        strstr(json_string_value(json_array_get(commands, 1)), program));
    json_object_del(advice, "commands");
}

static void plans_as_the_command(void **state)
{
    struct merak_hf_config config;

    (void)state;
    assert_int_equal(merak_hf_config_load(MODEL, &config, NULL), MERAK_OK);
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        char text[2][256], *own[MAX_ARGS + 1], *merak[MAX_ARGS + 1];
        json_t *a, *b;
        int n;

        snprintf(text[0], sizeof(text[0]), "./own plan %s --json %s",
                 requests[i], path[0]);
        snprintf(text[1], sizeof(text[1]), "plan --model %s %s --json %s",
                 MODEL, requests[i], path[1]);
        n = add_words(own, 0, text[0]);
        assert_int_equal(merak_train(n, own, merak_hf_describe, &config),
                         MERAK_EXIT_DONE);
        n = add_words(merak, 0, text[1]);
        assert_int_equal(merak_plan_main(n, merak, NULL), MERAK_EXIT_DONE);
        a = load(path[0]);
        b = load(path[1]);
        if (json_object_get(b, "request") != NULL) { /* of a search */
            json_t *who = json_object_get(a, "request");

            assert_string_equal(
                json_string_value(json_object_get(who, "model")), "./own");
            json_object_set_new(who, "model", json_string(MODEL));
            take_commands(a, " ./own ");
            take_commands(b, " merak train --");
        }
        assert_non_null(json_object_get(a, "program"));
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
    }
}

/* --- larger than any machine ---------------------------------------------- */

static void planning_50_billion_parameters_allocates_no_weights(void **state)
{
    /* 53 billion parameters */
    struct merak_hf_config large = gpt2_config(4, 32768, 256, 50304);
    char text[256], *argv[MAX_ARGS + 1];
    struct rusage used;
    json_t *plan;
    int n;

    (void)state;
    snprintf(text, sizeof(text),
             "large plan --device h200 --nodes 4 --global-batch 64 "
             "--what-if micro-batch=1 --json %s",
             path[0]);
    n = add_words(argv, 0, text);
    assert_int_equal(merak_train(n, argv, merak_hf_describe, &large),
                     MERAK_EXIT_DONE);
    plan = load(path[0]);
    assert_true(json_integer_value(json_object_get(plan, "params")) >
                53000000000);
    assert_true(json_number_value(json_object_get(plan, "flop_utilisation")) >
                0);
    json_decref(plan);
    assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
    assert_true(used.ru_maxrss < 1 << 20); /* KiB: a hundredth of the bf16 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_as_the_command),
        cmocka_unit_test(planning_50_billion_parameters_allocates_no_weights),
    };

    return cmocka_run_group_tests(tests, make_paths, remove_files);
}
