/* SPDX-License-Identifier: Apache-2.0 */
/* test_device.c - devices, built in and from files */
#include "config.h"

#include "unit/near.h"

#include "base/log.h"
#include "partitioner/device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = {"a100", "h100", "h200", "b200", "gb200", "rtx3090", "cpu"};

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void made_path(char *path, size_t size)
{
    int fd;

    snprintf(path, size, "/tmp/merak-device-XXXXXX.json");
    fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
}

static void assert_near_one(double got, double want)
{
    if (fabs(got - want) > 1e-3 * want)
        fail_msg("%g, not %g", got, want);
}

static void a_saved_device_is_read_back(void **state)
{
    char path[64];

    (void)state;
    made_path(path, sizeof(path));
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        struct merak_device d = {0}, back = {0};
        struct merak_error err = {0};

        assert_int_equal(merak_device_find(words[i], &d, &err), MERAK_OK);
        assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
        assert_int_equal(merak_device_find(path, &back, &err), MERAK_OK);
        assert_string_equal(back.name, d.name);
        assert_int_equal(back.memory_bytes, d.memory_bytes);
        assert_true(back.flops_per_s[MERAK_BF16] == d.flops_per_s[MERAK_BF16]);
        assert_true(back.peak_flops_per_s[MERAK_F32] ==
                    d.peak_flops_per_s[MERAK_F32]);
        assert_memory_equal(&back.links, &d.links, sizeof(d.links));
        assert_memory_equal(&back.host, &d.host, sizeof(d.host));
        assert_true(back.sums_roofline == d.sums_roofline);
        assert_true(back.direct == d.direct);
        assert_true(back.attention_flops_per_s[MERAK_BF16] ==
                    d.attention_flops_per_s[MERAK_BF16]);
        assert_true(back.interference_bytes_per_s ==
                    d.interference_bytes_per_s);
    }
    unlink(path);
}

static double kernel_s(const struct merak_cost_model *cost, const char *op,
                       int tp, double flops, double bytes, double width)
{
    const struct merak_kernel_size size = {
        .flops = flops, .bytes = bytes, .width = width};

    return merak_cost_kernel(cost, merak_op_find(op), tp, &size);
}

static double reused_s(const struct merak_cost_model *cost, double reuse)
{
    const struct merak_kernel_size size = {
        .flops = 1e6, .bytes = 1e6, .reuse = reuse};

    return merak_cost_kernel(cost, merak_op_find("layernorm"), 1, &size);
}

static double gemm_share(const struct merak_cost_model *cost, double n)
{
    return 2 * n * n * n / cost->flops_per_s /
           kernel_s(cost, "linear", 1, 2 * n * n * n, 6 * n * n, 0);
}

/* Built-in GPUs: small products do worse than large ones, attention worse than
 * either, and exchanges take something from kernels. */
static void built_in_gpus_are_slower_at_small_products(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct merak_device d;
        struct merak_cost_model cost;

        assert_int_equal(merak_device_find(words[i], &d, NULL), MERAK_OK);
        merak_device_cost(&d, MERAK_BF16, 8, &cost);
        assert_true(gemm_share(&cost, 1024) < 0.8);
        assert_true(gemm_share(&cost, 4096) > 0.8);
        assert_true(gemm_share(&cost, 4096) < gemm_share(&cost, 16384));
        assert_true(kernel_s(&cost, "attention_dx", 1, 1e12, 1e8, 128) >
                    1.1 * kernel_s(&cost, "linear_dx", 1, 1e12, 1e8, 128));
        assert_near_one(
            merak_cost_interference(&cost, MERAK_CONVERT_ALL_GATHER, 1e9, 8)
                .copy_s,
            0.189 * 1e9 / cost.links.level[0].bytes_per_s);
    }
}

/* Kernels that were timed take that long, and others of the op as much longer
 * than their roofline as those that are near. */
static void kernels_are_interpolated(void **state)
{
    static const char text[] =
        "{\"name\": \"x\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
        " \"flops_per_s\": {\"f32\": 1e9, \"bf16\": 2e9},"
        " \"bytes_per_s\": 1e8, \"kernel_s\": 1e-6,"
        " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1},"
        " \"kernels\": {\"bf16\": {}, \"f32\": {\"linear\":"
        " [[1e6, 1e4, 2e-3], [1e8, 1e6, 1.1e-1]], \"add\": [[0, 4e6, 0.02]],"
        " \"attention\": [[1e7, 1e5, 0.04, 32], [1e7, 1e5, 0.01, 128]],"
        " \"layernorm\": [[1e6, 1e6, 0.02, 0, 1e6],"
        " [1e6, 1e6, 0.08, 0, 1e8]]"
        "}}, \"tp_kernels\": {\"bf16\": {}, \"f32\": {\"linear\":"
        " [[1e6, 1e4, 3e-3]]}}}";
    struct merak_device d = {0}, back = {0};
    struct merak_cost_model cost;
    struct merak_error err = {0};
    char path[64];

    (void)state;
    made_path(path, sizeof(path));
    write_text(path, text);
    if (merak_device_find(path, &d, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
    assert_int_equal(merak_device_find(path, &back, &err), MERAK_OK);
    unlink(path);
    merak_device_cost(&back, MERAK_F32, 1, &cost);
    /* the points themselves, to what a file keeps of a number */
    assert_near_one(kernel_s(&cost, "linear", 1, 1e6, 1e4, 0), 2e-3);
    assert_near_one(kernel_s(&cost, "linear", 1, 1e8, 1e6, 0), 0.11);
    assert_near_one(kernel_s(&cost, "add", 1, 0, 4e6, 0), 0.02);
    /* half way, in logarithms: the geometric mean of 2 and 1.1 */
    assert_near_one(kernel_s(&cost, "linear", 1, 1e7, 1e5, 0),
                    1e-2 * sqrt(2 * 1.1));
    /* far away: as efficient as the nearest */
    assert_true(kernel_s(&cost, "linear", 1, 1e14, 1e12, 0) < 1.3e5);
    assert_near_one(kernel_s(&cost, "add", 1, 0, 4, 0), 2e-8);
    /* of two widths the one that is asked for, or between both */
    assert_near_one(kernel_s(&cost, "attention", 1, 1e7, 1e5, 32), 0.04);
    assert_near_one(kernel_s(&cost, "attention", 1, 1e7, 1e5, 128), 0.01);
    assert_near_one(kernel_s(&cost, "attention", 1, 1e7, 1e5, 64), 0.02);
    assert_near_one(kernel_s(&cost, "attention", 1, 1e7, 1e5, 0), 0.02);
    /* of two distances, too; beyond the largest it makes no difference */
    assert_near_one(reused_s(&cost, 1e6), 0.02);
    assert_near_one(reused_s(&cost, 1e7), 0.04);
    assert_near_one(reused_s(&cost, 1e8), 0.08);
    assert_near_one(reused_s(&cost, 1e12), 0.08);
    assert_near_one(reused_s(&cost, 0), 0.04);
    /* what was not timed: the roofline, and a kernel's fixed cost */
    assert_near_one(kernel_s(&cost, "gelu", 1, 1e6, 1e3, 0), 1.001e-3);
    assert_near_one(merak_cost_copy(&cost, 1e4), 1.01e-4);
    /* a tensor rank has times of its own, where there are any */
    assert_near_one(kernel_s(&cost, "linear", 2, 1e6, 1e4, 0), 3e-3);
    assert_near_one(kernel_s(&cost, "add", 2, 0, 4e6, 0), 0.02);
    merak_device_cost(&back, MERAK_BF16, 1, &cost);
    assert_near_one(kernel_s(&cost, "linear", 1, 2e6, 1e3, 0), 1.001e-3);
    assert_near_one(kernel_s(&cost, "linear", 2, 2e6, 1e3, 0), 1.001e-3);
    merak_device_fini(&d);
    merak_device_fini(&back);
}

/* What kernels lose beside exchanges is nothing in older files. */
static void interference_is_read_from_device_files(void **state)
{
    static const char text[] =
        "{\"name\": \"x\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
        " \"flops_per_s\": {\"f32\": 1, \"bf16\": 2},"
        " \"bytes_per_s\": 1, \"kernel_s\": 1%s,"
        " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1}}";
    static const struct {
        const char *more;
        double latency_s, bytes_per_s;
    } rows[] = {
        {"", 0, 0},
        {", \"beside\": {\"latency_s\": 6e-5, \"bytes_per_s\": 4e9}", 6e-5,
         4e9},
        {", \"beside\": {\"latency_s\": 6e-5, \"bytes_per_s\": 0}", 6e-5, 0},
    };
    struct merak_error err = {0};
    char path[64], all[512];

    (void)state;
    made_path(path, sizeof(path));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_device d = {0}, back = {0};
        struct merak_cost_model cost;

        snprintf(all, sizeof(all), text, rows[i].more);
        write_text(path, all);
        assert_int_equal(merak_device_find(path, &d, &err), MERAK_OK);
        assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
        assert_int_equal(merak_device_find(path, &back, &err), MERAK_OK);
        merak_device_cost(&back, MERAK_F32, 1, &cost);
        assert_true(cost.interference_latency_s == rows[i].latency_s);
        assert_true(cost.interference_bytes_per_s == rows[i].bytes_per_s);
    }
    unlink(path);
}

/* A name is cut between letters, so that it can be written again. */
static void long_names_are_cut(void **state)
{
    static const char rest[] =
        "\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
        " \"flops_per_s\": {\"f32\": 1, \"bf16\": 2},"
        " \"bytes_per_s\": 1, \"kernel_s\": 1,"
        " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1}}";
    struct merak_error err = {0};
    char path[64], all[512];

    (void)state;
    made_path(path, sizeof(path));
    for (size_t i = 0; i < 3; i++) {
        struct merak_device d = {0};

        snprintf(all, sizeof(all),
                 "{\"name\": \"%.*s\xe2\x82\xac\xe2\x82\xac%s", 29 - (int)i,
                 "abcdefghijklmnopqrstuvwxyzabcdefgh", rest);
        write_text(path, all);
        assert_int_equal(merak_device_find(path, &d, &err), MERAK_OK);
        assert_int_equal(strlen(d.name), i == 0 ? 29 : 32 - i);
        assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
    }
    unlink(path);
}

/* No device does more than its data sheet says. */
static void built_in_rates_are_below_peaks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        struct merak_device d = {0};

        assert_int_equal(merak_device_find(words[i], &d, NULL), MERAK_OK);
        assert_true(d.flops_per_s[MERAK_F32] < d.peak_flops_per_s[MERAK_F32]);
        assert_true(d.flops_per_s[MERAK_BF16] < d.peak_flops_per_s[MERAK_BF16]);
        assert_true(d.links.level[0].bytes_per_s >=
                    d.links.level[1].bytes_per_s);
    }
}

/* A file with all that is required, up to its last brace. */
#define PLAIN                                                          \
    "{\"ranks_per_node\": 1, \"memory_bytes\": 4, \"flops_per_s\": "   \
    "{\"f32\": 1, \"bf16\": 1}, \"bytes_per_s\": 1, \"kernel_s\": 0, " \
    "\"link\": {\"bytes_per_s\": 1, \"latency_s\": 0}"

/* Lines that a backend wrote come back as they were. */
static void choices_are_kept(void **state)
{
    struct merak_device d = {0}, back = {0};
    struct merak_error err = {0};
    char path[64];

    (void)state;
    made_path(path, sizeof(path));
    write_text(path, PLAIN ", \"tuned\": {\"for\": \"a GPU\", \"choices\": "
                           "[\"1 2 3\", \"4\"]}}");
    assert_int_equal(merak_device_find(path, &d, &err), MERAK_OK);
    assert_int_equal(merak_device_add_tuned(&d, "5 6", &err), MERAK_OK);
    assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
    assert_int_equal(merak_device_find(path, &back, &err), MERAK_OK);
    assert_string_equal(back.tuned_for, "a GPU");
    assert_int_equal(back.n_tuned, 3);
    assert_string_equal(back.tuned[0], "1 2 3");
    assert_string_equal(back.tuned[2], "5 6");
    merak_device_fini(&d);
    merak_device_fini(&back);
    unlink(path);
}

static void bad_files_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"{", "line 1"},
        {"{\"name\": \"x\"}", "\"ranks_per_node\" is missing"},
        {"{\"ranks_per_node\": 1.5, \"memory_bytes\": 1}", "whole number"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": -4}", "\"memory_bytes\""},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 4, \"flops_per_s\": 3}",
         "expected an object"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 4, \"flops_per_s\": "
         "{\"f32\": 1, \"bf16\": \"a\"}}",
         "\"bf16\" of flops_per_s is of another kind"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 4, \"flops_per_s\": "
         "{\"f32\": 1, \"bf16\": 1}, \"bytes_per_s\": 1, \"kernel_s\": 0}",
         "\"link\" is missing"},
        {PLAIN ", \"kernels\": "
               "{\"f32\": {\"add\": [[1, 2]]}}}",
         "kernel add: expected points of three to five"},
        {PLAIN ", \"tp_kernels\": "
               "{\"f32\": {\"add\": [[1, 2, 3, 4, 5, 6]]}}}",
         "kernel add: expected points of three to five"},
        {PLAIN ", \"kernels\": "
               "{\"f32\": {\"add\": [[1, 2, 3, -4]]}}}",
         "kernel add: expected points of three to five"},
        {PLAIN ", \"tp_kernels\": "
               "{\"f32\": {}}}",
         "\"bf16\" is missing"},
        {PLAIN ", \"kernels\": "
               "{\"f32\": {\"add\": 0.1}}}",
         "kernel add: expected a list"},
        {PLAIN ", "
               "\"roofline\": \"mean\"}",
         "\"roofline\" is mean; expected \"max\" or \"sum\""},
        {PLAIN ", \"transport\": \"mpi\"}",
         "\"transport\" is mpi; expected \"nccl\" or \"ucx\""},
        {PLAIN ", "
               "\"attention_flops_per_s\": {\"f32\": 1}}",
         "\"bf16\" of attention_flops_per_s is missing"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 0.5}", "1 to 2^60"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 1e30}", "1 to 2^60"},
        {PLAIN
         ", \"net\": "
         "{\"bytes_per_s\": 1, \"latency_s\": 0, \"node_bytes_per_s\": 0}}",
         "\"node_bytes_per_s\" of net is 0; expected a number above 0"},
        {PLAIN ", \"beside\": 1}",
         "\"beside\" is of another kind; expected an object"},
        {PLAIN ", \"beside\": "
               "{\"latency_s\": -1, \"bytes_per_s\": 0}}",
         "\"latency_s\" of beside is -1; expected a number not below 0"},
        {PLAIN ", \"host\": 4}", "\"host\" is of another kind"},
        {PLAIN ", \"host\": {}}", "\"memory_bytes\" of host is missing"},
        {PLAIN ", \"host\": {\"memory_bytes\": 1e30}}",
         "memory_bytes is 1e+30; expected bytes of a rank"},
        {PLAIN ", \"host\": {\"memory_bytes\": 1, \"bytes_per_s\": 0}}",
         "expected a number above 0"},
        {PLAIN ", \"host\": {\"memory_bytes\": 1, \"bytes_per_s\": 1}}",
         "\"latency_s\" of host is missing"},
        {PLAIN ", \"host\": {\"memory_bytes\": 1, \"bytes_per_s\": 1, "
               "\"latency_s\": 0, \"bytes\": 1}}",
         "no field \"bytes\" of host"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 4, \"flops_per_s\": "
         "{\"f32\": 1e300, \"bf16\": 1}}",
         "\"f32\" of flops_per_s is 1e+300; expected a number above 0, 1e-30 "
         "to 1e+30"},
        {"{\"ranks_per_node\": 1, \"memory_bytes\": 4, \"flops_per_s\": "
         "{\"f32\": 1, \"bf16\": 1}, \"bytes_per_s\": 1, \"kernel_s\": 1e-320}",
         "expected a number not below 0, 0 or 1e-30 to 1e+30"},
        {PLAIN ", \"kernels\": "
               "{\"f32\": {\"add\": [[0, 1e-300, 1]]}}}",
         "kernel add: expected points of three to five"},
        {PLAIN ", \"tuned\": 1}", "\"tuned\" is of another kind"},
        {PLAIN ", \"tuned\": {\"for\": \"x\"}}", "expected \"for\", a string"},
        {PLAIN ", \"tuned\": {\"for\": \"x\", \"choices\": [\"a\", 1]}}",
         "choice 1 of \"tuned\" is not a string"},
        {PLAIN ", \"tuned\": {\"for\": \"x\", \"choices\": [], \"by\": 1}}",
         "no field \"by\" of tuned; there are for, choices"},
    };
    char path[64];

    (void)state;
    made_path(path, sizeof(path));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_device d = {0};
        struct merak_error err = {0};

        write_text(path, rows[i].text);
        assert_int_equal(merak_device_find(path, &d, &err), MERAK_ERR_FORMAT);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, rows[i].says);
        assert_int_equal(d.links.level[0].ranks, 0);
    }
    unlink(path);
}

/* A field that is misspelt would else be one that is left out. */
static void unknown_fields_are_refused(void **state)
{
    static const char text[] =
        "{\"name\": \"x\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
        " \"flops_per_s\": {\"f32\": 1, \"bf16\": 2%s},"
        " \"bytes_per_s\": 1, \"kernel_s\": 1,"
        " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1%s}%s}";
    static const struct {
        const char *flops, *link, *more, *says;
    } rows[] = {
        {"", "", ", \"ntes\": \"a\"",
         "no field \"ntes\"; there are name, ranks_per_node"},
        {"", "", ", \"notes\": \"a\"", NULL},
        {"", "", ", \"besides\": {}", "no field \"besides\""},
        {"", "", ", \"peak_flop_per_s\": {}", "peak_flops_per_s"},
        {", \"f16\": 3", "", "",
         "no field \"f16\" of flops_per_s; there are f32, bf16"},
        {"", ", \"group\": []", "", "no field \"group\" of link"},
        {"",
         ", \"groups\": [{\"ranks\": 2, \"latency_s\": 1,"
         " \"bytes_per_s\": 1, \"bandwidth\": 1}]",
         "", "no field \"bandwidth\" of groups; there are ranks"},
        {"", "",
         ", \"net\": {\"bytes_per_s\": 1, \"latency_s\": 1,"
         " \"nodes_bytes_per_s\": 1}",
         "no field \"nodes_bytes_per_s\" of net; there are bytes_per_s, "
         "latency_s, node_bytes_per_s"},
        {"", "",
         ", \"beside\": {\"latency_s\": 1, \"bytes_per_s\": 1,"
         " \"rate\": 1}",
         "no field \"rate\" of beside"},
        {"", "", ", \"kernels\": {\"f32\": {}, \"bf16\": {}, \"f64\": {}}",
         "no field \"f64\" of kernels"},
        {"", "", ", \"kernel_s\": 2", "duplicate"},
    };
    char path[64], all[512];

    (void)state;
    made_path(path, sizeof(path));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_device d = {0};
        struct merak_error err = {0};

        snprintf(all, sizeof(all), text, rows[i].flops, rows[i].link,
                 rows[i].more);
        write_text(path, all);
        assert_int_equal(merak_device_find(path, &d, &err),
                         rows[i].says == NULL ? MERAK_OK : MERAK_ERR_FORMAT);
        if (rows[i].says != NULL && strstr(err.text, rows[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, rows[i].says);
    }
    unlink(path);
}

struct said {
    int n;
    char line[1024];
};

static void take_line(void *arg, enum merak_log_level level, const char *module,
                      const char *line)
{
    struct said *said = arg;

    assert_int_equal(level, MERAK_LOG_WARN);
    assert_string_equal(module, "device");
    snprintf(said->line, sizeof(said->line), "%s", line);
    said->n++;
}

/* A program may have ops of its own; but a name may be misspelt, too. */
static void unknown_kernels_are_named(void **state)
{
    static const char text[] =
        "{\"name\": \"x\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
        " \"flops_per_s\": {\"f32\": 1, \"bf16\": 2},"
        " \"bytes_per_s\": 1, \"kernel_s\": 1,"
        " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1},"
        " \"kernels\": {\"f32\": {\"linear\": [[1, 2, 3]], \"copy\": "
        "[[0, 2, 3]]%s}, \"bf16\": {%s}}}";
    static const struct {
        const char *f32, *bf16, *says;
    } rows[] = {
        {"", "\"attention_packed_dx\": [[1, 2, 3]]", NULL},
        {", \"linaer_dx\": [[1, 2, 3]]", "",
         ": no op is called \"linaer_dx\": its times are not used (did you mean "
         "linear_dx?)"},
        {", \"sofmax\": [[1, 2, 3]]",
         "\"sofmax\": [[1, 2, 3]], \"gleu\": [[1, 2, 3]]",
         "\"sofmax\", and 1 more: its times are not used"},
    };
    char path[64], all[512];

    (void)state;
    made_path(path, sizeof(path));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_device d = {0};
        struct said said = {0};

        snprintf(all, sizeof(all), text, rows[i].f32, rows[i].bf16);
        write_text(path, all);
        merak_log_sink(take_line, &said);
        assert_int_equal(merak_device_find(path, &d, NULL), MERAK_OK);
        merak_log_sink(NULL, NULL);
        assert_int_equal(said.n, rows[i].says != NULL);
        if (said.n > 0 && (strstr(said.line, rows[i].says) == NULL ||
                           strstr(said.line, path) != said.line))
            fail_msg("\"%s\" does not say \"%s\"", said.line, rows[i].says);
        merak_device_fini(&d);
    }
    unlink(path);
}

/* It is not taken to be what is sustained, and a copy has none, too. */
static void a_peak_may_be_left_out(void **state)
{
    static const char text[] =
        "{\"name\": \"x\", \"ranks_per_node\": 1, \"memory_bytes\": 4,"
        " \"flops_per_s\": {\"f32\": 1, \"bf16\": 2},"
        " \"bytes_per_s\": 1, \"kernel_s\": 1,"
        " \"link\": {\"bytes_per_s\": 1, \"latency_s\": 1}}";
    struct merak_device d = {0}, back = {0};
    char path[64];

    (void)state;
    made_path(path, sizeof(path));
    write_text(path, text);
    assert_int_equal(merak_device_find(path, &d, NULL), MERAK_OK);
    assert_true(d.peak_flops_per_s[MERAK_F32] == 0);
    assert_int_equal(merak_device_save(&d, path, NULL), MERAK_OK);
    assert_int_equal(merak_device_find(path, &back, NULL), MERAK_OK);
    assert_true(back.peak_flops_per_s[MERAK_BF16] == 0);
    assert_true(back.flops_per_s[MERAK_BF16] == 2);
    unlink(path);
}

/* A calibration of GPUs is for NCCL unless it was for UCX. */
static void a_measured_transport_is_kept(void **state)
{
    struct merak_device d = {0};
    char path[64];

    (void)state;
    made_path(path, sizeof(path));
    assert_int_equal(merak_device_find("h100", &d, NULL), MERAK_OK);
    snprintf(d.name, sizeof(d.name), "cuda, 1 thread");
    for (int i = 0; i < 2; i++) {
        struct merak_device back = {0};

        d.direct = i == 1;
        assert_int_equal(merak_device_save(&d, path, NULL), MERAK_OK);
        assert_int_equal(merak_device_find(path, &back, NULL), MERAK_OK);
        assert_true(back.direct == d.direct);
    }
    unlink(path);
}

static void words_are_of_either_case(void **state)
{
    struct merak_device d = {0};

    (void)state;
    assert_int_equal(merak_device_find("H100", &d, NULL), MERAK_OK);
    assert_string_equal(d.name, "h100");
    assert_int_equal(merak_device_find("RTX3090", &d, NULL), MERAK_OK);
}

static void an_unknown_word_names_those_there_are(void **state)
{
    struct merak_device d;
    struct merak_error err = {0};

    (void)state;
    assert_int_equal(merak_device_find("b100", &d, &err), MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "a100, a100-2021, h100, h100-2023, h200, "
                                     "b200, gb200, rtx3090, cpu"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_saved_device_is_read_back),
        cmocka_unit_test(interference_is_read_from_device_files),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(built_in_gpus_are_slower_at_small_products),
        cmocka_unit_test(kernels_are_interpolated),
        cmocka_unit_test(built_in_rates_are_below_peaks),
        cmocka_unit_test(choices_are_kept),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(unknown_fields_are_refused),
        cmocka_unit_test(unknown_kernels_are_named),
        cmocka_unit_test(a_peak_may_be_left_out),
        cmocka_unit_test(a_measured_transport_is_kept),
        cmocka_unit_test(words_are_of_either_case),
        cmocka_unit_test(an_unknown_word_names_those_there_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
