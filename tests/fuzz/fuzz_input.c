/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_input.c - seeds, files and promises of the fuzz targets */
#include "config.h"

#include "fuzz/fuzz.h"

#include "unit/quiet.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_SEEDS = 256 };

static struct fuzz_seed seeds[MOST_SEEDS];
static size_t n_seeds;
static char dir[PATH_MAX - 256];

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "fuzz: %s %s\n", what, name);
    abort();
}

/* --- seeds ---------------------------------------------------------------- */

void fuzz_add_kind(uint8_t kind, const void *data, size_t n)
{
    struct fuzz_seed *seed = &seeds[n_seeds++];

    fuzz_must(n_seeds <= MOST_SEEDS, "a target has no more seeds than fit");
    seed->data = malloc(n + 1);
    fuzz_must(seed->data != NULL, "there is memory for seeds");
    seed->data[0] = kind;
    if (n > 0)
        memcpy(seed->data + 1, data, n);
    seed->n = n + 1;
}

void fuzz_add(const void *data, size_t n)
{
    const uint8_t *bytes = data;

    fuzz_must(n > 0, "a seed has bytes");
    fuzz_add_kind(bytes[0], bytes + 1, n - 1);
}

void fuzz_add_text(const char *text)
{
    fuzz_add(text, strlen(text));
}

void fuzz_add_file(int kind, const char *path)
{
    FILE *in = fopen(path, "rbe");
    uint8_t *data = NULL;
    long n = -1;

    if (in != NULL && fseek(in, 0, SEEK_END) == 0)
        n = ftell(in);
    if (n <= 0)
        fail("no seed", path);
    rewind(in);
    data = malloc((size_t)n);
    if (data == NULL || fread(data, 1, (size_t)n, in) != (size_t)n)
        fail("cannot read", path);
    fclose(in);
    if (kind < 0)
        fuzz_add(data, (size_t)n);
    else
        fuzz_add_kind((uint8_t)kind, data, (size_t)n);
    free(data);
}

void fuzz_add_vector(int kind, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/vectors/%s", TEST_SRCDIR, name);
    fuzz_add_file(kind, path);
}

const struct fuzz_seed *fuzz_all_seeds(size_t *n_p)
{
    if (n_seeds == 0)
        fuzz_seeds();
    *n_p = n_seeds;
    return seeds;
}

/* --- files ---------------------------------------------------------------- */

static void remove_dir(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    char name[PATH_MAX];

    for (e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
        if (unlink(name) != 0)
            remove_dir(name);
    }
    if (d != NULL)
        closedir(d);
    (void)rmdir(path);
}

static void end(void)
{
    remove_dir(dir);
}

const char *fuzz_dir(void)
{
    const char *base = getenv("TMPDIR");

    if (dir[0] != '\0')
        return dir;
    snprintf(dir, sizeof(dir), "%s/merak-fuzz-XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(dir) == NULL)
        fail("cannot make", dir);
    atexit(end);
    return dir;
}

const char *fuzz_path(const char *name)
{
    static char path[8][PATH_MAX];
    static int next;

    next = (next + 1) % 8;
    snprintf(path[next], sizeof(path[next]), "%s/%s", fuzz_dir(), name);
    return path[next];
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    const char *path = fuzz_path(name);
    FILE *out = fopen(path, "wbe");

    if (out == NULL || fwrite(data, 1, n, out) != n || fclose(out) != 0)
        fail("cannot write", path);
    return path;
}

char *fuzz_text(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);

    fuzz_must(text != NULL, "there is memory for a text");
    if (n > 0)
        memcpy(text, data, n);
    text[n] = '\0';
    return text;
}

/* --- promises ------------------------------------------------------------- */

void fuzz_must(bool holds, const char *promise)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: broken promise: %s\n", promise);
    abort();
}

static bool is_line(const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\n')
            return false;
    }
    return text[0] != '\0';
}

void fuzz_refused(enum merak_status rc, const struct merak_error *err)
{
    bool line = is_line(err->text);

    if (!line || rc == MERAK_ERR_NOMEM || rc == MERAK_ERR_SYSTEM)
        fprintf(stderr, "fuzz: %s: %s\n", merak_status_name(rc), err->text);
    fuzz_must(rc < 0, "a status is one");
    fuzz_must(err->status == rc, "the error has the status that was returned");
    fuzz_must(memchr(err->text, '\0', sizeof(err->text)) != NULL,
              "the reason ends");
    fuzz_must(line, "a refusal gives its reason in one line");
    fuzz_must(rc != MERAK_ERR_NOMEM, "no input asks for more than there is");
    fuzz_must(rc != MERAK_ERR_SYSTEM, "an input is to blame, not the system");
}

/* --- libFuzzer ------------------------------------------------------------ */

/* Seeds become files of the corpus that FUZZ_CORPUS names, before libFuzzer
 * looks there. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *corpus = getenv("FUZZ_CORPUS");
    const struct fuzz_seed *seed;
    char path[PATH_MAX];
    size_t n;
    FILE *out;

    (void)argc;
    (void)argv;
    quiet_logs();
    seed = fuzz_all_seeds(&n);
    for (size_t i = 0; corpus != NULL && i < n; i++) {
        snprintf(path, sizeof(path), "%s/seed-%03zu", corpus, i);
        out = fopen(path, "wbe");
        if (out == NULL ||
            fwrite(seed[i].data, 1, seed[i].n, out) != seed[i].n ||
            fclose(out) != 0)
            fail("cannot write", path);
    }
    return 0;
}
