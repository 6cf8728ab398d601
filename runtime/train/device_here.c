/* SPDX-License-Identifier: Apache-2.0 */
/* device_here.c - the device of this task's node, of several kinds
 *
 * --device 2:fast.json,1:slow.json: the first two nodes are of one kind and the
 * third of another, in the order of their tasks.
 */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

static enum merak_status bad_kinds(const char *text, struct merak_error *err)
{
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--device: expected one, or numbers of nodes and their "
                      "devices, as in 2:fast.json,1:slow.json; got \"%.60s\"",
                      text);
}

bool merak_device_next_kind(const char **at_p, long *nodes_p,
                            const char **word_p, size_t *n_p)
{
    const char *at = *at_p;
    char *end;

    if (*at < '0' || *at > '9')
        return false;
    *nodes_p = strtol(at, &end, 10);
    if (*end != ':' || *nodes_p < 1 || *nodes_p > 65535)
        return false;
    *word_p = end + 1;
    *n_p = strcspn(*word_p, ",");
    *at_p = *word_p + *n_p;
    if (**at_p == ',' && *++*at_p == '\0')
        return false;
    return *n_p > 0;
}

bool merak_device_has_kinds(const char *word)
{
    const char *colon = word != NULL ? strchr(word, ':') : NULL;

    return colon != NULL && colon > word &&
           strspn(word, "0123456789") == (size_t)(colon - word);
}

enum merak_status merak_device_here(struct merak_trainer *t,
                                    struct merak_error *err)
{
    const char *given = t->opt.device, *at = given, *word;
    int node = t->boot->node_of[t->boot->rank];
    long nodes, before = 0;
    size_t n;

    if (!merak_device_has_kinds(given))
        return MERAK_OK;
    while (*at != '\0') {
        if (!merak_device_next_kind(&at, &nodes, &word, &n))
            return bad_kinds(given, err);
        if (node >= before && node < before + nodes) {
            free(t->opt.own_device);
            t->opt.own_device = strndup(word, n);
            if (t->opt.own_device == NULL)
                return merak_fail_nomem(err, n);
        }
        before += nodes;
    }
    if (before != t->boot->n_nodes)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--device %.60s is for %ld node%s, and this run has "
                          "%d; expected as many",
                          given, before, merak_plural(before),
                          t->boot->n_nodes);
    t->opt.device = t->opt.own_device;
    return MERAK_OK;
}
