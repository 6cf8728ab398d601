/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_world.c - where models run: an arena, a transport, and the ranks
 * of each node
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"

#include <stdlib.h>

static enum merak_status make_teams(struct calibrate_world *world,
                                    struct merak_error *err)
{
    const struct merak_boot *boot = world->boot;
    size_t n = (size_t)boot->size + (size_t)boot->local_size;
    int *all = calloc(n, sizeof(*all)), *here;
    int at = 0;

    if (all == NULL)
        return merak_fail_nomem(err, n * sizeof(*all));
    here = all + boot->size;
    for (int r = 0; r < boot->size; r++) {
        all[r] = r;
        if (boot->node_of[r] == boot->node_of[boot->rank])
            here[at++] = r;
    }
    world->rank_of = all;
    world->all = (struct merak_team){boot->size, boot->rank, all};
    world->node = (struct merak_team){boot->local_size, boot->local_rank, here};
    return MERAK_OK;
}

enum merak_status calibrate_world_open(struct calibrate_world *world,
                                       size_t arena_bytes,
                                       struct merak_error *err)
{
    struct merak_transport_options opt = {.arena_bytes = arena_bytes};
    /* the same kind of memory as in training */
    bool shared = world->accel != NULL || world->boot->local_size > 1;
    enum merak_status rc =
        merak_arena_create(arena_bytes, shared, &world->arena, err);

    if (rc == MERAK_OK && world->accel != NULL)
        rc = world->accel->ops->alloc(world->accel, arena_bytes, &world->device,
                                      err);
    if (rc == MERAK_OK)
        rc = make_teams(world, err);
    rc = merak_boot_agree(world->boot, rc, err);
    if (rc != MERAK_OK)
        return rc;
    opt.arena = world->arena.base;
    opt.arena_fd = world->arena.fd;
    return merak_transport_open(world->boot->size > 1 ? "ucx" : "self",
                                world->boot, &opt, &world->tr, err);
}

void calibrate_world_close(struct calibrate_world *world)
{
    merak_transport_close(world->tr);
    merak_arena_destroy(&world->arena);
    if (world->device != NULL)
        world->accel->ops->free(world->accel, world->device);
    world->device = NULL;
    free(world->rank_of);
    world->tr = NULL;
    world->rank_of = NULL;
}

enum merak_status calibrate_world_tell(struct calibrate_world *world,
                                       enum merak_status rc,
                                       const struct merak_error *err)
{
    if (rc != MERAK_OK && rc != MERAK_ERR_PEER && world->tr != NULL &&
        world->tr->ops->abort != NULL)
        world->tr->ops->abort(world->tr, err->text);
    return rc;
}
