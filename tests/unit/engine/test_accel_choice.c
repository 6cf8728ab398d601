/* SPDX-License-Identifier: Apache-2.0 */
/* test_accel_choice.c - which task of a node takes which accelerator */
#include "config.h"

#include "partitioner/device/device.h"
#include "runtime/boot/boot.h"
#include "runtime/train/accel_choice.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MAX_TASKS 8

/* A task sees accelerators first .. first + n - 1 of a node of 8, four to a
 * memory; its own cores are next to numa (-1: anywhere). */
struct task {
    int first, n, numa;
};
struct row {
    const char *name;
    int tasks;
    struct task task[MAX_TASKS];
    int want[MAX_TASKS];     /* of the node's 8 */
    int sharers[MAX_TASKS];  /* tasks before it that have the same */
    int tasks_of[MAX_TASKS]; /* all that have the same; 0: it alone */
};

static const struct row rows[] = {
    {"tasks that see all take them in turn",
     4,
     {{0, 8, -1}, {0, 8, -1}, {0, 8, -1}, {0, 8, -1}},
     {0, 1, 2, 3},
     {0},
     {0}},
    {"a task takes one near its cores",
     4,
     {{0, 8, 1}, {0, 8, 0}, {0, 8, 1}, {0, 8, 0}},
     {4, 0, 5, 1},
     {0},
     {0}},
    {"far ones are better than shared ones",
     5,
     {{0, 8, 0}, {0, 8, 0}, {0, 8, 0}, {0, 8, 0}, {0, 8, 0}},
     {0, 1, 2, 3, 4},
     {0},
     {0}},
    {"tasks that see their own alone have those",
     3,
     {{5, 1, 0}, {2, 1, 0}, {7, 1, -1}},
     {5, 2, 7},
     {0},
     {0}},
    {"more tasks than accelerators share evenly",
     5,
     {{0, 2, -1}, {0, 2, -1}, {0, 2, -1}, {0, 2, -1}, {0, 2, -1}},
     {0, 1, 0, 1, 0},
     {0, 0, 1, 1, 2},
     {3, 2, 3, 2, 3}},
};

/* As task t numbers them: from 0, the first that it sees. */
static void fill(const struct task *t, struct merak_accel_card *card)
{
    memset(card, 0, sizeof(*card));
    card->n = t->n;
    card->numa = t->numa;
    for (int d = 0; d < t->n; d++) {
        int of_node = t->first + d;

        card->device[d].number = d;
        card->device[d].numa = of_node / 4;
        snprintf(card->device[d].bus, sizeof(card->device[d].bus), "%d",
                 of_node);
    }
}

static void accelerators_are_shared_out(void **state)
{
    const struct row *row = *state;
    struct merak_accel_card card[MAX_TASKS];
    int choice[MAX_TASKS];

    for (int i = 0; i < row->tasks; i++)
        fill(&row->task[i], &card[i]);
    merak_accel_assign(card, row->tasks, choice);
    for (int i = 0; i < row->tasks; i++) {
        int of = row->tasks_of[i] > 0 ? row->tasks_of[i] : 1;

        assert_int_equal(merak_accel_tasks(card, choice, row->tasks, i), of);
        assert_int_equal(row->task[i].first + choice[i], row->want[i]);
        assert_int_equal(merak_accel_sharers(card, choice, i), row->sharers[i]);
    }
}

/* --- the same kernels on all ranks ------------------------------------------
 */

static void unlike_kernels_are_refused(void **state)
{
    static const struct {
        struct merak_accel_kernels of[3];
        const char *text; /* NULL: they are alike */
    } row[] = {
        {{{"H200", ""}, {"H200", ""}, {"H200", ""}}, NULL},
        {{{"H200", "own"}, {"H200", "own"}, {"H200", "own"}}, NULL},
        /* a warning alone */
        {{{"H200", "auto"}, {"H100", "auto"}, {"H200", "auto"}}, NULL},
        {{{"H200", "own"}, {"H200", "own"}, {"H200", "auto"}},
         "VARIABLE is \"own\" for rank 0 on a and \"auto\" for rank 2 on b: "
         "their kernels would differ in bits; give all tasks the same"},
        {{{"H200", "auto"}, {"H200", "cudnn"}, {"H200", "auto"}},
         "VARIABLE is \"auto\" for rank 0 on a and \"cudnn\" for rank 1 on a: "
         "their kernels would differ in bits; give all tasks the same"},
    };
    struct merak_boot boot = {.size = 3,
                              .node_of = (int[]){0, 0, 1},
                              .hosts = (const char *const[]){"a", "b"},
                              .n_nodes = 2};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        struct merak_error err = {.text = ""};

        assert_int_equal(
            merak_accel_judge_kernels(&boot, "VARIABLE", row[i].of, &err),
            row[i].text == NULL ? MERAK_OK : MERAK_ERR_CONFIG);
        assert_string_equal(err.text, row[i].text == NULL ? "" : row[i].text);
    }
}

/* --- what the environment tells ---------------------------------------------
 */

static const char *const *environment; /* "NAME=value", NULL at the end */

static char *get(const char *name)
{
    size_t n = strlen(name);

    for (const char *const *e = environment; *e != NULL; e++) {
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            return (char *)(uintptr_t)(*e + n + 1);
    }
    return NULL;
}

static bool there_is(const char *path)
{
    assert_string_equal(path, "/dev/nvidiactl");
    return true;
}

static bool there_is_not(const char *path)
{
    (void)path;
    return false;
}

static void gpus_of_others_are_not_taken(void **state)
{
    static const struct {
        const char *set[3];
        bool given;
    } row[] = {
        {{NULL}, true},
        {{"SLURM_JOB_ID=7", NULL}, false},
        {{"SLURM_JOB_ID=7", "SLURM_JOB_GPUS=0,1", NULL}, true},
        {{"SLURM_JOB_ID=7", "SLURM_STEP_GPUS=1", NULL}, true},
        {{"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=0", NULL}, true},
        {{"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=", NULL}, false},
        {{"SLURM_JOB_ID=7", "CUDA_VISIBLE_DEVICES=NoDevFiles", NULL}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++) {
        environment = row[i].set;
        assert_int_equal(merak_accel_is_given(get, there_is), row[i].given);
        assert_false(merak_accel_is_given(get, there_is_not));
    }
}

static void sharing_is_refused_under_nccl(void **state)
{
    const struct merak_accel_device gpu = {.name = "NVIDIA H200",
                                           .bus = "0000:1b:00.0"};
    struct merak_error err = {.status = MERAK_OK};

    (void)state;
    assert_int_equal(merak_accel_judge_sharing(&gpu, "n1", 3, "ucx", &err),
                     MERAK_OK);
    assert_int_equal(merak_accel_judge_sharing(&gpu, "n1", 3, NULL, &err),
                     MERAK_OK);
    assert_int_equal(merak_accel_judge_sharing(&gpu, "n1", 3, "nccl", &err),
                     MERAK_ERR_CONFIG);
    assert_string_equal(
        err.text,
        "task 3 on n1 shares NVIDIA H200 at 0000:1b:00.0 with another task, "
        "and NCCL needs a GPU for each: start no more tasks than there are "
        "GPUs, or use --transport ucx");
}

static void hardware_has_a_built_in_device(void **state)
{
    static const char *const names[][2] = {
        {"NVIDIA H100 80GB HBM3", "h100"},
        {"NVIDIA H200", "h200"},
        {"NVIDIA B200", "b200"},
        {"NVIDIA GB200", "gb200"},
        {"NVIDIA A100-SXM4-80GB", "a100"},
        {"NVIDIA GeForce RTX 3090", "rtx3090"},
        {"NVIDIA GH200 480GB", NULL},
        {"NVIDIA A1000", NULL},
        {"NVIDIA GeForce RTX 4090", NULL},
        {"", NULL}};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *got = merak_device_of_hardware(names[i][0]);

        if (names[i][1] == NULL)
            assert_null(got);
        else
            assert_string_equal(got, names[i][1]);
    }
}

int main(void)
{
    struct CMUnitTest test[sizeof(rows) / sizeof(*rows) + 4];
    size_t n = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        test[n++] =
            (struct CMUnitTest){rows[i].name, accelerators_are_shared_out, NULL,
                                NULL, (void *)(uintptr_t)&rows[i]};
    test[n++] =
        (struct CMUnitTest){"GPUs of other jobs are not taken",
                            gpus_of_others_are_not_taken, NULL, NULL, NULL};
    test[n++] =
        (struct CMUnitTest){"a GPU for two is refused under NCCL",
                            sharing_is_refused_under_nccl, NULL, NULL, NULL};
    test[n++] =
        (struct CMUnitTest){"unlike settings of kernels are refused",
                            unlike_kernels_are_refused, NULL, NULL, NULL};
    test[n++] =
        (struct CMUnitTest){"a search knows the GPU by its name",
                            hardware_has_a_built_in_device, NULL, NULL, NULL};
    assert(n == sizeof(test) / sizeof(*test));
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("accel_choice", test, NULL, NULL);
}
