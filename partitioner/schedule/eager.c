/* SPDX-License-Identifier: Apache-2.0 */
/* eager.c - 1F1B with enough forwards in flight to overlap the transfers
 *
 * Stage s has up to 2(p - s) - 1 micro-batches in flight, two more than the
 * next one, so that both of a hop's transfers have a whole slot to complete: a
 * hop of up to half a forward-backward pair costs nothing in the steady
 * state, where 1F1B pays almost twice the hop for each micro-batch.
 * Source: Zhuang et al. 2023 (arXiv:2211.05322), sec. 4, "eager-1F1B".
 *
 * eager:W has W in flight on the first stage and one on the last, and what is
 * between on a line, rounded up: eager:p is 1F1B, eager:2p-1 is eager.  Hops
 * that take longer need more: for a period P of stages that take t, each with a
 * hop of c before it, a stage needs (2c + t)/P more than the next one.
 * eager:W-W-.. has a number for each stage, for hops that differ.
 */
#include "config.h"

#include "partitioner/schedule/kinds.h"

#include "base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 65535 };

/* Read a number and move *at_p to what follows it; 0: there is none. */
static int next_warmup(const char **at_p)
{
    char *end;
    long n = isdigit((unsigned char)**at_p) ? strtol(*at_p, &end, 10) : 0;

    if (n < 1 || n > MOST || (*end != '\0' && *end != '-'))
        return 0;
    *at_p = end;
    return (int)n;
}

const char *merak_schedule_warmups(const char *name)
{
    const char *at = name + 6;

    if (strncmp(name, "eager:", 6) != 0)
        return NULL;
    for (;;) {
        if (next_warmup(&at) == 0)
            return NULL;
        if (*at == '\0')
            return name + 6;
        at++;
    }
}

/* The number for a stage, from a text that is well formed; 0: it ends before
 * that. */
static int listed(const char *text, int stage)
{
    int n = next_warmup(&text);

    for (int s = 0; s < stage; s++) {
        if (*text == '\0')
            return 0;
        text++;
        n = next_warmup(&text);
    }
    return n;
}

static int warmup_of(const struct merak_schedule_args *args)
{
    int after = args->stages - 1 - args->stage, most;

    if (args->warmups == NULL)
        return 2 * after + 1;
    if (strchr(args->warmups, '-') != NULL)
        return listed(args->warmups, args->stage);
    most = listed(args->warmups, 0);
    return args->stages == 1 ? most
                             : 1 + ((most - 1) * after + args->stages - 2) /
                                       (args->stages - 1);
}

/* Numbers that increase along the pipeline would have stages wait for each
 * other. */
static enum merak_status eager_check(const struct merak_schedule_args *args,
                                     struct merak_error *err)
{
    const char *text = args->warmups;
    int n = 1;

    if (text == NULL || strchr(text, '-') == NULL)
        return MERAK_OK;
    for (const char *dash = strchr(text, '-'); dash != NULL;
         dash = strchr(dash + 1, '-'))
        n++;
    if (n != args->stages) {
        merak_fail(err, MERAK_ERR_CONFIG,
                   "%d numbers of micro-batches in flight, %.40s, for %d "
                   "stages",
                   n, text, args->stages);
        return merak_error_fix(err, MERAK_ERR_CONFIG,
                               ": give one for each stage, or one alone");
    }
    for (int s = 1; s < n; s++) {
        if (listed(text, s) <= listed(text, s - 1))
            continue;
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.40s: stage %d would have more micro-batches in "
                          "flight than stage %d, which feeds it: give %d or "
                          "fewer",
                          text, s, s - 1, listed(text, s - 1));
    }
    return MERAK_OK;
}

static void eager_fill(const struct merak_schedule_args *args,
                       struct merak_action *actions)
{
    merak_schedule_warmup_fill(args, warmup_of(args), actions);
}

/* 1f1b that overlaps transfers; stage s holds 2(p - s) - 1 */
const struct merak_schedule merak_schedule_eager = {
    .name = "eager",
    .max_chunks = 1,
    .count = merak_schedule_pairs,
    .fill = eager_fill,
    .check = eager_check,
};
