/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_world.c - where models run: an arena, a transport, a link between
 * accelerators, and the ranks of each node
 *
 * What moves data is chosen as in training (runtime/train/link_choice.c), so
 * that the times are those of a run with the same tasks.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/error.h"

#include <stdio.h>
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

/* --- what moves data ------------------------------------------------------ */

/* Go on through host memory, as all tasks do, unless --transport nccl insists
 * or a rank may be gone; rc is the reason's. */
static enum merak_status do_without(struct calibrate_world *world,
                                    enum merak_status rc,
                                    const struct merak_error *why,
                                    struct merak_error *err)
{
    if (world->transport == CALIBRATE_NCCL || rc == MERAK_ERR_LOST ||
        rc == MERAK_ERR_TIMEOUT) {
        *err = *why;
        return rc;
    }
    world->link_ops = NULL;
    printf("  links by ucx, through host memory, although there are GPUs: %s\n",
           why->text);
    return MERAK_OK;
}

enum merak_status calibrate_world_choose(struct calibrate_world *world,
                                         struct merak_error *err)
{
    bool insists = world->transport == CALIBRATE_NCCL;
    struct merak_error why = {.status = MERAK_OK};
    struct merak_link_tasks tasks;
    enum merak_status rc = MERAK_OK;

    if (insists)
        rc = merak_link_check_backend(world->backend, err);
    if (rc != MERAK_OK ||
        !merak_link_is_wanted(world->backend, world->boot->size,
                              world->transport == CALIBRATE_AUTO, insists))
        return rc;
    tasks = (struct merak_link_tasks){world->boot, world->accel->ops,
                                      &world->card, NULL};
    rc = merak_link_look("nccl", &tasks, &world->link_ops, &why);
    return rc == MERAK_OK ? rc : do_without(world, rc, &why, err);
}

const char *calibrate_world_mover(const struct calibrate_world *world)
{
    return world->link != NULL ? world->link_ops->name : world->tr->ops->name;
}

static enum merak_status open_transport(struct calibrate_world *world,
                                        struct merak_error *err)
{
    const struct merak_transport_options opt = {
        .arena = world->arena.base,
        .arena_bytes = world->arena.bytes,
        .arena_fd = world->arena.fd,
    };

    return merak_transport_open(world->boot->size > 1 ? "ucx" : "self",
                                world->boot, &opt, &world->tr, err);
}

/* A program that needs what is measured: an exchange, and messages around a
 * ring. */
static enum merak_status join_link(struct calibrate_world *world,
                                   const struct merak_team *ring,
                                   struct merak_error *err)
{
    const struct merak_team *team = ring != NULL ? ring : &world->node;
    struct merak_group group = {
        .n = team->n, .me = team->me, .rank = (int *)(uintptr_t)team->rank};
    struct merak_instr instr[3] = {{.kind = MERAK_INSTR_EXCHANGE},
                                   {.kind = MERAK_INSTR_SEND,
                                    .phase = MERAK_PHASE_F,
                                    .peer = calibrate_neighbour(team, 1)},
                                   {.kind = MERAK_INSTR_RECV,
                                    .phase = MERAK_PHASE_F,
                                    .peer = calibrate_neighbour(team, -1)}};
    const struct merak_program program = {.rank = world->boot->rank,
                                          .instr = instr,
                                          .n_instrs = ring != NULL ? 3 : 1,
                                          .group = &group,
                                          .n_groups = 1};
    const struct merak_program *const programs[] = {&program};
    const struct merak_link_options opt = {
        .ops = world->link_ops,
        .boot = world->boot,
        .tr = world->tr,
        .accel = world->accel,
        .transport_rank = world->all.rank,
        .program = programs,
        .n_programs = 1,
        .trial = world->device,
        .trial_bytes = world->arena.bytes,
    };

    return merak_link_open(&opt, &world->link, err);
}

/* If that fails, the transport has told the ranks that waited to give up: open
 * it anew. */
static enum merak_status open_link(struct calibrate_world *world,
                                   const struct merak_team *ring,
                                   struct merak_error *err)
{
    struct merak_error why = {.status = MERAK_OK};
    enum merak_status rc = join_link(world, ring, &why);
    char text[256];

    if (rc == MERAK_OK) {
        merak_link_describe(world->link, text, sizeof(text));
        printf("  links by %s: %s\n", world->link_ops->name, text);
        return rc;
    }
    rc = do_without(world, rc, &why, err);
    if (rc == MERAK_OK)
        rc = merak_transport_abandon(&world->tr, world->boot, err);
    return rc == MERAK_OK ? open_transport(world, err) : rc;
}

/* --- open, close ---------------------------------------------------------- */

enum merak_status calibrate_world_open(struct calibrate_world *world,
                                       size_t arena_bytes,
                                       const struct merak_team *ring,
                                       struct merak_error *err)
{
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
    rc = open_transport(world, err);
    if (world->link_ops == NULL)
        return rc;
    rc = merak_boot_agree(world->boot, rc, err);
    return rc == MERAK_OK ? open_link(world, ring, err) : rc;
}

void calibrate_world_close(struct calibrate_world *world)
{
    merak_link_close(world->link);
    world->link = NULL;
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
    if (rc != MERAK_OK && world->link != NULL)
        merak_link_abort(world->link);
    return rc;
}
