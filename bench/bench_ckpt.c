/* SPDX-License-Identifier: Apache-2.0 */
/* bench_ckpt.c - what checkpoints cost besides the disk and the memory
 *
 *   bench_ckpt DIR MIB [ROUNDS]     files go to DIR/bench, and are removed
 *
 * A state of about MIB, in tensors as a transformer has them, is copied,
 * written and read plainly and as checkpoints, in turns; each round has all of
 * them.  Prints lines "WHAT BEST_S MEDIAN_S", and of the best rounds, which
 * others on the machine disturbed least, ratios and rates:
 *   memcpy         of the state to memory that is there
 *   stall          until a save that goes on beside training lets it
 *   stall_first    of the first such save
 *   write          write() of the state to a file, in blocks, and fsync()
 *   save           merak_ckpt_save()
 *   read           read() of a checkpoint's files, from the page cache
 *   load           all of it into the layout that it was written in
 *   reshard        all of it into another, by two ranks at once, as after a
 *                  restart: two parts along a first dim, as tp has it, and
 * those cut anew, as moments are; each checks all that it reads of verify every
 * byte against its checksum
 */
#include "config.h"

#include "base/clock.h"
#include "io/ckpt/ckpt_impl.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 32, N_TIMES = 9, LAYERS = 8, MOST_RANKS = 2 };
enum { MEMCPY, STALL, STALL_FIRST, WRITE, SAVE, READ, LOAD, RESHARD, VERIFY };

static const char *const what[N_TIMES] = {"memcpy", "stall",   "stall_first",
                                          "write",  "save",    "read",
                                          "load",   "reshard", "verify"};
static double seconds[N_TIMES][MAX_ROUNDS];
static int rounds = 7, n_rounds[N_TIMES];

struct state {
    struct merak_ckpt_piece piece[12 * LAYERS];
    char name[12 * LAYERS][64];
    int n;
    size_t bytes, files_bytes;
    float *data, *other;
    char dir[256];
};

/* A benchmark has nothing to clean up: say why, and leave. */
static void need(enum merak_status rc, const struct merak_error *err)
{
    if (rc == MERAK_OK)
        return;
    fprintf(stderr, "bench_ckpt: %s\n", err->text);
    exit(1);
}

static void took(int which, int64_t start_ns)
{
    seconds[which][n_rounds[which]++] = merak_clock_since_s(start_ns);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sort_rounds(void)
{
    for (int i = 0; i < N_TIMES; i++)
        qsort(seconds[i], (size_t)n_rounds[i], sizeof(double), compare_doubles);
}

static double best(int which)
{
    return seconds[which][0];
}

/* --- the state --------------------------------------------------------------
 */

static void add_tensor(struct state *s, const char *kind, int layer,
                       const char *name, size_t rows, size_t cols)
{
    struct merak_ckpt_piece *p = &s->piece[s->n];

    snprintf(s->name[s->n], sizeof(s->name[0]), "%s/h.%d.%s", kind, layer,
             name);
    *p = (struct merak_ckpt_piece){
        .name = s->name[s->n],
        .shape = {2, {rows, cols}},
        .box = {2, {rows, cols}, {0, 0}, {rows, cols}},
        .flat_hi = rows * cols};
    s->bytes += rows * cols * sizeof(float);
    s->n++;
}

/* 12 h^2 parameters a layer, and two moments of each. */
static void make_state(struct state *s, size_t bytes)
{
    static const char *const kind[] = {"param", "adam_m", "adam_v"};
    size_t h = 64;
    float *at;

    while (3 * LAYERS * 12 * (h + 64) * (h + 64) * sizeof(float) <= bytes)
        h += 64;
    for (int l = 0; l < LAYERS; l++) {
        for (int k = 0; k < 3; k++) {
            add_tensor(s, kind[k], l, "qkv.w", 3 * h, h);
            add_tensor(s, kind[k], l, "out.w", h, h);
            add_tensor(s, kind[k], l, "up.w", 4 * h, h);
            add_tensor(s, kind[k], l, "down.w", h, 4 * h);
        }
    }
    s->data = malloc(s->bytes);
    s->other = malloc(s->bytes);
    if (s->data == NULL || s->other == NULL)
        exit(1);
    at = s->data;
    for (int i = 0; i < s->n; i++) {
        s->piece[i].data = at;
        at += s->piece[i].flat_hi;
    }
    for (size_t i = 0; i < s->bytes / sizeof(float); i++)
        s->data[i] = (float)(i * 2654435761u % 1000003) * 1e-6f;
    memset(s->other, 1, s->bytes);
}

static struct merak_ckpt_state ckpt_state(uint64_t step)
{
    return (struct merak_ckpt_state){
        .step = step, .dtype = "f32", .tp = 1, .pp = 1, .dp = 1};
}

/* --- rounds -----------------------------------------------------------------
 */

static void copy(struct state *s)
{
    int64_t start = merak_clock_ns();

    memcpy(s->other, s->data, s->bytes);
    took(MEMCPY, start);
}

static void save_beside(struct state *s, uint64_t step)
{
    const struct merak_ckpt_keep keep = {.newest = 2};
    struct merak_ckpt_state st = ckpt_state(step);
    struct merak_ckpt_async *async = NULL;
    struct merak_error err;
    int64_t start;

    need(
        merak_ckpt_async_create(s->piece, s->n, NULL, NULL, NULL, &async, &err),
        &err);
    merak_ckpt_async_touch(async);
    sleep(1); /* a step, at least */
    for (int i = 0; i < 2; i++) {
        start = merak_clock_ns();
        need(merak_ckpt_async_start(async, s->dir, &st, keep, NULL, &err),
             &err);
        took(i == 0 ? STALL_FIRST : STALL, start);
        need(merak_ckpt_async_wait(async, &err), &err);
        st.step++;
    }
    merak_ckpt_async_destroy(async);
}

static void write_plainly(const struct state *s)
{
    const size_t block = (size_t)1 << 20;
    char path[300];
    int64_t start;
    int fd;

    snprintf(path, sizeof(path), "%s/plain", s->dir);
    (void)unlink(path);
    start = merak_clock_ns();
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (size_t at = 0; at < s->bytes; at += block) {
        size_t n = s->bytes - at < block ? s->bytes - at : block;

        if (write(fd, (const char *)s->data + at, n) != (ssize_t)n)
            exit(1);
    }
    if (fsync(fd) != 0)
        exit(1);
    close(fd);
    took(WRITE, start);
    (void)unlink(path);
}

static void save(const struct state *s, uint64_t step)
{
    const struct merak_ckpt_keep keep = {.newest = 0};
    struct merak_ckpt_state st = ckpt_state(step);
    struct merak_error err;
    int64_t start = merak_clock_ns();

    need(merak_ckpt_save(s->dir, &st, s->piece, s->n, keep, NULL, &err), &err);
    took(SAVE, start);
}

/* The whole of each file, into memory that is there. */
static void read_plainly(struct state *s, const char *ckpt)
{
    static const char *const files[] = {"shard-00000.h5", "master.h5",
                                        "manifest.json"};
    const size_t block = (size_t)1 << 20;
    int64_t start = merak_clock_ns();
    char path[PATH_MAX];

    s->files_bytes = 0;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        int fd = open(merak_path(path, ckpt, files[i]), O_RDONLY);
        ssize_t n;

        if (fd < 0)
            exit(1);
        while ((n = read(fd,
                         (char *)s->other + s->files_bytes % (s->bytes - block),
                         block)) > 0)
            s->files_bytes += (size_t)n;
        close(fd);
    }
    took(READ, start);
}

struct load {
    const struct state *state;
    const char *dir;
    int rank, ranks;
};

/* What a rank loads: its share of each tensor, opened by itself. */
static void *load_share(void *arg)
{
    const struct load *l = arg;
    const struct state *s = l->state;
    struct merak_ckpt *ckpt = NULL;
    struct merak_error err;
    float *at = s->other;

    need(merak_ckpt_open(l->dir, &ckpt, &err), &err);
    for (int i = 0; i < s->n; i++) {
        struct merak_ckpt_piece p = s->piece[i];
        int dim =
            strstr(p.name, "out.w") != NULL || strstr(p.name, "down.w") != NULL;

        p.box.len[dim] /= (size_t)l->ranks;
        p.box.lo[dim] = p.box.len[dim] * (size_t)l->rank;
        p.flat_hi = merak_box_count(&p.box);
        p.data = at + p.flat_hi * (size_t)l->rank;
        at += p.flat_hi * (size_t)l->ranks;
        need(merak_ckpt_read(ckpt, &p, &err), &err);
    }
    merak_ckpt_close(ckpt);
    return NULL;
}

/* Ranks start at once, as after a restart. */
static void load(const struct state *s, const char *ckpt_dir, int ranks)
{
    int64_t start = merak_clock_ns();
    struct load all[MOST_RANKS];
    pthread_t thread[MOST_RANKS];

    for (int r = 0; r < ranks; r++) {
        all[r] = (struct load){s, ckpt_dir, r, ranks};
        if (r > 0 &&
            pthread_create(&thread[r], NULL, load_share, &all[r]) != 0) {
            perror("thread");
            exit(1);
        }
    }
    load_share(&all[0]);
    for (int r = 1; r < ranks; r++)
        pthread_join(thread[r], NULL);
    took(ranks == 1 ? LOAD : RESHARD, start);
}

/* Of a processor, not of the clock: what one core does if it has it alone. */
static double verify_cpu_s = 1e9;

static int64_t thread_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void verify(const char *ckpt)
{
    int64_t start = merak_clock_ns(), start_cpu = thread_ns();
    double cpu_s;
    struct merak_error err;

    need(merak_ckpt_verify(ckpt, NULL, NULL, &err), &err);
    took(VERIFY, start);
    cpu_s = (double)(thread_ns() - start_cpu) * 1e-9;
    verify_cpu_s = cpu_s < verify_cpu_s ? cpu_s : verify_cpu_s;
}

static void one_round(struct state *s, uint64_t step)
{
    struct merak_error err;
    char name[MERAK_CKPT_NAME], ckpt[PATH_MAX];

    copy(s);
    save_beside(s, step);
    write_plainly(s);
    save(s, step + 2);
    merak_path(ckpt, s->dir, merak_ckpt_name(name, step + 2, MERAK_CKPT_PLAIN));
    read_plainly(s, ckpt);
    load(s, ckpt, 1);
    load(s, ckpt, 2);
    verify(ckpt);
    need(merak_ckpt_prune(s->dir, (struct merak_ckpt_keep){.newest = 2},
                          UINT64_MAX, NULL, &err),
         &err);
}

static void report(const struct state *s)
{
    double files = (double)s->files_bytes * 1e-9;

    sort_rounds();
    printf("bytes %zu\nfiles_bytes %zu\n", s->bytes, s->files_bytes);
    for (int i = 0; i < N_TIMES; i++)
        printf("%s %.4f %.4f\n", what[i], best(i), seconds[i][n_rounds[i] / 2]);
    printf("stall/memcpy %.2f\n", best(STALL) / best(MEMCPY));
    printf("stall_first/memcpy %.2f\n", best(STALL_FIRST) / best(MEMCPY));
    printf("write/save %.2f\n", best(WRITE) / best(SAVE));
    printf("load/read %.2f\n", best(LOAD) / best(READ));
    printf("reshard/read %.2f\n", best(RESHARD) / best(READ));
    printf("verify_GB/s %.2f\n", files / verify_cpu_s);
}

int main(int argc, char **argv)
{
    static struct state s;
    struct merak_error err;

    if (argc < 3) {
        fprintf(stderr, "usage: bench_ckpt DIR MIB [ROUNDS]\n");
        return 66;
    }
    if (argc > 3)
        rounds = atoi(argv[3]);
    rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
    snprintf(s.dir, sizeof(s.dir), "%.200s/bench-ckpt", argv[1]);
    need(merak_dir_make(s.dir, &err), &err);
    make_state(&s, (size_t)atol(argv[2]) << 20);
    for (int i = 0; i < rounds; i++)
        one_round(&s, (uint64_t)(3 * i + 1));
    report(&s);
    return 0;
}
