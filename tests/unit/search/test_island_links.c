/* SPDX-License-Identifier: Apache-2.0 */
/* test_island_links.c - links by pair of islands: files, the order of islands,
 * what messages take, and plans over slow ways
 */
#include "config.h"

#include "unit/search/gpt2_request.h"

#include "partitioner/device/island_ways.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void assert_near_one(const char *what, double got, double want,
                            double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s: %.9g, expected %.9g", what, got, want);
}

/* --- files ---------------------------------------------------------------- */

static enum merak_status load(const char *text, struct merak_islands **islands,
                              struct merak_error *err)
{
    char path[] = "island_links.XXXXXX";
    int fd = mkstemp(path);
    size_t n = strlen(text);
    enum merak_status rc;

    assert_true(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    close(fd);
    rc = merak_islands_load(path, islands, err);
    unlink(path);
    return rc;
}

#define AB "{\"islands\": [{\"name\": \"a\", \"nodes\": 2}, {\"name\": \"b\", "
#define RATES "{\"bytes_per_s\": 1e8, \"latency_s\": 0.5}"
#define WAY "[\"a\", \"b\", " RATES "]"

static void a_pair_is_given_once_for_both_ways(void **state)
{
    struct merak_islands *islands = NULL;
    struct merak_error err;

    (void)state;
    assert_int_equal(load(AB "\"nodes\": \"n[1-2]\"}], \"between\": [" WAY "]}",
                          &islands, &err),
                     MERAK_OK);
    assert_int_equal(islands->n, 2);
    assert_int_equal(merak_islands_nodes(islands), 4);
    assert_null(islands->island[0].hosts);
    assert_string_equal(islands->island[1].hosts, "n[1-2]");
    assert_true(islands->way[0][1].bytes_per_s == 1e8);
    assert_true(islands->way[1][0].latency_s == 0.5);
    merak_islands_destroy(islands);
}

/* What was measured is read as it was, names or numbers of nodes. */
static void files_are_read_as_they_were_written(void **state)
{
    struct merak_islands *islands = NULL, *again = NULL;
    const char path[] = "island_links.json";
    struct merak_error err;

    (void)state;
    assert_int_equal(load(AB "\"nodes\": \"n[1-2]\"}], \"between\": [" WAY "]}",
                          &islands, &err),
                     MERAK_OK);
    assert_int_equal(merak_islands_save(islands, path, &err), MERAK_OK);
    assert_int_equal(merak_islands_load(path, &again, &err), MERAK_OK);
    assert_int_equal(again->n, 2);
    assert_string_equal(again->island[0].name, "a");
    assert_int_equal(again->island[0].nodes, 2);
    assert_null(again->island[0].hosts);
    assert_string_equal(again->island[1].hosts, "n[1-2]");
    assert_true(again->way[1][0].bytes_per_s == 1e8);
    assert_true(again->way[0][1].latency_s == 0.5);
    merak_islands_destroy(again);
    merak_islands_destroy(islands);
    unlink(path);
}

/* .. and before it was measured, without ways. */
static void islands_are_read_without_ways(void **state)
{
    static const char text[] = AB "\"nodes\": \"n[1-2]\"}]}";
    char path[] = "island_links.XXXXXX";
    struct merak_islands *islands = NULL;
    int fd = mkstemp(path);
    struct merak_error err;

    (void)state;
    assert_true(fd >= 0 && write(fd, text, sizeof(text) - 1) > 0);
    close(fd);
    assert_int_equal(merak_islands_load(path, &islands, &err),
                     MERAK_ERR_FORMAT);
    assert_int_equal(merak_islands_load_bare(path, &islands, &err), MERAK_OK);
    unlink(path);
    assert_int_equal(merak_islands_nodes(islands), 4);
    assert_true(islands->way[1][0].bytes_per_s == 0);
    merak_islands_destroy(islands);
}

static void bad_files_are_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"[]", "the file is not an object"},
        {"{\"islands\": 1", "line 1"},
        {AB "\"nodes\": 2}], \"betwen\": []}", "unknown field \"betwen\""},
        {AB "\"nodes\": 0}], \"between\": [" WAY "]}", "nodes of island \"b\""},
        {AB "\"nodes\": \"n[2-1]\"}], \"between\": [" WAY "]}", "n[2-1]"},
        {AB "\"nodes\": \"n[1-2\"}], \"between\": [" WAY "]}", "n[1-2"},
        {AB "\"nodes\": \"x,\"}], \"between\": [" WAY "]}", "\"x,\""},
        {AB "\"node\": 2}], \"between\": [" WAY "]}",
         "unknown field \"node\" in an island"},
        {"{\"islands\": [{\"name\": \"a\", \"nodes\": 2}]}", "2 to 16"},
        {"{\"islands\": [{\"name\": \"a\", \"nodes\": 2}, {\"name\": \"a\", "
         "\"nodes\": 2}]}",
         "two islands are called \"a\""},
        {AB "\"nodes\": 2}]}", "no row of \"a\" and \"b\""},
        {AB "\"nodes\": 2}], \"between\": [" WAY "," WAY "]}", "given twice"},
        {AB "\"nodes\": 2}], \"between\": [[\"a\", \"a\", " RATES "]]}",
         "is one island"},
        {AB "\"nodes\": 2}], \"between\": [[\"a\", \"x\", " RATES "]]}",
         "names \"x\""},
        {AB "\"nodes\": 2}], \"between\": [[\"a\", \"b\"]]}", "a row of"},
        {AB "\"nodes\": 2}], \"between\": [[\"a\", \"b\", {\"bytes_per_s\": 0, "
            "\"latency_s\": 0}]]}",
         "bytes_per_s between \"a\" and \"b\" is out of range"},
        {AB "\"nodes\": 2}], \"between\": [[\"a\", \"b\", {\"bytes_per_s\": "
            "1}]]}",
         "latency_s between \"a\" and \"b\" is missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_islands *islands = NULL;
        struct merak_error err;

        assert_int_equal(load(rows[i].text, &islands, &err), MERAK_ERR_FORMAT);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: \"%s\" is not in: %s", i, rows[i].says,
                     err.text);
        assert_null(islands);
    }
}

/* --- order ---------------------------------------------------------------- */

static void set_way(struct merak_islands *islands, int a, int b, double rate)
{
    islands->way[a][b].bytes_per_s = islands->way[b][a].bytes_per_s = rate;
}

static struct merak_islands equal_islands(int n, int nodes, double rate)
{
    struct merak_islands islands = {.n = n};

    for (int a = 0; a < n; a++) {
        islands.at[a] = a;
        islands.island[a].nodes = nodes;
        for (int b = 0; b < a; b++)
            set_way(&islands, a, b, rate);
    }
    return islands;
}

/* Gb/s: ab 1, ac .1, ad .5, bc .2, bd .1, cd .8. */
static struct merak_islands four_islands(void)
{
    struct merak_islands islands = equal_islands(4, 1, 0.1e9 / 8);

    set_way(&islands, 0, 1, 1e9 / 8);
    set_way(&islands, 0, 3, 0.5e9 / 8);
    set_way(&islands, 1, 2, 0.2e9 / 8);
    set_way(&islands, 2, 3, 0.8e9 / 8);
    return islands;
}

static void assert_hops(const struct merak_islands *islands,
                        const struct merak_island_hops *hops, const int *at,
                        const double *want)
{
    for (int k = 0; k + 1 < islands->n; k++)
        assert_near_one("hop", merak_islands_hop_s(islands, hops, at, k, k + 1),
                        want[k], 1e-9);
}

static void four_islands_have_the_golden_order(void **state)
{
    const struct merak_islands islands = four_islands();
    const struct merak_island_hops hops = {
        .bytes = {[0][1] = 40e6, [1][2] = 10e6, [2][3] = 20e6}};
    const double listed[] = {.32, .40, .20}, best[] = {.32, .16, .20};
    const int want[] = {1, 0, 3, 2};
    struct merak_island_order order;
    int at[4];

    (void)state;
    assert_hops(&islands, &hops, islands.at, listed);
    order = merak_islands_arrange(&islands, &hops, at);
    assert_memory_equal(at, want, sizeof(want));
    assert_hops(&islands, &hops, at, best);
    assert_near_one("longest", order.most_s, .32, 1e-9);
    assert_near_one("all", order.sum_s, .68, 1e-9);
}

/* Islands along a hidden line: only neighbours have fast ways.  Of seven all
 * orders are tried, of more some. */
static void a_line_of_islands_is_found(void **state)
{
    static const int line[] = {4, 0, 7, 2, 9, 1, 5, 3, 8, 6};

    (void)state;
    for (int n = 2; n <= 10; n++) {
        struct merak_islands islands = equal_islands(n, 1, 1);
        struct merak_island_hops hops = {.bytes = {{0}}};
        int seen = -1, at[10];

        for (int i = 0; i < 10; i++) {
            if (line[i] >= n)
                continue;
            if (seen >= 0)
                set_way(&islands, seen, line[i], 10);
            seen = line[i];
        }
        for (int k = 0; k + 1 < n; k++)
            hops.bytes[k][k + 1] = 10;
        assert_near_one("longest",
                        merak_islands_arrange(&islands, &hops, at).most_s, 1,
                        1e-9);
    }
}

/* --- what messages take --------------------------------------------------- */

/* Nodes of two ranks, in islands of one: ways in the order b a d c. */
static void messages_take_their_pairs_way(void **state)
{
    struct merak_islands islands = four_islands();
    struct merak_links links = {
        .level = {{"link", 2, 1e-3, 1e9, 0}, {"net", 0, 2e-3, 1e8, 0}}};
    const struct merak_spread sharers = {.n = {2}};
    static const int all[] = {0, 2, 4, 6}, two[] = {0, 2};
    const int at[] = {1, 0, 3, 2};
    struct merak_links shared;
    struct merak_spread spread;

    (void)state;
    memcpy(islands.at, at, sizeof(at));
    islands.way[0][1].latency_s = islands.way[1][0].latency_s = 0.25;
    assert_int_equal(merak_links_set_islands(&links, &islands, 2, NULL),
                     MERAK_OK);
    links = merak_links_of_job(&links, 4, 2);
    assert_int_equal(merak_links_last(&links), 1);
    assert_near_one("inside", merak_links_transfer_s(&links, 0, 1, 1e6), 2e-3,
                    1e-9);
    /* b -> a may carry more than a rank's own link */
    assert_near_one("own", merak_links_transfer_s(&links, 0, 2, 1e6), 0.26,
                    1e-9);
    assert_near_one("way", merak_links_transfer_s(&links, 2, 4, 1e6), 0.016,
                    1e-9);
    shared = merak_links_contended(&links, &sharers);
    assert_near_one("shared", merak_links_transfer_s(&shared, 2, 4, 1e6), 0.032,
                    1e-9);
    assert_near_one("unknown", merak_links_message_s(&shared, 1, 1e6), 0.16,
                    1e-9);
    /* over all islands the slowest pair, over two their own */
    spread = merak_links_spread(&shared, 0, all, 4);
    assert_int_equal(spread.pair, merak_islands_slowest(&islands));
    spread = merak_links_spread(&shared, 0, two, 2);
    assert_int_equal(spread.pair, merak_islands_pair(&islands, 0, 1));
    assert_int_equal(merak_links_slowest_pair(&links, 0, 2, 2), spread.pair);
    assert_int_equal(merak_links_slowest_pair(&links, 0, 1, 2), 0);
    merak_links_scale(&shared, 1, 2);
    assert_near_one("twice", merak_links_transfer_s(&shared, 2, 4, 1e6), 0.016,
                    1e-9);
}

/* --- plans ---------------------------------------------------------------- */

static struct merak_search_result *find_of(const struct request *request,
                                           const struct merak_islands *islands)
{
    struct merak_hf_config config;
    struct merak_device device;
    struct merak_search_input in;
    struct merak_search_result *result = NULL;
    struct merak_error err;

    request_fill(request, &config, &device, &in);
    if (islands != NULL)
        assert_int_equal(merak_links_set_islands(&device.links, islands,
                                                 device.links.level[0].ranks,
                                                 &err),
                         MERAK_OK);
    if (merak_search(&in, &result, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_device_fini(&device);
    return result;
}

/* The best plan of a small model on 4 nodes of 2 ranks. */
static struct merak_search_result *find(const struct merak_islands *islands,
                                        const struct merak_choices *pin)
{
    const struct request request = {4, 256, 4, 1024, "h100", 4, 2, 32, 0, *pin};

    return find_of(&request, islands);
}

static void ways_that_limit_nothing_change_nothing(void **state)
{
    struct merak_islands islands = equal_islands(2, 2, 1e15);
    const struct merak_choices pin = {
        .tp = 2, .pp = 4, .dp = 1, .schedule = "1f1b"};
    struct merak_device device;
    struct merak_search_result *with, *without;

    (void)state;
    assert_int_equal(merak_device_find("h100", &device, NULL), MERAK_OK);
    for (int a = 0; a < 2; a++)
        islands.way[a][1 - a].latency_s =
            device.links.level[merak_links_last(&device.links)].latency_s;
    with = find(&islands, &pin);
    without = find(NULL, &pin);
    assert_true(with->choice[0].step_s == without->choice[0].step_s);
    merak_search_destroy(with);
    merak_search_destroy(without);
    merak_device_fini(&device);
}

static double step_s(double rate, int dp)
{
    const struct merak_islands islands = equal_islands(2, 2, rate);
    const struct merak_choices pin = {.tp = 1,
                                      .pp = 8 / dp,
                                      .dp = dp,
                                      .micro_batch = 1,
                                      .schedule = "1f1b",
                                      .order_tp_pp_dp = false,
                                      .given[MERAK_CHOICE_ORDER] = true};
    struct merak_search_result *result = find(&islands, &pin);
    double seconds = result->choice[0].step_s;

    merak_search_destroy(result);
    return seconds;
}

/* On a slow way a step is what crosses: 32 sequences of 512 x 256 bf16, and
 * their gradients at the same time, whether one rank sends them or two share
 * the way. */
static void a_slow_way_is_shared_and_full_duplex(void **state)
{
    const double rate = 1e6, bytes = 32.0 * 512 * 256 * 2;

    (void)state;
    for (int dp = 1; dp <= 2; dp++) {
        double s = step_s(rate, dp);

        assert_true(s > bytes / rate && s < 2 * bytes / rate);
    }
    assert_near_one("half the rate", step_s(rate / 2, 1) / step_s(rate, 1), 2,
                    0.02);
}

static void stages_and_replicas_stay_whole(void **state)
{
    const struct merak_islands islands = equal_islands(2, 2, 1e8);
    const struct merak_choices pin = {.tp = 1};
    struct merak_search_result *result = find(&islands, &pin);
    const struct merak_plan *p = &result->choice[0].plan;
    int ranks = p->order_tp_pp_dp ? p->pp : p->dp;

    (void)state;
    assert_true(4 % ranks == 0 || ranks % 4 == 0);
    merak_search_destroy(result);
}

/* Four islands whose hops take most of a stage's time: a search finds warm-ups
 * with which they cost little. */
static void warmups_hide_hops(void **state)
{
    struct merak_islands islands = equal_islands(4, 1, 1e12);
    struct request request = {12, 768, 12,  1024, "h100",
                              4,  1,   128, 0,    {.tp = 1, .pp = 4, .dp = 1}};
    struct merak_search_result *found, *eager;

    (void)state;
    request.pin.micro_batch = request.pin.chunks = 1;
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++)
            islands.way[a][b].latency_s = 5e-4;
    }
    found = find_of(&request, &islands);
    assert_memory_equal(found->choice[0].plan.schedule, "eager:", 6);
    request.pin.schedule = "eager";
    eager = find_of(&request, &islands);
    assert_true(found->choice[0].step_s < 0.9 * eager->choice[0].step_s);
    merak_search_destroy(eager);
    merak_search_destroy(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_is_given_once_for_both_ways),
        cmocka_unit_test(files_are_read_as_they_were_written),
        cmocka_unit_test(islands_are_read_without_ways),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(four_islands_have_the_golden_order),
        cmocka_unit_test(a_line_of_islands_is_found),
        cmocka_unit_test(messages_take_their_pairs_way),
        cmocka_unit_test(ways_that_limit_nothing_change_nothing),
        cmocka_unit_test(a_slow_way_is_shared_and_full_duplex),
        cmocka_unit_test(stages_and_replicas_stay_whole),
        cmocka_unit_test(warmups_hide_hops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
