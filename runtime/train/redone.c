/* SPDX-License-Identifier: Apache-2.0 */
/* redone.c - metrics of steps that a run does again
 *
 * A run that is killed has written metrics of steps after its newest
 * checkpoint.  The next one does these steps again, as does one that was taken
 * back to an earlier step; so their lines are moved, when it starts, to a file
 * beside it, FILE.redone, and FILE has each step once.  A line that a kill cut
 * off goes there, too.
 */
#include "config.h"

#include "runtime/train/metrics.h"
#include "runtime/train/trainer.h"

#include "base/error.h"
#include "base/open.h"
#include "io/file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

/* Enough for the last line. */
#define TAIL_BYTES 65536L

/* Is this the line of a step after t->step, or the beginning of one? */
static bool is_redone(const struct merak_trainer *t, const char *line, size_t n)
{
    uint64_t step;
    json_t *object;

    if (n == 0 || line[n - 1] != '\n')
        return true;
    if (sscanf(line, "{\"step\": %" SCNu64, &step) == 1)
        return step > t->step;
    object = json_loads(line, 0, NULL);
    step = (uint64_t)json_integer_value(json_object_get(object, "step"));
    json_decref(object);
    return step > t->step;
}

/* By the last line: steps ascend. */
static bool has_redone(const struct merak_trainer *t, FILE *in)
{
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    ssize_t n;

    if (fseek(in, -TAIL_BYTES, SEEK_END) == 0)
        (void)!getline(&line, &size, in);
    else
        rewind(in);
    while ((n = getline(&line, &size, in)) > 0)
        found = is_redone(t, line, (size_t)n);
    free(line);
    rewind(in);
    return found;
}

static bool divide(struct merak_trainer *t, FILE *in, FILE *keep, FILE *redone)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;

    while ((n = getline(&line, &size, in)) > 0) {
        bool again = is_redone(t, line, (size_t)n);

        t->lineage.n_redone += again;
        fputs(line, again ? redone : keep);
        if (again && line[n - 1] != '\n')
            fputc('\n', redone);
    }
    free(line);
    return !ferror(in) && !ferror(keep) && !ferror(redone);
}

/* Returns NULL or why not.  The lines are in the other file before they are
 * gone from this one. */
static const char *move(struct merak_trainer *t, FILE *in, const char *path)
{
    char part[PATH_MAX + 16], beside[PATH_MAX + 16];
    FILE *keep = NULL, *redone = NULL;
    const char *why;
    bool fine;

    snprintf(part, sizeof(part), "%s.part", path);
    snprintf(beside, sizeof(beside), "%s.redone", path);
    why = merak_fopen_append(beside, &redone);
    if (why == NULL)
        why = merak_fopen_new(part, &keep);
    fine = why == NULL && divide(t, in, keep, redone);
    if (redone != NULL && fclose(redone) != 0)
        fine = false;
    if (keep != NULL && fclose(keep) != 0)
        fine = false;
    if (why != NULL)
        return why;
    if (fine && rename(part, path) == 0)
        return NULL;
    why = strerror(errno);
    (void)unlink(part);
    return why;
}

enum merak_status merak_metrics_cut(struct merak_trainer *t, const char *path,
                                    struct merak_error *err)
{
    char target[PATH_MAX];
    FILE *in = NULL;
    const char *why;

    if (t->opt.output.metrics == NULL) {
        why = merak_fopen_own(path, MERAK_ANY_OWNER, &in);
    } else { /* named by the user, who may have put a link there */
        merak_follow_links(path, target);
        path = target;
        why = merak_fopen_regular(path, &in);
    }
    /* opening it for writing gives the reason, if there is one */
    if (why != NULL)
        return MERAK_OK;
    if (has_redone(t, in))
        why = move(t, in, path);
    fclose(in);
    return why == NULL ? MERAK_OK : merak_file_fail_redone(err, path, why);
}
