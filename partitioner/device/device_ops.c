/* SPDX-License-Identifier: Apache-2.0 */
/* device_ops.c - names of kernels in device files
 *
 * A program may register its own ops, and a device calibrated by a run of it is
 * also used by other programs.  So a name that is not an op's is not an error;
 * but as it may be misspelled, and its times then unused, one line is logged.
 */
#include "config.h"

#include "partitioner/device/device_file.h"

#include "base/log.h"
#include "base/nearest.h"
#include "partitioner/graph/op_tables.h"

#include <stdio.h>
#include <string.h>

struct unknown {
    const char *first; /* name, or NULL */
    int n;             /* entries */
};

static void look(const struct merak_rates *rates, struct unknown *unknown)
{
    for (int i = 0; rates != NULL && i < rates->n; i++) {
        const char *op = rates->op[i].op;

        if (strcmp(op, MERAK_RATE_COPY) == 0 || merak_op_find(op) != NULL)
            continue;
        if (unknown->first == NULL)
            unknown->first = op;
        unknown->n += strcmp(unknown->first, op) != 0;
    }
}

void merak_device_check_ops(const char *path, const struct merak_device *device)
{
    struct unknown unknown = {0};
    char meant[MERAK_NEAREST_TEXT], more[32] = "";
    struct merak_nearest nearest;

    for (int d = 0; d < MERAK_DTYPE_COUNT; d++) {
        look(device->rates[d], &unknown);
        look(device->tp_rates[d], &unknown);
    }
    if (unknown.first == NULL)
        return;
    merak_nearest_init(&nearest, unknown.first);
    merak_nearest_offer(&nearest, MERAK_RATE_COPY);
    for (size_t i = 0; merak_op_at(i) != NULL; i++)
        merak_nearest_offer(&nearest, merak_op_at(i)->name);
    if (unknown.n > 0)
        snprintf(more, sizeof(more), ", and %d more", unknown.n);
    merak_warn("device",
               "%s: no op is called \"%s\"%s: its times are not used%s", path,
               unknown.first, more,
               merak_nearest_word_text(&nearest, meant, sizeof(meant)));
}
