/* SPDX-License-Identifier: Apache-2.0 */
/* link_look.c - can these tasks use a link? */
#include "config.h"

#include "runtime/link/link.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

bool merak_link_is_wanted(const struct merak_backend *backend, int tasks,
                          bool by_default, bool insists)
{
    if (tasks == 1 || backend->accel == NULL)
        return false;
    return insists || (by_default && merak_backend_is_direct(backend));
}

enum merak_status merak_link_check_backend(const struct merak_backend *backend,
                                           struct merak_error *err)
{
    if (backend->accel != NULL)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--transport nccl moves data between GPUs, and "
                      "backend %s has none: use --backend cuda, or "
                      "--transport ucx",
                      backend->name);
}

/* --- one task a GPU ---------------------------------------------------------
 */

struct place {
    int node;
    struct merak_accel_device card;
};

static bool is_shared(const struct place *a, const struct place *b)
{
    return a->node == b->node && strcmp(a->card.bus, b->card.bus) == 0;
}

static enum merak_status refuse_sharing(const struct merak_link_tasks *tasks,
                                        const struct place *place, int a, int b,
                                        struct merak_error *err)
{
    const struct merak_accel_device *card = &place[a].card;
    const int *name = tasks->rank_name;
    bool known = card->uuid[0] != '\0';

    return merak_fail(err, MERAK_ERR_CONFIG,
                      "ranks %d and %d share %.32s at %s%s%.40s on %.40s, and "
                      "NCCL supports one task per GPU: start no more tasks "
                      "than there are GPUs, or use --transport ucx",
                      name != NULL ? name[a] : a, name != NULL ? name[b] : b,
                      card->name, card->bus, known ? ", " : "", card->uuid,
                      tasks->boot->hosts[place[a].node]);
}

static enum merak_status check_sharing(const struct merak_link_tasks *tasks,
                                       struct merak_error *err)
{
    struct merak_boot *boot = tasks->boot;
    const struct place mine = {boot->node_of[boot->rank], *tasks->card};
    size_t size = (size_t)boot->size;
    struct place *place = calloc(size, sizeof(*place));
    enum merak_status rc = MERAK_OK;

    if (place == NULL)
        rc = merak_fail_nomem(err, size * sizeof(*place));
    rc = merak_boot_allgather(boot, rc, &mine, sizeof(mine), place, err);
    for (int b = 1; b < boot->size && rc == MERAK_OK; b++) {
        for (int a = 0; a < b && rc == MERAK_OK; a++) {
            if (is_shared(&place[a], &place[b]))
                rc = refuse_sharing(tasks, place, a, b, err);
        }
    }
    free(place);
    return rc;
}

enum merak_status merak_link_look(const char *name,
                                  const struct merak_link_tasks *tasks,
                                  const struct merak_link_ops **ops_p,
                                  struct merak_error *err)
{
    struct merak_link_library *library = NULL;
    const struct merak_link_ops *ops = NULL;
    char about[256];
    enum merak_status rc = check_sharing(tasks, err);

    if (rc == MERAK_OK)
        rc = merak_link_load(name, &ops, err);
    if (rc == MERAK_OK)
        rc = ops->open(tasks->accel->streams, &library, about, err);
    if (rc == MERAK_OK)
        ops->close(library);
    rc = merak_boot_agree(tasks->boot, rc, err);
    if (rc == MERAK_OK)
        *ops_p = ops;
    return rc;
}
