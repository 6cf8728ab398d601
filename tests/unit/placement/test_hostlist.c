/* SPDX-License-Identifier: Apache-2.0 */
/* test_hostlist.c - short forms of many names, and the switch tree's text */
#include "config.h"

#include "unit/near.h"

#include "placement/hostlist.h"
#include "placement/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *join(const struct merak_hostlist *list)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    for (int i = 0; i < list->n; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", list->name[i]);
    fclose(out);
    return text;
}

static const struct {
    const char *text, *names;
} good_lists[] = {
    {"n1", "n1"},
    {"n[1-4]", "n1 n2 n3 n4"},
    {"n[1-2,7],login", "n1 n2 n7 login"},
    {"n[08-11]", "n08 n09 n10 n11"},
    {"n[9-11]", "n9 n10 n11"},
    {"r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"},
    {"r[0,2]-x", "r0-x r2-x"},
    {"n[3,1]", "n3 n1"},
};

static void lists_expand_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good_lists) / sizeof(*good_lists); i++) {
        struct merak_hostlist list;
        char *names;

        assert_int_equal(
            merak_hostlist_expand(good_lists[i].text, 100, &list, NULL), 0);
        names = join(&list);
        assert_string_equal(names, good_lists[i].names);
        free(names);
        merak_hostlist_fini(&list);
    }
}

static const char *const bad_lists[] = {
    "",
    ",",
    "n1,",
    "n[",
    "n[1",
    "n]",
    "n[]",
    "n[1-]",
    "n[-1]",
    "n[2-1]",
    "n[1,,2]",
    "n[a]",
    "n[1-2",
    "n[1 -2]",
    "n[1[2]]",
    "n[1-9999999999]",
    "n[0-200]",
    "a[1]b[1]c[1]d[1]e[1]",
    "n[0-999999999]",
    "n[1-2]]",
};

static void malformed_lists_are_refused(void **state)
{
    char longest[MERAK_NAME_MAX + 8];

    (void)state;
    for (size_t i = 0; i < sizeof(bad_lists) / sizeof(*bad_lists); i++) {
        struct merak_hostlist list = {.n = 42};
        struct merak_error err = {.text = ""};

        if (merak_hostlist_expand(bad_lists[i], 100, &list, &err) !=
            MERAK_ERR_FORMAT)
            fail_msg("\"%s\" was not refused", bad_lists[i]);
        assert_int_equal(list.n, 42);
        assert_non_null(strstr(err.text, "host list: "));
    }
    memset(longest, 'x', sizeof(longest));
    longest[MERAK_NAME_MAX + 1] = '\0';
    assert_int_equal(merak_hostlist_expand(longest, 9, NULL, NULL),
                     MERAK_ERR_FORMAT);
}

/* names, and the text they fold to */
static const struct {
    const char *names, *text;
} folds[] = {
    {"n1 n2 n3", "n[1-3]"},
    {"n1", "n1"},
    {"n1 n3 n4", "n[1,3-4]"},
    {"n9 n10 n11", "n[9-11]"},
    {"n09 n10", "n[09-10]"},
    {"n1 m1", "n1,m1"},
    {"n2 n1", "n[2,1]"},
    {"login n1 n2", "login,n[1-2]"},
    {"n1 n01", "n[1,01]"},
    {"n01 n2", "n[01,2]"},
    {"n099 n100 n1", "n[099-100,1]"},
    {"a1b2 a1b3", "a1b[2-3]"},
    {"n12345678901 n1", "n12345678901,n1"},
};

static void folding_is_undone_by_expanding(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(folds) / sizeof(*folds); i++) {
        char *text = NULL, *names = strdup(folds[i].names), *again;
        char *name[8], *rest = names;
        struct merak_hostlist list;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        int n = 0;

        for (char *p = strtok_r(names, " ", &rest); p != NULL;
             p = strtok_r(NULL, " ", &rest))
            name[n++] = p;
        merak_hostlist_fold(out, name, n);
        fclose(out);
        assert_string_equal(text, folds[i].text);
        assert_int_equal(merak_hostlist_expand(text, 8, &list, NULL), 0);
        again = join(&list);
        assert_string_equal(again, folds[i].names);
        merak_hostlist_fini(&list);
        free(again);
        free(names);
        free(text);
    }
}

static void names_compare_as_people_count(void **state)
{
    const char *const ordered[] = {"a",   "a2", "a10", "b",    "n1",  "n01",
                                   "n1x", "n2", "n9",  "n10a", "n10b"};
    const int n = sizeof(ordered) / sizeof(*ordered);

    (void)state;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            int order = merak_name_compare(ordered[i], ordered[j]);
            int want = (i > j) - (i < j);

            /* n1 and n01 are equal numbers: only that they differ counts */
            if ((i == 4 && j == 5) || (i == 5 && j == 4))
                assert_int_not_equal(order, 0);
            else
                assert_int_equal((order > 0) - (order < 0), want);
        }
    }
}

static const char conf[] = "# a comment with SwitchName=no Nodes=n1\n"
                           "SwitchName=leaf1 Nodes=n[1-2] # n9\n"
                           "switchname=leaf2\tnodes=n[3-4] LinkSpeed=1\n"
                           "\n"
                           "SwitchName=core Switches=spine1\n"
                           "SwitchName=spine1 Switches=leaf[1-2],gone";
/* as scontrol prints the same tree */
static const char shown[] =
    "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2] \n"
    "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4] \n"
    "SwitchName=spine1 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2] \n"
    "SwitchName=core Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=spine1 \n";
static const char blocks[] = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] "
                             "BlockSize=2\nBlockName=b2 Nodes=n[3-4]\n"
                             "BlockSizes=2,4\n";

static const struct {
    const char *text, *node, *path;
} places[] = {
    {conf, "n1", "core.spine1.leaf1"},
    {conf, "n4", "core.spine1.leaf2"},
    {conf, "n9", ""},
    {conf, "core", ""},
    {shown, "n2", "core.spine1.leaf1"},
    {shown, "n3", "core.spine1.leaf2"},
    {blocks, "n2", "b1"},
    {blocks, "n4", "b2"},
    {"", "n1", ""},
    {"No topology information available\n", "n1", ""},
};

static void nodes_are_found_in_the_tree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct merak_topology *t;
        char path[64];

        assert_int_equal(merak_topology_parse(places[i].text, &t, NULL), 0);
        assert_int_equal(
            merak_topology_path(t, places[i].node, path, sizeof(path)),
            places[i].path[0] != '\0' ? MERAK_OK : MERAK_ERR_NOT_FOUND);
        assert_string_equal(path, places[i].path);
        merak_topology_destroy(t);
    }
}

static const char *const bad_trees[] = {
    "SwitchName=a Switches=b\nSwitchName=b Switches=a",
    "SwitchName=a Nodes=n[1",
    "SwitchName=a Switches=]",
    "SwitchName=s0 Nodes=n1\nSwitchName=s1 Switches=s0\n"
    "SwitchName=s2 Switches=s1\nSwitchName=s3 Switches=s2\n"
    "SwitchName=s4 Switches=s3\nSwitchName=s5 Switches=s4\n"
    "SwitchName=s6 Switches=s5\nSwitchName=s7 Switches=s6\n"
    "SwitchName=s8 Switches=s7",
};

static void impossible_trees_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_trees) / sizeof(*bad_trees); i++) {
        struct merak_topology *t;

        if (merak_topology_parse(bad_trees[i], &t, NULL) != MERAK_ERR_FORMAT)
            fail_msg("\"%s\" was not refused", bad_trees[i]);
    }
}

static void a_path_that_does_not_fit_is_not_cut(void **state)
{
    struct merak_topology *t;
    char path[8];

    (void)state;
    assert_int_equal(merak_topology_parse(conf, &t, NULL), 0);
    assert_int_equal(merak_topology_path(t, "n1", path, sizeof(path)),
                     MERAK_ERR_NOT_FOUND);
    assert_string_equal(path, "");
    merak_topology_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_expand_in_order),
        cmocka_unit_test(malformed_lists_are_refused),
        cmocka_unit_test(folding_is_undone_by_expanding),
        cmocka_unit_test(names_compare_as_people_count),
        cmocka_unit_test(nodes_are_found_in_the_tree),
        cmocka_unit_test(impossible_trees_are_refused),
        cmocka_unit_test(a_path_that_does_not_fit_is_not_cut),
    };

    return cmocka_run_group_tests_name("hostlist", tests, NULL, NULL);
}
