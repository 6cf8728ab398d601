/* SPDX-License-Identifier: Apache-2.0 */
/* hang.c - the report of who waits for whom when a deadline has passed */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/open.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void merak_trainer_tell(void *arg, char *text, size_t size)
{
    const struct merak_trainer *t = arg;
    char wait[128] = "";

    if (t->running != NULL) {
        merak_engine_tell(t->running, text, size);
        return;
    }
    if (t->tr != NULL)
        merak_transport_describe_wait(t->tr, wait, sizeof(wait));
    snprintf(text, size, "%s after %" PRIu64 " steps%s%s", t->doing, t->step,
             wait[0] != '\0' ? ", " : "", wait);
}

/* Next to the metrics, or in the checkpoint directory; NULL: there is
 * neither. */
static FILE *open_page(const struct merak_trainer *t, char *path, size_t size)
{
    const char *slash, *in = t->run_dir;
    FILE *page;
    size_t length;

    if (t->opt.metrics != NULL) {
        slash = strrchr(t->opt.metrics, '/');
        in = slash == NULL ? "." : t->opt.metrics;
        length = slash == NULL ? 1 : (size_t)(slash - t->opt.metrics);
    } else if (in != NULL) {
        length = strlen(in);
    } else {
        return NULL;
    }
    snprintf(path, size, "%.*s/hang-%08" PRIu64 ".txt", (int)length, in,
             t->step);
    return merak_fopen_new(path, &page) == NULL ? page : NULL;
}

static void print_rank(const struct merak_trainer *t, int rank,
                       const struct merak_told *told, FILE *out)
{
    int peer = t->ranks.transport_rank[rank];
    const char *host = t->boot->hosts[t->boot->node_of[peer]];

    if (told[peer].heard)
        fprintf(out, "  rank %d on %s: %s\n", rank, host, told[peer].text);
    else
        fprintf(out, "  rank %d on %s gave no answer%s%s\n", rank, host,
                told[peer].text[0] != '\0' ? ": " : "", told[peer].text);
}

/* Ranks that gave no answer come first. */
static void print_page(const struct merak_trainer *t,
                       const struct merak_told *told,
                       const struct merak_error *err, FILE *out)
{
    char now[32] = "";
    time_t seconds = time(NULL);
    struct tm tm;

    if (localtime_r(&seconds, &tm) != NULL)
        strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%S", &tm);
    fprintf(out,
            "merak: hang report of rank %d, %s, after %" PRIu64 " steps: %s\n",
            t->ranks.logical, now, t->step, err->text);
    for (int heard = 0; heard < 2; heard++) {
        for (int r = 0; r < t->boot->size; r++) {
            if (told[t->ranks.transport_rank[r]].heard == (heard == 1))
                print_rank(t, r, told, out);
        }
    }
    fflush(out);
}

/* Add an incident with the page and the ranks that gave no answer. */
static void tell_incident(const struct merak_trainer *t,
                          const struct merak_told *told, const char *path)
{
    const char *slash = strrchr(path, '/');
    json_t *list = json_array();

    for (int r = 0; r < t->boot->size; r++) {
        int peer = t->ranks.transport_rank[r];

        if (!told[peer].heard)
            json_array_append_new(
                list,
                json_pack("[i, s]", r, t->boot->hosts[t->boot->node_of[peer]]));
    }
    merak_run_files_incident(
        t, json_pack("{s: s, s: s, s: o}", "kind", "hang", "page",
                     slash != NULL ? slash + 1 : path, "ranks", list));
}

bool merak_hang_report(struct merak_trainer *t, const struct merak_error *err)
{
    struct merak_told *told;
    char path[PATH_MAX];
    bool ours;
    FILE *page;

    if (t->tr == NULL || t->tr->ops->survey == NULL)
        return true;
    told = calloc((size_t)t->boot->size, sizeof(*told));
    if (told == NULL)
        return true;
    ours = t->tr->ops->survey(t->tr, told);
    if (ours) {
        print_page(t, told, err, stderr);
        page = open_page(t, path, sizeof(path));
        if (page != NULL) {
            print_page(t, told, err, page);
            fclose(page);
            tell_incident(t, told, path);
        }
    }
    free(told);
    return ours;
}
