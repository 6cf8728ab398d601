/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_world.c - ranks that save a small model, as processes, for tests */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"

#include "base/rng.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_RANKS 16

/* Odd sizes, so that cuts are uneven; three parts each, as a trainer has. */
#define TENSOR(name, split, ...)                      \
    {"param/" name, {__VA_ARGS__}, split, false},     \
        {"adam_m/" name, {__VA_ARGS__}, split, true}, \
    {                                                 \
        "adam_v/" name, {__VA_ARGS__}, split, true    \
    }
const struct world_tensor world_tensors[] = {
    TENSOR("wte", 0, 2, {37, 12}),
    TENSOR("h.0.attn.qkv.w", 1, 4, {3, 4, 5, 12}),
    TENSOR("h.0.ln.g", -1, 1, {12}),
    TENSOR("h.1.mlp.up.w", 0, 2, {23, 12}),
    TENSOR("h.1.mlp.down.w", 1, 2, {12, 23}),
    TENSOR("h.1.gate", -1, 0, {0}),
    TENSOR("big", 0, 2, {301, 127}),
};
const int world_n_tensors = sizeof(world_tensors) / sizeof(*world_tensors);

float world_value(const char *tensor, size_t index, uint64_t step)
{
    uint64_t bits = merak_rng_mix(merak_rng_key(step, tensor), index);

    return (float)(int32_t)(bits >> 32) * 0x1p-20f;
}

struct merak_ckpt_state world_state(const struct world_layout *layout,
                                    uint64_t step)
{
    struct merak_ckpt_state state = {.step = step,
                                     .consumed_samples = step * 8,
                                     .consumed_tokens = step * 512,
                                     .seed = UINT64_MAX - 5,
                                     .model_id = "6d6f64656c",
                                     .data_id = "",
                                     .dtype = "f32",
                                     .tp = layout->tp,
                                     .pp = layout->pp,
                                     .dp = layout->dp};
    return state;
}

size_t world_index(const struct merak_box *box, size_t i)
{
    size_t index = 0, stride = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        index += (box->lo[d] + i % box->len[d]) * stride;
        i /= box->len[d];
        stride *= box->full[d];
    }
    return index;
}

static void fill(struct merak_ckpt_piece *piece, uint64_t step)
{
    size_t n = piece->flat_hi - piece->flat_lo;

    piece->data = malloc((n + 1) * sizeof(float));
    assert_non_null(piece->data);
    for (size_t i = 0; i < n; i++)
        piece->data[i] =
            step == UINT64_MAX
                ? NAN
                : world_value(piece->name,
                              world_index(&piece->box, piece->flat_lo + i),
                              step);
}

int world_pieces(const struct world_layout *layout, int rank, bool all,
                 uint64_t step, struct merak_ckpt_piece **pieces_p)
{
    const struct merak_mesh mesh = {
        .n_axes = 2,
        .axis = {{.name = "tp", .size = layout->tp},
                 {.name = "dp", .size = layout->dp}}};
    const int stage = rank / (layout->tp * layout->dp);
    const int coord[2] = {rank % layout->tp, rank / layout->tp % layout->dp};
    struct merak_ckpt_piece *pieces =
        calloc((size_t)world_n_tensors, sizeof(*pieces));
    int n = 0;

    assert_non_null(pieces);
    for (int i = 0; i < world_n_tensors; i++) {
        const struct world_tensor *t = &world_tensors[i];
        bool flat = t->zero && layout->zero;
        struct merak_layout at = {{{.kind = MERAK_REPLICATED, .dim = -1},
                                   {.kind = MERAK_REPLICATED, .dim = -1}}};

        if (i / 3 % layout->pp != stage)
            continue;
        if (t->split >= 0)
            at.at[0] = (struct merak_place){.kind = MERAK_SPLIT,
                                            .dim = (int8_t)t->split};
        if (flat)
            at.at[1] = (struct merak_place){.kind = MERAK_FLAT, .dim = -1};
        if (!all && ((t->split < 0 && coord[0] > 0) || (!flat && coord[1] > 0)))
            continue; /* another rank writes this copy */
        pieces[n].name = t->name;
        pieces[n].shape = t->shape;
        merak_layout_box(&mesh, &at, &t->shape, coord, &pieces[n].box);
        merak_layout_flat(&mesh, &at, &t->shape, coord, &pieces[n].flat_lo,
                          &pieces[n].flat_hi);
        fill(&pieces[n++], step);
    }
    *pieces_p = pieces;
    return n;
}

void world_free(struct merak_ckpt_piece *pieces, int n)
{
    for (int i = 0; i < n; i++)
        free(pieces[i].data);
    free(pieces);
}

/* --- agreement between processes, through shared memory ------------------- */

struct shared {
    pthread_barrier_t barrier;
    char told[1 << 16];
    struct merak_error error[MAX_RANKS];
    struct merak_error result[MAX_RANKS];
};

struct member {
    struct shared *shared;
    int rank, size;
};

static enum merak_status shared_agree(void *arg, enum merak_status mine,
                                      struct merak_error *err)
{
    const struct member *me = arg;
    struct shared *shared = me->shared;
    enum merak_status first = MERAK_OK;

    shared->error[me->rank].status = mine;
    if (mine != MERAK_OK)
        shared->error[me->rank] = *err;
    pthread_barrier_wait(&shared->barrier);
    for (int i = 0; i < me->size && first == MERAK_OK; i++) {
        first = shared->error[i].status;
        if (first != MERAK_OK)
            *err = shared->error[i];
    }
    pthread_barrier_wait(&shared->barrier);
    return first;
}

static struct merak_ckpt_keep keep_newest(int n)
{
    return (struct merak_ckpt_keep){.newest = n};
}

bool world_async, world_one_node;
void (*world_creating)(int rank, bool begun);

/* All ranks are of one node. */
static enum merak_status shared_broadcast(void *arg, void *data, size_t bytes,
                                          int root, struct merak_error *err)
{
    const struct member *me = arg;
    struct shared *shared = me->shared;

    (void)err;
    assert_true(bytes <= sizeof(shared->told));
    if (me->rank == root)
        memcpy(shared->told, data, bytes);
    pthread_barrier_wait(&shared->barrier);
    memcpy(data, shared->told, bytes);
    pthread_barrier_wait(&shared->barrier);
    return MERAK_OK;
}

/* Overwrite what a save has begun with: it may have no use for it. */
static void spoil(struct merak_ckpt_piece *pieces, int n)
{
    for (int i = 0; i < n; i++)
        memset(pieces[i].data, 0xff,
               (pieces[i].flat_hi - pieces[i].flat_lo) * sizeof(float));
}

static enum merak_status
save_async(const char *dir, const struct merak_ckpt_state *state,
           struct merak_ckpt_piece *pieces, int n, int keep,
           const struct merak_ckpt_comm *comm, struct merak_error *err)
{
    struct merak_ckpt_async *async;
    struct merak_ckpt_node node = {.broadcast = shared_broadcast};
    enum merak_status rc;

    if (world_one_node && comm != NULL) {
        node.rank = comm->rank;
        node.size = comm->size;
        node.arg = comm->arg;
    }
    if (world_creating != NULL)
        world_creating(node.rank, true);
    rc = merak_ckpt_async_create(pieces, n, NULL, NULL,
                                 node.size > 0 ? &node : NULL, &async, err);
    if (world_creating != NULL)
        world_creating(node.rank, false);
    if (rc != MERAK_OK)
        return rc;
    rc =
        merak_ckpt_async_start(async, dir, state, keep_newest(keep), comm, err);
    assert_int_equal(merak_ckpt_async_is_active(async), rc == MERAK_OK);
    spoil(pieces, n);
    if (rc == MERAK_OK)
        rc = merak_ckpt_async_wait(async, err);
    assert_false(merak_ckpt_async_is_active(async));
    merak_ckpt_async_destroy(async);
    return rc;
}

static enum merak_status save(const char *dir,
                              const struct merak_ckpt_state *state,
                              struct merak_ckpt_piece *pieces, int n, int keep,
                              const struct merak_ckpt_comm *comm,
                              struct merak_error *err)
{
    return world_async ? save_async(dir, state, pieces, n, keep, comm, err)
                       : merak_ckpt_save(dir, state, pieces, n,
                                         keep_newest(keep), comm, err);
}

static void run_rank(const char *dir, const struct world_layout *layout,
                     uint64_t step, int keep, struct member *me)
{
    struct merak_ckpt_comm comm = {
        .rank = me->rank, .size = me->size, .arg = me, .agree = shared_agree};
    struct merak_ckpt_state state = world_state(layout, step);
    struct merak_ckpt_piece *pieces;
    struct merak_error err = {.status = MERAK_OK};
    int n = world_pieces(layout, me->rank, false, step, &pieces);

    if (world_one_node) {
        comm.file = me->rank == 0 ? 0 : -1;
        comm.files = 1;
    }
    err.status = save(dir, &state, pieces, n, keep, &comm, &err);
    me->shared->result[me->rank] = err;
    _exit(0);
}

static struct shared *make_shared(int size)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;

    assert_ptr_not_equal(shared, MAP_FAILED);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, (unsigned)size);
    pthread_barrierattr_destroy(&attr);
    return shared;
}

enum merak_status world_save(const char *dir, const struct world_layout *layout,
                             uint64_t step, int keep, struct merak_error *err)
{
    int size = layout->tp * layout->pp * layout->dp;
    struct shared *shared = make_shared(size);
    enum merak_status rc;
    int status;

    for (int rank = 0; rank < size; rank++) {
        struct member me = {shared, rank, size};
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
            run_rank(dir, layout, step, keep, &me);
    }
    for (int rank = 0; rank < size; rank++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status));
    }
    for (int rank = 1; rank < size; rank++)
        assert_memory_equal(&shared->result[rank], &shared->result[0],
                            sizeof(enum merak_status));
    *err = shared->result[0];
    rc = err->status;
    munmap(shared, sizeof(*shared));
    return rc;
}

enum merak_status world_save_here(const char *dir, uint64_t step, int keep,
                                  struct merak_error *err)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_ckpt_state state = world_state(&one, step);
    struct merak_ckpt_piece *pieces;
    int n = world_pieces(&one, 0, false, step, &pieces);
    enum merak_status rc = save(dir, &state, pieces, n, keep, NULL, err);

    world_free(pieces, n);
    return rc;
}

static bool piece_is_right(const struct merak_ckpt_piece *piece, uint64_t step,
                           struct merak_error *err)
{
    for (size_t i = piece->flat_lo; i < piece->flat_hi; i++) {
        float want =
            world_value(piece->name, world_index(&piece->box, i), step);

        if (memcmp(&piece->data[i - piece->flat_lo], &want, sizeof(want)) == 0)
            continue;
        snprintf(err->text, sizeof(err->text), "%s[%zu]: %g, not %g",
                 piece->name, i, (double)piece->data[i - piece->flat_lo],
                 (double)want);
        return false;
    }
    return true;
}

static bool check_rank(struct merak_ckpt *ckpt,
                       const struct world_layout *layout, int rank,
                       uint64_t step, struct merak_error *err)
{
    struct merak_ckpt_piece *pieces;
    int n = world_pieces(layout, rank, true, UINT64_MAX, &pieces);
    bool ok = true;

    for (int i = 0; i < n && ok; i++)
        ok = merak_ckpt_read(ckpt, &pieces[i], err) == MERAK_OK &&
             piece_is_right(&pieces[i], step, err);
    world_free(pieces, n);
    return ok;
}

int64_t world_check(const char *dir, const struct world_layout *layout,
                    struct merak_error *err)
{
    struct merak_ckpt *ckpt;
    uint64_t step;
    bool ok = true;

    if (merak_ckpt_open(dir, &ckpt, err) != MERAK_OK)
        return -1;
    step = merak_ckpt_state(ckpt)->step;
    for (int rank = 0; rank < layout->tp * layout->pp * layout->dp && ok;
         rank++)
        ok = check_rank(ckpt, layout, rank, step, err);
    merak_ckpt_close(ckpt);
    return ok ? (int64_t)step : -1;
}

void world_make_dir(char *dir, size_t size)
{
    const char *base = getenv("TMPDIR");

    snprintf(dir, size, "%s/merak-ckpt-XXXXXX", base == NULL ? "/tmp" : base);
    assert_non_null(mkdtemp(dir));
}

static int remove_entry(const char *path, const struct stat *st, int flag,
                        struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void world_remove_dir(const char *dir)
{
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void world_flip(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}
