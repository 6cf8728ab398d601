/* SPDX-License-Identifier: Apache-2.0 */
/* plan_head.c - read the degrees, bytes sent and islands of a plan file, in
 * srun
 *
 * io/plan_file.c writes these keys first and in this order, so that they can
 * be read without a JSON library: the plugin only links libc.  The program
 * checks the rest of the file.
 */
#include "config.h"

#include "spank_plugin/plugin.h"

#include "base/error.h"
#include "base/open.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 4096, FORMAT = 2, FORMAT_MESHES = 3 };

/* Ranks of unlike stages are the tasks in order, as those of replicas are; the
 * program checks how many there have to be. */
static void take_unlike(struct plan_head *head)
{
    head->tp = head->pp = 1;
    head->dp = 0;
}

enum merak_status plan_head_read(const char *path, struct plan_head *head,
                                 struct merak_error *err)
{
    char text[HEAD_BYTES], order[16] = "";
    struct plan_head got = {0};
    const char *why, *rest;
    FILE *in;
    size_t n;
    int version = 0, found, sent = 0, ranks = 0, begin = 0, end = 0, after = 0;
    int islands = 0;

    why = merak_fopen_regular(path, &in);
    if (why != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG, "--merak-plan: %s: %s", path,
                          why);
    n = fread(text, 1, sizeof(text) - 1, in);
    fclose(in);
    text[n] = '\0';
    found = sscanf(text, " { \"merak_plan\" : %5d%n", &version, &begin) == 1;
    rest = text + begin;
    /* not in plans of earlier releases */
    if (sscanf(rest,
               " , \"sent\" : { \"pp_bytes\" : %18" SCNu64
               " , \"dp_bytes\" : %18" SCNu64 " }%n",
               &got.pp_bytes, &got.dp_bytes, &sent) == 2)
        rest += sent;
    /* only of named ones */
    if (sscanf(rest, " , \"islands\" : \"%2047[]A-Za-z0-9._,;[-]\"%n",
               got.islands, &islands) == 1)
        rest += islands;
    /* only of unlike stages */
    if (sscanf(rest, " , \"ranks\" : \"%511[0-9x.-]\"%n", got.ranks, &ranks) ==
        1)
        rest += ranks;
    if (sscanf(rest,
               " , \"plan\" : { \"tp\" : %5d , \"pp\" : %5d , \"dp\" : %5d , "
               "\"order\" : \"%15[a-z-]\"%n",
               &got.tp, &got.pp, &got.dp, order, &end) == 4)
        found += 4;
    got.cp = got.ep = 1; /* only in plans that have more */
    if (end > 0 &&
        sscanf(rest + end, " , \"cp\" : %5d%n", &got.cp, &after) == 1)
        end += after;
    if (end > 0)
        (void)!sscanf(rest + end, " , \"ep\" : %5d", &got.ep);
    if (found != 5 || (version != FORMAT && version != FORMAT_MESHES) ||
        got.tp < 1 || got.pp < 1 || got.dp < 1 || got.cp < 1 || got.ep < 1 ||
        merak_order_parse(order, &got.order) != MERAK_OK ||
        got.order == MERAK_ORDER_AUTO)
        return merak_fail(
            err, MERAK_ERR_CONFIG,
            "--merak-plan: %s is not a plan that `merak plan --json` saved%s",
            path,
            found >= 1 && version != FORMAT && version != FORMAT_MESHES
                ? ": it has another version"
                : "");
    if (version == FORMAT_MESHES)
        take_unlike(&got);
    *head = got;
    return MERAK_OK;
}
