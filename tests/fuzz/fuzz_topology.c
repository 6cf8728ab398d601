/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_topology.c - Slurm's switch tree and lists of hosts */
#include "config.h"

#include "fuzz/fuzz.h"

#include "placement/hostlist.h"
#include "placement/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TREE, HOSTS };

void fuzz_seeds(void)
{
    static const char tree[] = "# a comment\n"
                               "SwitchName=leaf1 Nodes=n[1-4,07],login\n"
                               "SwitchName=leaf2 Nodes=n[8-12] LinkSpeed=100\n"
                               "SwitchName=root Switches=leaf[1-2]\n";
    static const char block[] = "BlockName=b1 Nodes=n[1-4]\n"
                                "BlockName=b2 Nodes=n[5-8]\nBlockSizes=4\n";
    static const char hosts[] = "n[1-4,07],login,gpu-[001-003]-[1,2],x";

    fuzz_add_kind(TREE, tree, sizeof(tree) - 1);
    fuzz_add_kind(TREE, block, sizeof(block) - 1);
    fuzz_add_kind(HOSTS, hosts, sizeof(hosts) - 1);
}

static void read_tree(const char *text)
{
    struct merak_topology *topology = NULL;
    struct merak_error err = {.text = ""};
    char path[64], node[16];
    enum merak_status rc = merak_topology_parse(text, &topology, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    for (int i = 0; i < 14; i++) {
        snprintf(node, sizeof(node), "n%d", i);
        rc = merak_topology_path(topology, node, path, sizeof(path));
        fuzz_must(memchr(path, '\0', sizeof(path)) != NULL, "a path ends");
        fuzz_must(rc == MERAK_OK || path[0] == '\0',
                  "a node that is nowhere has no path");
    }
    merak_topology_destroy(topology);
}

/* What a list is folded to expands to the same names. */
static void read_hosts(const char *text)
{
    struct merak_hostlist list = {0, NULL}, again = {0, NULL};
    struct merak_error err = {.text = ""};
    char *folded = NULL;
    size_t size = 0;
    FILE *out;
    enum merak_status rc = merak_hostlist_expand(text, 2000, &list, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_must(list.n <= 2000, "no more names than are allowed");
    out = open_memstream(&folded, &size);
    fuzz_must(out != NULL, "there is memory for a list");
    merak_hostlist_fold(out, list.name, list.n);
    fclose(out);
    if (list.n > 0) {
        rc = merak_hostlist_expand(folded, 2000, &again, &err);
        fuzz_must(rc == MERAK_OK && again.n == list.n,
                  "a folded list expands to as many names");
    }
    for (int i = 0; i < list.n; i++)
        fuzz_must(strcmp(list.name[i], again.name[i]) == 0,
                  "a folded list expands to the same names");
    merak_hostlist_fini(&again);
    merak_hostlist_fini(&list);
    free(folded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text;

    if (n == 0)
        return 0;
    text = fuzz_text(data + 1, n - 1);
    if (data[0] % 2 == TREE)
        read_tree(text);
    else
        read_hosts(text);
    free(text);
    return 0;
}
