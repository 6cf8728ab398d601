/* SPDX-License-Identifier: Apache-2.0 */
/* trace_words.c - functions on traces that need no files: names, freeing */
#include "config.h"

#include "io/trace/trace.h"

#include "base/degree_text.h"
#include "partitioner/plan/list_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"load", "kernel", "exchange", "slice",
                                         "send", "recv",   "copy"};
static const char *const queue_names[] = {"compute", "collective", "p2p",
                                          "copy", "replicas"};
static const char *const phase_names[] = {"F", "B", "W"};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

const char *merak_trace_kind_name(uint8_t kind)
{
    return kind < COUNT(kind_names) ? kind_names[kind] : "?";
}

const char *merak_trace_queue_name(uint8_t queue)
{
    return queue < COUNT(queue_names) ? queue_names[queue] : "?";
}

const char *merak_trace_phase_name(uint8_t phase)
{
    return phase < COUNT(phase_names) ? phase_names[phase] : "?";
}

const char *merak_trace_degrees(const struct merak_trace_info *info,
                                char text[MERAK_TRACE_DEGREES])
{
    static const char word[] = "stages ";
    const size_t n = sizeof(word) - 1;
    const int cp = info->cp > 1 ? info->cp : 1;
    const int ep = info->ep > 1 ? info->ep : 1;
    const struct merak_degrees of = {.tp = info->tp / cp / ep,
                                     .cp = cp,
                                     .ep = ep,
                                     .pp = info->stages,
                                     .dp = info->dp};

    if (info->degrees == NULL)
        return merak_degrees_text(&of, ", ", text);
    memcpy(text, word, n);
    merak_stages_text(info->degrees, info->stages, text + n,
                      MERAK_TRACE_DEGREES - n);
    return text;
}

void merak_trace_unload(struct merak_trace_rank *ranks, int n)
{
    if (ranks == NULL)
        return;
    for (int i = 0; i < n; i++) {
        free(ranks[i].names);
        free(ranks[i].planned);
        free(ranks[i].cost);
        free(ranks[i].plan);
        free(ranks[i].degrees);
        free(ranks[i].saves);
        free(ranks[i].records);
    }
    free(ranks);
}
