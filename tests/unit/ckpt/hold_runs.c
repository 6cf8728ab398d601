/* SPDX-License-Identifier: Apache-2.0 */
/* hold_runs.c - hold one training run against another, for scripts in tests/t
 *
 *   hold_runs near REF RUN [REF RUN]... [--loss R] [--first R] [--last R]
 *   hold_runs equal REF RUN [REF RUN]...
 *   hold_runs bf16 FP32 REF RUN     (prefixes: one run a seed, in the order of
 *                                    names, as many seeds as all three have)
 *
 * A run is a directory with metrics.jsonl and, where the run wrote them,
 * grads/step-N/master.h5 (gradients of its first and last step) and
 * ckpt/step-N/master.h5.
 *
 * near:  loss, losses of routers and pre-clip gradient norm of every step
 *        within --loss relative (1e-5); every parameter's gradient within
 *        --first (1e-5) at the first and --last (1e-4) at the last step, as the
 *        norm of the difference over the norm of the reference.
 * equal: losses, norms, gradients and final weights bit for bit.
 * bf16:  RUN (bf16) is no further from REF (bf16, one rank) than twice REF's
 *        distance to FP32: medians over the seeds of the root mean squares of
 *        the losses of every step, and of the parameters' gradients at the
 *        first and last.
 *
 * Exit code: 0, 1 where they are not that, 2 where they cannot be compared.
 */
#include "config.h"

#include <glob.h>
#include <hdf5.h>
#include <jansson.h>
#include <malloc.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 4096, MAX_TENSORS = 4096, MAX_SEEDS = 64, PATH = 1024 };

static void leave(int code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), noreturn));
static void leave(int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    exit(code);
}
#define differ(...) leave(1, __VA_ARGS__)
#define fail(...) leave(2, __VA_ARGS__)

static void *allocate(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);

    if (p == NULL)
        fail("no memory for %zu bytes", bytes);
    return p;
}

/* Paths in their order. */
static void find(glob_t *found, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void find(glob_t *found, const char *fmt, ...)
{
    char pattern[PATH];
    va_list args;

    va_start(args, fmt);
    if (vsnprintf(pattern, sizeof(pattern), fmt, args) >= PATH)
        fail("%s..: a path of more than %d bytes", pattern, PATH);
    va_end(args);
    if (glob(pattern, 0, NULL, found) != 0)
        found->gl_pathc = 0;
}

/* --- metrics ---------------------------------------------------------------
 */

/* Objects of a run's metrics, one a step. */
struct metrics {
    json_t *step[MAX_STEPS];
    size_t n;
};

static void read_metrics(const char *run, struct metrics *m)
{
    char path[PATH], line[8192];
    FILE *file;

    m->n = 0;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", run);
    file = fopen(path, "r");
    if (file == NULL)
        fail("%s cannot be read", path);
    while (fgets(line, sizeof(line), file) != NULL) {
        json_t *step = m->n < MAX_STEPS ? json_loads(line, 0, NULL) : NULL;

        if (step == NULL)
            fail("%s:%zu: expected a step's numbers, got %s", path, m->n + 1,
                 line);
        m->step[m->n++] = step;
    }
    fclose(file);
}

static void drop_metrics(struct metrics *m)
{
    for (size_t i = 0; i < m->n; i++)
        json_decref(m->step[i]);
}

/* Steps of both runs, as many in the one as in the other. */
static void read_both(const char *ref, const char *run, struct metrics *a,
                      struct metrics *b)
{
    read_metrics(ref, a);
    read_metrics(run, b);
    if (a->n != b->n || a->n == 0)
        differ("%zu steps in %s, %zu in %s", a->n, ref, b->n, run);
}

static double number(const json_t *step, const char *what)
{
    const json_t *value = json_object_get(step, what);

    if (!json_is_number(value))
        fail("step %lld has no number \"%s\"",
             (long long)json_integer_value(json_object_get(step, "step")),
             what);
    return json_number_value(value);
}

/* --- tensors ---------------------------------------------------------------
 */

/* The datasets of a master.h5, by name. */
struct tensors {
    const char *path;
    hid_t file;
    char *name[MAX_TENSORS];
    size_t n;
};

static herr_t add_tensor(hid_t group, const char *name, const H5L_info_t *info,
                         void *arg)
{
    struct tensors *t = arg;
    hid_t object;

    if (info->type != H5L_TYPE_HARD)
        return 0;
    object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0)
        return -1;
    if (H5Iget_type(object) == H5I_DATASET) {
        if (t->n == MAX_TENSORS)
            fail("%s has more than %d tensors", t->path, MAX_TENSORS);
        t->name[t->n] = allocate(strlen(name) + 1);
        strcpy(t->name[t->n++], name);
    }
    return H5Oclose(object);
}

static void open_tensors(struct tensors *t, const char *path)
{
    t->path = path;
    t->n = 0;
    t->file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (t->file < 0 ||
        H5Lvisit(t->file, H5_INDEX_NAME, H5_ITER_INC, add_tensor, t) < 0)
        fail("%s cannot be read", path);
}

static void close_tensors(struct tensors *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->name[i]);
    H5Fclose(t->file);
}

/* Two files of the same tensors. */
static void open_both(struct tensors *a, const char *ref, struct tensors *b,
                      const char *run)
{
    bool same;

    open_tensors(a, ref);
    open_tensors(b, run);
    same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->name[i], b->name[i]) == 0;
    if (!same)
        differ("%s and %s hold different tensors", ref, run);
}

/* Tensor i, from malloc: as doubles, or as it is stored. */
static void *read_tensor(const struct tensors *t, size_t i, bool as_doubles,
                         size_t *n_p)
{
    hid_t set = H5Dopen(t->file, t->name[i], H5P_DEFAULT);
    hid_t type = set < 0 ? set : H5Dget_type(set);
    hid_t space = set < 0 ? set : H5Dget_space(set);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    size_t size = as_doubles ? sizeof(double)
                  : type < 0 ? 0
                             : H5Tget_size(type);
    void *data;

    if (n < 0 || size == 0)
        fail("%s %s cannot be read", t->path, t->name[i]);
    data = allocate((size_t)n * size);
    if (H5Dread(set, as_doubles ? H5T_NATIVE_DOUBLE : type, H5S_ALL, H5S_ALL,
                H5P_DEFAULT, data) < 0)
        fail("%s %s cannot be read", t->path, t->name[i]);
    H5Sclose(space);
    H5Tclose(type);
    H5Dclose(set);
    *n_p = as_doubles ? (size_t)n : (size_t)n * size;
    return data;
}

/* The norm of the difference over the norm of a, unless that is 0. */
static double distance(const struct tensors *a, const struct tensors *b,
                       size_t i)
{
    size_t n, m;
    double *x = read_tensor(a, i, true, &n), *y = read_tensor(b, i, true, &m);
    double norm = 0, diff = 0;

    if (n != m)
        differ("%s: %zu numbers in %s, %zu in %s", a->name[i], n, a->path, m,
               b->path);
    for (size_t k = 0; k < n; k++) {
        norm += x[k] * x[k];
        diff += (x[k] - y[k]) * (x[k] - y[k]);
    }
    free(x);
    free(y);
    return norm == 0 ? sqrt(diff) : sqrt(diff) / sqrt(norm);
}

/* The gradients that both runs wrote, at least of one step. */
static void find_gradients(const char *ref, const char *run, glob_t *a,
                           glob_t *b)
{
    find(a, "%s/grads/step-*/master.h5", ref);
    find(b, "%s/grads/step-*/master.h5", run);
    if (a->gl_pathc != b->gl_pathc || a->gl_pathc == 0)
        differ("gradients: %zu dumps in %s, %zu in %s", a->gl_pathc, ref,
               b->gl_pathc, run);
}

/* --- near ------------------------------------------------------------------
 */

struct limits {
    double loss, first, last;
};

static double steps_near(const char *ref, const char *run, double limit)
{
    static const char *const whats[] = {"loss", "grad_norm", "aux", "z"};
    static struct metrics a, b;
    double worst = 0;

    read_both(ref, run, &a, &b);
    for (size_t i = 0; i < a.n; i++) {
        for (size_t k = 0; k < sizeof(whats) / sizeof(*whats); k++) {
            double x, y, off;

            if (json_object_get(a.step[i], whats[k]) == NULL)
                continue;
            x = number(a.step[i], whats[k]);
            y = number(b.step[i], whats[k]);
            off = fabs(x - y) / fmax(fabs(x), 1e-300);
            if (!(off <= limit))
                differ(
                    "step %.0f: %s %.17g against %.17g, off by %.2e, allowed "
                    "%.0e",
                    number(a.step[i], "step"), whats[k], y, x, off, limit);
            worst = fmax(worst, off);
        }
    }
    drop_metrics(&a);
    drop_metrics(&b);
    return worst;
}

static double gradients_near(const char *ref, const char *run, double limit)
{
    static struct tensors a, b;
    double worst = 0;

    open_both(&a, ref, &b, run);
    for (size_t i = 0; i < a.n; i++) {
        double off = distance(&a, &b, i);

        if (!(off <= limit))
            differ("%s %s: gradient off by %.2e, allowed %.0e", ref, a.name[i],
                   off, limit);
        worst = fmax(worst, off);
    }
    close_tensors(&a);
    close_tensors(&b);
    return worst;
}

static void near(const char *ref, const char *run, const struct limits *limits)
{
    double worst = steps_near(ref, run, limits->loss), grads[2];
    glob_t a, b;

    find_gradients(ref, run, &a, &b);
    if (a.gl_pathc > 2)
        fail("%zu dumps of gradients in %s: expected one of the first step and "
             "one of the last",
             a.gl_pathc, ref);
    for (size_t i = 0; i < a.gl_pathc; i++)
        grads[i] = gradients_near(a.gl_pathv[i], b.gl_pathv[i],
                                  i == 0 ? limits->first : limits->last);
    printf("loss and norm within %.1e, gradients within", worst);
    for (size_t i = 0; i < a.gl_pathc; i++)
        printf("%s%.1e", i == 0 ? " " : ", ", grads[i]);
    printf("\n");
    globfree(&a);
    globfree(&b);
}

/* --- equal -----------------------------------------------------------------
 */

static void steps_equal(const char *ref, const char *run)
{
    static const char *const whats[] = {"loss", "grad_norm"};
    static struct metrics a, b;

    read_both(ref, run, &a, &b);
    for (size_t i = 0; i < a.n; i++) {
        for (size_t k = 0; k < 2; k++) {
            double x = number(a.step[i], whats[k]);
            double y = number(b.step[i], whats[k]);

            if (!(x == y))
                differ("step %.0f: %s %.17g is not %.17g",
                       number(a.step[i], "step"), whats[k], y, x);
        }
    }
    drop_metrics(&a);
    drop_metrics(&b);
}

static size_t tensors_equal(const char *ref, const char *run)
{
    static struct tensors a, b;

    open_both(&a, ref, &b, run);
    for (size_t i = 0; i < a.n; i++) {
        size_t n, m;
        void *x = read_tensor(&a, i, false, &n);
        void *y = read_tensor(&b, i, false, &m);

        if (n != m || memcmp(x, y, n) != 0)
            differ("%s %s differs from %s", run, a.name[i], ref);
        free(x);
        free(y);
    }
    close_tensors(&a);
    close_tensors(&b);
    return a.n;
}

static void equal(const char *ref, const char *run, const struct limits *limits)
{
    static const char *const kinds[] = {"grads", "ckpt"};
    size_t compared = 0;

    (void)limits;
    steps_equal(ref, run);
    for (size_t k = 0; k < 2; k++) {
        glob_t a, b;

        find(&a, "%s/%s/step-*/master.h5", ref, kinds[k]);
        find(&b, "%s/%s/step-*/master.h5", run, kinds[k]);
        if (k == 0 ? a.gl_pathc != b.gl_pathc
                   : (a.gl_pathc == 0) != (b.gl_pathc == 0))
            differ("%s: %zu in %s, %zu in %s", kinds[k], a.gl_pathc, ref,
                   b.gl_pathc, run);
        /* of the checkpoints the last */
        for (size_t i = 0; i < a.gl_pathc; i++) {
            if (k == 0)
                compared += tensors_equal(a.gl_pathv[i], b.gl_pathv[i]);
            else if (i == a.gl_pathc - 1)
                compared +=
                    tensors_equal(a.gl_pathv[i], b.gl_pathv[b.gl_pathc - 1]);
        }
        globfree(&a);
        globfree(&b);
    }
    if (compared == 0)
        fail("nothing to compare");
    printf("%zu tensors equal\n", compared);
}

/* --- bf16 ------------------------------------------------------------------
 */

static double losses_apart(const char *ref, const char *run)
{
    static struct metrics a, b;
    double sum = 0;

    read_both(ref, run, &a, &b);
    for (size_t i = 0; i < a.n; i++) {
        double off = number(b.step[i], "loss") - number(a.step[i], "loss");

        sum += off * off;
    }
    drop_metrics(&a);
    drop_metrics(&b);
    return sqrt(sum / (double)a.n);
}

static double gradients_apart(const char *ref, const char *run)
{
    static struct tensors a, b;
    double sum = 0, n = 0;
    glob_t x, y;

    find_gradients(ref, run, &x, &y);
    for (size_t i = 0; i < x.gl_pathc; i++) {
        open_both(&a, x.gl_pathv[i], &b, y.gl_pathv[i]);
        for (size_t k = 0; k < a.n; k++) {
            double off = distance(&a, &b, k);

            sum += off * off;
        }
        n += (double)a.n;
        close_tensors(&a);
        close_tensors(&b);
    }
    globfree(&x);
    globfree(&y);
    return sqrt(sum / n);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof(*x), by_value);
    return n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void bf16(char *const prefix[3])
{
    double own[2][MAX_SEEDS], off[2][MAX_SEEDS], med[4];
    glob_t run[3];
    size_t n = MAX_SEEDS;

    for (int k = 0; k < 3; k++) {
        find(&run[k], "%s*", prefix[k]);
        if (run[k].gl_pathc == 0 || run[k].gl_pathc > MAX_SEEDS)
            fail("%zu runs are named %s*", run[k].gl_pathc, prefix[k]);
        n = run[k].gl_pathc < n ? run[k].gl_pathc : n;
    }
    for (size_t i = 0; i < n; i++) {
        char *fp32 = run[0].gl_pathv[i], *ref = run[1].gl_pathv[i];

        own[0][i] = losses_apart(fp32, ref);
        off[0][i] = losses_apart(ref, run[2].gl_pathv[i]);
        own[1][i] = gradients_apart(fp32, ref);
        off[1][i] = gradients_apart(ref, run[2].gl_pathv[i]);
    }
    for (int k = 0; k < 2; k++) {
        med[2 * k] = median(off[k], n);
        med[2 * k + 1] = median(own[k], n);
    }
    printf("%zu seeds: loss %.1e (own %.1e), gradients %.1e (own %.1e)\n", n,
           med[0], med[1], med[2], med[3]);
    if (!(med[0] <= 2 * med[1]) || !(med[2] <= 2 * med[3]))
        differ("%s* are further from %s* than twice these are from %s*",
               prefix[2], prefix[1], prefix[0]);
    for (int k = 0; k < 3; k++)
        globfree(&run[k]);
}

/* --- the command line ------------------------------------------------------
 */

typedef void (*hold_fn)(const char *ref, const char *run,
                        const struct limits *limits);

static void usage(void)
{
    fail("expected: hold_runs near|equal REF RUN [REF RUN].. [--loss R] "
         "[--first R] [--last R], or hold_runs bf16 FP32 REF RUN");
}

/* Take --NAME R out of the words that follow; false: another word. */
static bool take_limit(char **word, struct limits *limits)
{
    double *limit = strcmp(word[0], "--loss") == 0    ? &limits->loss
                    : strcmp(word[0], "--first") == 0 ? &limits->first
                    : strcmp(word[0], "--last") == 0  ? &limits->last
                                                      : NULL;
    char *end;

    if (limit == NULL)
        return false;
    if (word[1] == NULL)
        usage();
    *limit = strtod(word[1], &end);
    if (*end != '\0' || !(*limit > 0))
        fail("%s: expected a number above 0, got \"%s\"", word[0], word[1]);
    return true;
}

int main(int argc, char **argv)
{
    struct limits limits = {1e-5, 1e-5, 1e-4};
    hold_fn hold;
    int n = 0;

    /* HDF5 takes a megabyte for every read: keep it, do not ask the kernel */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    H5Eset_auto(H5E_DEFAULT, NULL, NULL);
    if (argc < 4)
        usage();
    if (strcmp(argv[1], "bf16") == 0) {
        if (argc != 5)
            usage();
        bf16(argv + 2);
        return 0;
    }
    hold = strcmp(argv[1], "near") == 0    ? near
           : strcmp(argv[1], "equal") == 0 ? equal
                                           : NULL;
    for (int i = 2; i < argc; i++) {
        if (take_limit(argv + i, &limits))
            i++;
        else
            argv[n++] = argv[i];
    }
    if (hold == NULL || n == 0 || n % 2 != 0)
        usage();
    for (int i = 0; i < n; i += 2)
        hold(argv[i], argv[i + 1], &limits);
    return 0;
}
