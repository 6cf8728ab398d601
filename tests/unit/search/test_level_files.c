/* SPDX-License-Identifier: Apache-2.0 */
/* test_level_files.c - levels of links in device files */
#include "config.h"

#include "unit/near.h"

#include "partitioner/device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_OF(ranks, more)                                               \
    "{\"name\": \"x\", \"ranks_per_node\": " ranks                         \
    ", \"memory_bytes\": 4e9, \"flops_per_s\": {\"f32\": 1, \"bf16\": 2}," \
    " \"bytes_per_s\": 1, \"kernel_s\": 0, " more "}"
#define ROW(name, ranks, more)                   \
    "{\"name\": \"" name "\", \"ranks\": " ranks \
    ", \"latency_s\": 1e-6, \"bytes_per_s\": 1e9" more "}"
#define LEVELS(rows) FILE_OF("4", "\"levels\": [" rows "]")

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_file_has_levels(void **state)
{
    char path[64];
    struct merak_device d, back;
    struct merak_error err;

    (void)state;
    snprintf(path, sizeof(path), "levels-%d.json", (int)getpid());
    write_text(
        path,
        LEVELS(ROW(
            "node", "4",
            ", \"groups\": [{\"ranks\": 4, \"latency_s\": 2e-6,"
            " \"bytes_per_s\": 5e8}]") ", " ROW("nvl", "72",
                                                "") ", " ROW("leaf", "288",
                                                             ", "
                                                             "\"way_bytes_"
                                                             "per_s\": "
                                                             "3e10") ","
                                                                     " " ROW(
                                                                         "net",
                                                                         "0",
                                                                         "")));
    if (merak_device_find(path, &d, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_int_equal(merak_links_last(&d.links), 3);
    assert_string_equal(d.links.level[2].name, "leaf");
    assert_int_equal(d.links.level[2].ranks, 288);
    assert_true(d.links.level[2].way_bytes_per_s == 3e10);
    assert_true(d.links.level[3].bytes_per_s == 1e9);
    assert_int_equal(d.links.n_groups, 1);
    assert_int_equal(merak_device_save(&d, path, &err), MERAK_OK);
    if (merak_device_find(path, &back, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_memory_equal(&back.links, &d.links, sizeof(d.links));
    merak_device_fini(&back);
    merak_device_fini(&d);
    unlink(path);
}

static void wrong_levels_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {FILE_OF("4", "\"levels\": [], \"net\": {}"),
         "\"levels\" and \"net\" both given"},
        {FILE_OF("4", "\"levels\": [], \"link\": {}"),
         "\"levels\" and \"link\" both given"},
        {FILE_OF("4", "\"levels\": 4"), "expected a list of 2 to 5 objects"},
        {LEVELS(ROW("node", "4", "")), "expected a list of 2 to 5 objects"},
        {LEVELS(ROW("node", "4", "") ", " ROW("leaf", "6",
                                              "") ", " ROW("net", "0", "")),
         "level \"leaf\" of 6 ranks is not a multiple of level \"node\", 4; "
         "nearest: 8"},
        {LEVELS(ROW("node", "4", "") ", " ROW("net", "8", "")),
         "the last of \"levels\", net, joins all ranks; expected \"ranks\" 0"},
        {LEVELS(ROW("node", "8", "") ", " ROW("net", "0", "")),
         "ranks_per_node is 4 and level \"node\", the first, has 8 ranks"},
        {LEVELS(ROW("node", "4", "") ", " ROW("leaf", "0",
                                              "") ", " ROW("net", "0", "")),
         "\"ranks\""},
        {LEVELS(ROW("longname", "4", "") ", " ROW("net", "0", "")),
         "name of a level is longname; expected a string of 1 to 7"},
        {LEVELS(ROW("node", "4", ", \"way\": 3") ", " ROW("net", "0", "")),
         "no field \"way\" of levels; there are name, ranks"},
        {LEVELS(ROW("node", "4",
                    ", \"way_bytes_per_s\": -3") ", " ROW("net", "0", "")),
         "\"way_bytes_per_s\""},
        {LEVELS("4, 5"), "name of a level is not a string"},
    };
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "levels-%d.json", (int)getpid());
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_device d = {0};
        struct merak_error err = {0};

        write_text(path, rows[i].text);
        assert_int_equal(merak_device_find(path, &d, &err), MERAK_ERR_FORMAT);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: \"%s\" does not say \"%s\"", i, err.text,
                     rows[i].says);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_levels),
        cmocka_unit_test(wrong_levels_are_refused),
    };

    return cmocka_run_group_tests_name("level_files", tests, NULL, NULL);
}
