/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ckpt.c - `merak ckpt`: which checkpoints there are, what they hold,
 * whether they are sound; ckpt_transfer.c has imports and exports
 */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/finish.h"

#include "base/clock.h"
#include "base/progress.h"
#include "io/ckpt/ckpt_impl.h"
#include "runtime/runtime.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static const char usage[] =
    "usage: merak ckpt ls DIR\n"
    "       merak ckpt show DIR [TENSOR]\n"
    "       merak ckpt verify DIR\n"
    "       merak ckpt import FOLDER --out RUN [OPTION]...\n"
    "       merak ckpt export DIR --format hf|llmc --out FOLDER "
    "[OPTION]...\n"
    "\n"
    "  ls      the checkpoints of a run, newest first\n"
    "  show    what a checkpoint holds; a tensor's parts and statistics\n"
    "  verify  check every byte against its checksum\n"
    "  import  make a Hugging Face folder's weights a run's first "
    "checkpoint\n"
    "  export  make a model folder of a checkpoint's weights\n"
    "\n"
    "DIR is one checkpoint (RUN/step-00000020) or the directory of a run:\n"
    "then show and export take the newest, verify checks all of them.\n"
    "\n"
    "Exit codes: 0 fine, 66 usage, 67 damaged, missing or of another "
    "model,\n"
    "69 memory or disk.  merak-ckpt(1) has the rest.\n";

static int failed(const char *verb, enum merak_status rc,
                  const struct merak_error *err)
{
    fprintf(stderr, "merak ckpt %s: %s\n", verb, err->text);
    if (rc == MERAK_ERR_PARAM)
        return MERAK_EXIT_CONFIG;
    return rc == MERAK_ERR_NOMEM ? MERAK_EXIT_RESOURCE : MERAK_EXIT_DATA;
}

/* "1.2 GB"; buf of 16. */
static const char *size_text(char *buf, uint64_t bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int u = 0;

    while (value >= 999.5 && u < 5) {
        value /= 1000;
        u++;
    }
    snprintf(buf, 16, u == 0 || value >= 99.5 ? "%.0f %s" : "%.1f %s", value,
             unit[u]);
    return buf;
}

static uint64_t total_bytes(const struct merak_ckpt_manifest *mf)
{
    uint64_t total = mf->master.bytes;

    for (int i = 0; i < mf->n_shards; i++)
        total += mf->shard[i].bytes;
    return total;
}

/* When it was committed, local time; "?" if that cannot be told. */
static const char *time_text(char *buf, size_t size, const char *dir)
{
    char path[PATH_MAX];
    struct stat st;
    struct tm tm;

    if (stat(merak_path(path, dir, MERAK_CKPT_COMMITTED), &st) != 0 ||
        localtime_r(&st.st_mtime, &tm) == NULL ||
        strftime(buf, size, "%Y-%m-%d %H:%M", &tm) == 0)
        return "?";
    return buf;
}

/* --- ls
 * ----------------------------------------------------------------------- */

/* False if it is damaged. */
static bool list_one(const char *run_dir, const struct merak_ckpt_entry *entry)
{
    struct merak_ckpt_manifest *mf = NULL;
    char dir[PATH_MAX], when[32], size[16], layout[48];
    const struct merak_ckpt_state *state;
    struct merak_error err;

    merak_path(dir, run_dir, entry->name);
    if (entry->kind == MERAK_CKPT_TMP) {
        printf("%-20s not committed: a save under way, or cut short\n",
               entry->name);
        return true;
    }
    if (merak_ckpt_load(dir, &mf, &err) != MERAK_OK) {
        printf("%-20s DAMAGED: %s\n", entry->name, err.text);
        return false;
    }
    state = &mf->state;
    snprintf(layout, sizeof(layout), "%dx%dx%d", state->tp, state->pp,
             state->dp);
    printf("%-20s %-16s %10" PRIu64 " %9s %7d %7d  %-10s %s\n", entry->name,
           time_text(when, sizeof(when), dir), state->step,
           size_text(size, total_bytes(mf)), mf->n_tensors, mf->n_shards,
           layout, state->dtype);
    merak_ckpt_manifest_destroy(mf);
    return true;
}

static int run_ls(const char *dir)
{
    struct merak_ckpt_entry *entries = NULL;
    struct merak_error err;
    enum merak_status rc;
    int n = 0, damaged = 0;

    rc = merak_ckpt_list(dir, &entries, &n, &err);
    if (rc != MERAK_OK)
        return failed("ls", rc, &err);
    if (n > 0)
        printf("%-20s %-16s %10s %9s %7s %7s  %-10s %s\n", "CHECKPOINT",
               "SAVED", "STEP", "SIZE", "TENSORS", "SHARDS", "TPxPPxDP",
               "DTYPE");
    else
        fprintf(stderr, "merak ckpt ls: no checkpoint in %s\n", dir);
    for (int i = 0; i < n; i++)
        damaged += !list_one(dir, &entries[i]);
    free(entries);
    return merak_cmd_flush("ckpt ls",
                   n == 0 || damaged > 0 ? MERAK_EXIT_DATA : MERAK_EXIT_DONE);
}

/* --- show
 * --------------------------------------------------------------------- */

static void show_state(const char *dir, const struct merak_ckpt_manifest *mf)
{
    const struct merak_ckpt_state *state = &mf->state;
    char when[32], size[16];

    printf("checkpoint        %s\n", dir);
    printf("saved             %s\n", time_text(when, sizeof(when), dir));
    printf("step              %" PRIu64 "\n", state->step);
    printf("consumed samples  %" PRIu64 "\n", state->consumed_samples);
    printf("consumed tokens   %" PRIu64 "\n", state->consumed_tokens);
    if (state->seq > 0 && state->global_batch > 0)
        printf("trained with      sequences of %" PRIu64
               ", global batch %" PRIu64 "\n",
               state->seq, state->global_batch);
    printf("seed              %" PRIu64 "\n", state->seed);
    if (state->init_from[0] != '\0')
        printf("first weights     %s%s\n",
               state->imported ? "imported from " : "", state->init_from);
    printf("dtype             %s\n", state->dtype);
    printf("written by        tp %d, pp %d, dp %d\n", state->tp, state->pp,
           state->dp);
    printf("model             %s\n", state->model_id);
    printf("data              %s\n",
           state->data_id[0] != '\0' ? state->data_id : "-");
    printf("size              %s in %d shards\n",
           size_text(size, total_bytes(mf)), mf->n_shards);
}

static void show_tensors(const struct merak_ckpt_manifest *mf)
{
    char shape[160];

    printf("\n%-40s %-20s %12s %6s\n", "TENSOR", "SHAPE", "ELEMENTS", "PARTS");
    for (int i = 0; i < mf->n_tensors; i++) {
        const struct merak_ckpt_tensor *t = &mf->tensor[i];

        printf("%-40s %-20s %12zu %6d\n", t->name,
               merak_shape_text(shape, &t->shape), merak_shape_count(&t->shape),
               t->n);
    }
}

static void show_numbers(const float *data, size_t n)
{
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
    size_t finite = 0;

    for (size_t i = 0; i < n; i++) {
        double x = (double)data[i];

        if (!isfinite(x))
            continue;
        finite++;
        sum += x;
        squares += x * x;
        least = fmin(least, x);
        most = fmax(most, x);
    }
    if (finite > 0)
        printf("min %.6g, max %.6g, mean %.6g, rms %.6g\n", least, most,
               sum / (double)finite, sqrt(squares / (double)finite));
    printf("not finite        %zu\n", n - finite);
}

static enum merak_status show_values(struct merak_ckpt *ckpt,
                                     const struct merak_ckpt_tensor *t,
                                     struct merak_error *err)
{
    size_t n = merak_shape_count(&t->shape);
    struct merak_ckpt_piece piece = {
        .name = t->name, .shape = t->shape, .flat_hi = n};
    enum merak_status rc;

    piece.box.ndim = t->shape.ndim;
    memcpy(piece.box.full, t->shape.dim, sizeof(piece.box.full));
    memcpy(piece.box.len, t->shape.dim, sizeof(piece.box.len));
    piece.data = malloc(n * sizeof(*piece.data) + 1);
    if (piece.data == NULL) {
        snprintf(err->text, sizeof(err->text), "no memory for tensor %s",
                 t->name);
        return MERAK_ERR_NOMEM;
    }
    rc = merak_ckpt_read(ckpt, &piece, err);
    if (rc == MERAK_OK)
        show_numbers(piece.data, n);
    free(piece.data);
    return rc;
}

static int show_tensor(struct merak_ckpt *ckpt,
                       const struct merak_ckpt_manifest *mf, const char *name)
{
    const struct merak_ckpt_tensor *t = merak_ckpt_tensor_find(mf, name);
    char text[MERAK_CKPT_MAX_DATASET];
    struct merak_error err;
    enum merak_status rc;

    if (t == NULL) {
        fprintf(stderr,
                "merak ckpt show: no tensor %s in %s; `merak ckpt show DIR` "
                "lists them\n",
                name, merak_ckpt_path(ckpt));
        return MERAK_EXIT_CONFIG;
    }
    printf("tensor            %s\n", t->name);
    printf("shape             %s\n", merak_shape_text(text, &t->shape));
    rc = show_values(ckpt, t, &err);
    if (rc != MERAK_OK)
        return failed("show", rc, &err);
    printf("\n%-18s %-36s %12s %12s\n", "SHARD", "ELEMENTS", "COUNT", "OFFSET");
    for (int i = 0; i < t->n; i++) {
        const struct merak_ckpt_part *part = &mf->part[t->first + i];

        merak_ckpt_dataset_name(text, "", &part->box);
        printf("%-18s %-36s %12zu %12" PRIu64 "\n", mf->shard[part->shard].name,
               text + 1, merak_box_count(&part->box), part->offset);
    }
    return MERAK_EXIT_DONE;
}

static int run_show(const char *dir, const char *tensor)
{
    struct merak_ckpt_manifest *mf = NULL;
    struct merak_ckpt *ckpt = NULL;
    struct merak_error err;
    enum merak_status rc;
    int code = MERAK_EXIT_DONE;

    rc = merak_ckpt_open(dir, &ckpt, &err);
    if (rc != MERAK_OK)
        return failed("show", rc, &err);
    rc = merak_ckpt_load(merak_ckpt_path(ckpt), &mf, &err);
    if (rc != MERAK_OK) {
        code = failed("show", rc, &err);
    } else if (tensor != NULL) {
        code = show_tensor(ckpt, mf, tensor);
    } else {
        show_state(merak_ckpt_path(ckpt), mf);
        show_tensors(mf);
    }
    merak_ckpt_manifest_destroy(mf);
    merak_ckpt_close(ckpt);
    return merak_cmd_flush("ckpt show", code);
}

/* --- verify
 * ------------------------------------------------------------------- */

struct watched {
    const char *dir;
    struct merak_progress progress;
};

static void print_damage(void *arg, const char *line)
{
    struct watched *w = arg;

    merak_progress_clear(&w->progress);
    printf("%s: %s\n", w->dir, line);
}

static int verify_one(char *dir)
{
    struct merak_ckpt_manifest *mf = NULL;
    int64_t start_ns = merak_clock_ns();
    struct watched w = {.dir = dir};
    struct merak_error err;
    enum merak_status rc;
    char size[16];

    merak_progress_init(&w.progress, stderr, "verify", "B", 0);
    rc = merak_ckpt_verify_watched(dir, print_damage, &w, &w.progress, &err);
    merak_progress_clear(&w.progress);
    if (rc != MERAK_OK && rc != MERAK_ERR_CORRUPT)
        return failed("verify", rc, &err);
    if (rc != MERAK_OK || merak_ckpt_load(dir, &mf, &err) != MERAK_OK)
        return MERAK_EXIT_DATA;
    printf("%s: sound, %d tensors in %d shards, %s checked in %.1f s\n", dir,
           mf->n_tensors, mf->n_shards, size_text(size, total_bytes(mf)),
           (double)(merak_clock_ns() - start_ns) * 1e-9);
    merak_ckpt_manifest_destroy(mf);
    return MERAK_EXIT_DONE;
}

static int run_verify(const char *dir)
{
    struct merak_ckpt_entry *entries = NULL;
    struct merak_error err;
    char path[PATH_MAX];
    enum merak_status rc;
    int n = 0, checked = 0, code = MERAK_EXIT_DONE;

    if (merak_ckpt_is_one(dir)) {
        snprintf(path, sizeof(path), "%s", dir);
        return merak_cmd_flush("ckpt verify", verify_one(path));
    }
    rc = merak_ckpt_list(dir, &entries, &n, &err);
    if (rc != MERAK_OK)
        return failed("verify", rc, &err);
    for (int i = 0; i < n; i++) {
        int one;

        if (entries[i].kind == MERAK_CKPT_TMP)
            continue;
        one = verify_one(merak_path(path, dir, entries[i].name));
        code = one != MERAK_EXIT_DONE ? one : code;
        checked++;
    }
    free(entries);
    if (checked == 0) {
        fprintf(stderr, "merak ckpt verify: no checkpoint in %s\n", dir);
        return MERAK_EXIT_DATA;
    }
    return merak_cmd_flush("ckpt verify", code);
}

static int misused(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int misused(const char *fmt, ...)
{
    va_list ap;

    fputs("merak ckpt: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs("; see `merak ckpt --help`\n", stderr);
    return MERAK_EXIT_CONFIG;
}

int merak_cmd_ckpt(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    bool show = strcmp(verb, "show") == 0;
    bool import = strcmp(verb, "import") == 0;
    bool transfer = import || strcmp(verb, "export") == 0;
    bool known = show || strcmp(verb, "ls") == 0 || strcmp(verb, "verify") == 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            merak_ckpt_transfer_help(stdout);
            return merak_cmd_flush("ckpt help", MERAK_EXIT_DONE);
        }
        if (!transfer && argv[i][0] == '-' && argv[i][1] != '\0')
            return misused("no option %s", argv[i]);
    }
    if (transfer)
        return import ? merak_ckpt_import(argc - 1, argv + 1)
                      : merak_ckpt_export(argc - 1, argv + 1);
    if (!known)
        return argc > 1 ? misused("no command \"%s\"", verb)
                        : misused("a command is missing");
    if (argc < 3)
        return misused("%s needs a directory", verb);
    if (argc > (show ? 4 : 3))
        return misused("%s: one argument too many, \"%s\"", verb,
                       argv[show ? 4 : 3]);
    if (strlen(argv[2]) >= MERAK_DIR_MAX)
        return misused("%s: path too long", verb);
    if (show)
        return run_show(argv[2], argc > 3 ? argv[3] : NULL);
    return strcmp(verb, "ls") == 0 ? run_ls(argv[2]) : run_verify(argv[2]);
}
