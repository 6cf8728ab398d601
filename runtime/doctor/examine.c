/* SPDX-License-Identifier: Apache-2.0 */
/* examine.c - every task examines its machine; rank 0 collects the findings
 *
 * Only rank 0 asks Slurm, the first task of each node examines the machine,
 * and all tasks report the cores that they may use.  Findings go to rank 0 as
 * JSON, in cards of the boot's size.
 */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/error.h"
#include "runtime/runtime.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARD_BYTES 4096
enum { CORES_TEXT = 512 };

/* --- what one task finds -------------------------------------------------- */

static void check_launch(const struct merak_boot *boot,
                         struct merak_findings *found)
{
    if (strcmp(boot->ops->name, "pmix") == 0)
        merak_find(found, MERAK_FINDING_OK, "PMIx",
                   "answers: %d task%s on %d node%s", boot->size,
                   boot->size == 1 ? "" : "s", boot->n_nodes,
                   boot->n_nodes == 1 ? "" : "s");
}

static void check_machine(const struct merak_boot *boot,
                          struct merak_findings *found)
{
    struct merak_machine m;

    merak_machine_gather("", &m);
    merak_machine_judge(&m, boot->size, boot->local_size, found);
}

static void check_directory(const char *dir, struct merak_findings *found)
{
    struct merak_directory d;

    merak_directory_gather(dir, &d);
    merak_directory_judge(&d, found);
}

/* Rank 0 makes a file in dir; `mark` is its path, or "" if that fails. */
static void make_mark(const struct merak_boot *boot, const char *dir,
                      char mark[PATH_MAX])
{
    struct stat st;
    int fd;

    memset(mark, 0, PATH_MAX);
    if (boot->rank != 0 || stat(dir, &st) != 0)
        return;
    snprintf(mark, PATH_MAX, "%s/.merak-doctor-mark-XXXXXX", dir);
    fd = mkstemp(mark);
    if (fd < 0)
        mark[0] = '\0';
    else
        close(fd);
}

/* Does every node see the file that rank 0 made? */
static enum merak_status check_shared(struct merak_boot *boot, const char *dir,
                                      struct merak_findings *found,
                                      struct merak_error *err)
{
    char mark[PATH_MAX];
    struct merak_finding *f;
    struct stat st;
    enum merak_status rc;

    make_mark(boot, dir, mark);
    rc = boot->ops->broadcast(boot, mark, sizeof(mark), err);
    if (rc == MERAK_OK && boot->local_rank == 0 && mark[0] != '\0' &&
        stat(mark, &st) != 0) {
        f = merak_find(found, MERAK_FINDING_ERROR, "files",
                       "%.120s is not the same directory as on %.64s", dir,
                       boot->hosts[boot->node_of[0]]);
        merak_find_fix(f, "name a directory that all nodes share (NFS, "
                          "Lustre, ..)");
        merak_find_code(f, MERAK_EXIT_RESOURCE);
    }
    if (rc == MERAK_OK)
        rc = boot->ops->barrier(boot, err);
    if (boot->rank == 0 && mark[0] != '\0')
        unlink(mark);
    return rc;
}

static enum merak_status look_around(struct merak_boot *boot, const char *dir,
                                     struct merak_findings *found,
                                     struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (boot->rank == 0) {
        merak_slurm_environment(found);
        merak_slurm_check(boot->size > 1 ? boot->hosts : NULL,
                          boot->size > 1 ? boot->n_nodes : 0, found);
        check_launch(boot, found);
    }
    if (boot->local_rank == 0) {
        check_machine(boot, found);
#ifdef HAVE_UCX
        merak_links_alone(found);
#endif
        if (dir != NULL)
            check_directory(dir, found);
    }
    if (dir != NULL && boot->n_nodes > 1)
        rc = check_shared(boot, dir, found, err);
    if (rc == MERAK_OK)
        merak_links_step(boot, found);
    return rc;
}

/* --- to rank 0 ------------------------------------------------------------ */

static char *pack_findings(const struct merak_findings *found,
                           const char *cores)
{
    json_t *list = json_array(), *all;
    char *text;

    for (int i = 0; i < found->n; i++) {
        const struct merak_finding *f = &found->one[i];

        json_array_append_new(list,
                              json_pack("[i, i, s, s, s]", (int)f->level,
                                        f->code, f->area, f->text, f->fix));
    }
    all = json_pack("{s: o, s: s}", "found", list, "cores", cores);
    text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

static bool unpack_finding(json_t *from, struct merak_finding *f)
{
    const char *area, *text, *fix;
    int level;

    if (json_unpack(from, "[i, i, s, s, s]", &level, &f->code, &area, &text,
                    &fix) != 0)
        return false;
    f->level = (enum merak_finding_level)level;
    snprintf(f->area, sizeof(f->area), "%s", area);
    snprintf(f->text, sizeof(f->text), "%s", text);
    snprintf(f->fix, sizeof(f->fix), "%s", fix);
    return true;
}

/* Findings with equal texts are merged. */
static bool is_same(const struct merak_finding *a,
                    const struct merak_finding *b)
{
    return a->level == b->level && strcmp(a->area, b->area) == 0 &&
           strcmp(a->text, b->text) == 0 && strcmp(a->fix, b->fix) == 0;
}

static struct merak_placed_finding *find_same(struct merak_examination *ex,
                                              const struct merak_finding *f)
{
    for (int i = 0; i < ex->n; i++) {
        if (is_same(&ex->placed[i].finding, f))
            return &ex->placed[i];
    }
    return NULL;
}

static enum merak_status place(struct merak_examination *ex,
                               const struct merak_finding *f, int node,
                               struct merak_error *err)
{
    struct merak_placed_finding *p = find_same(ex, f);
    size_t bytes = (size_t)(ex->n + 1) * sizeof(*ex->placed);

    if (p == NULL) {
        p = realloc(ex->placed, bytes);
        if (p == NULL)
            return merak_fail_nomem(err, bytes);
        ex->placed = p;
        p = &ex->placed[ex->n];
        *p = (struct merak_placed_finding){.finding = *f};
        p->node = malloc((size_t)ex->n_nodes * sizeof(*p->node));
        if (p->node == NULL)
            return merak_fail_nomem(err, (size_t)ex->n_nodes * sizeof(int));
        ex->n++;
    }
    if (p->n_nodes == 0 || p->node[p->n_nodes - 1] != node)
        p->node[p->n_nodes++] = node;
    return MERAK_OK;
}

static int threads_asked_for(struct merak_findings *found)
{
    struct merak_error why;
    int n = 1;

    if (merak_boot_cpus(&n, &why) != MERAK_OK)
        merak_find_code(
            merak_find(found, MERAK_FINDING_ERROR, "binding", "%s", why.text),
            MERAK_EXIT_CONFIG);
    return n;
}

/* Compare the cores of a node's tasks. */
static enum merak_status judge_cores(const struct merak_boot *boot, int node,
                                     const struct merak_cores *cores,
                                     struct merak_examination *ex,
                                     struct merak_error *err)
{
    struct merak_findings found = {.n = 0};
    struct merak_cores *here;
    enum merak_status rc = MERAK_OK;
    int n = 0, threads;

    here = calloc((size_t)boot->size, sizeof(*here));
    if (here == NULL)
        return merak_fail_nomem(err, (size_t)boot->size * sizeof(*here));
    for (int r = 0; r < boot->size; r++) {
        if (boot->node_of[r] == node)
            here[n++] = cores[r];
    }
    threads = threads_asked_for(&found);
    merak_cores_judge(here, n, threads, &found);
    for (int i = 0; i < found.n && rc == MERAK_OK; i++)
        rc = place(ex, &found.one[i], node, err);
    free(here);
    return rc;
}

/* Parse the text of one rank. */
static enum merak_status take(const char *text, int node,
                              struct merak_cores *cores,
                              struct merak_examination *ex,
                              struct merak_error *err)
{
    json_t *all = json_loads(text, 0, NULL), *one;
    struct merak_finding f;
    const char *list;
    enum merak_status rc = MERAK_OK;
    size_t i;

    list = json_string_value(json_object_get(all, "cores"));
    if (list == NULL || !merak_cores_parse(list, cores))
        rc = merak_fail(err, MERAK_ERR_PEER,
                        "a task sent no findings; do all run the same merak?");
    json_array_foreach(json_object_get(all, "found"), i, one)
    {
        if (rc == MERAK_OK && unpack_finding(one, &f))
            rc = place(ex, &f, node, err);
    }
    json_decref(all);
    return rc;
}

/* Merge texts[rank] of all ranks. */
static enum merak_status draw_up(const struct merak_boot *boot, char **texts,
                                 struct merak_examination *ex,
                                 struct merak_error *err)
{
    struct merak_cores *cores = calloc((size_t)boot->size, sizeof(*cores));
    enum merak_status rc =
        cores != NULL
            ? MERAK_OK
            : merak_fail_nomem(err, (size_t)boot->size * sizeof(*cores));

    for (int r = 0; r < boot->size && rc == MERAK_OK; r++)
        rc = take(texts[r], boot->node_of[r], &cores[r], ex, err);
    for (int node = 0; node < boot->n_nodes && rc == MERAK_OK; node++)
        rc = judge_cores(boot, node, cores, ex, err);
    free(cores);
    return rc;
}

/* Allgather cards, round by round, until the longest text is complete. */
static enum merak_status swap_texts(struct merak_boot *boot, const char *mine,
                                    char **texts, struct merak_error *err)
{
    size_t size = (size_t)boot->size, bytes = strlen(mine) + 1, most = 0;
    size_t *length = calloc(size, sizeof(*length));
    char *cards = malloc(size * CARD_BYTES), card[CARD_BYTES];
    enum merak_status rc = MERAK_OK;

    if (length == NULL || cards == NULL)
        rc = merak_fail_nomem(err, size * CARD_BYTES);
    rc = merak_boot_agree(boot, rc, err);
    if (rc == MERAK_OK)
        rc = boot->ops->allgather(boot, &bytes, sizeof(bytes), length, err);
    for (size_t r = 0; r < size && rc == MERAK_OK; r++) {
        most = length[r] > most ? length[r] : most;
        texts[r] = calloc(1, length[r] + 1);
        if (texts[r] == NULL)
            rc = merak_fail_nomem(err, length[r]);
    }
    rc = rc == MERAK_OK ? merak_boot_agree(boot, rc, err) : rc;
    for (size_t at = 0; at < most && rc == MERAK_OK; at += CARD_BYTES) {
        size_t n = bytes > at ? bytes - at : 0;

        memset(card, 0, sizeof(card));
        memcpy(card, mine + (n > 0 ? at : 0), n < CARD_BYTES ? n : CARD_BYTES);
        rc = boot->ops->allgather(boot, card, CARD_BYTES, cards, err);
        for (size_t r = 0; r < size && rc == MERAK_OK; r++) {
            n = length[r] > at ? length[r] - at : 0;
            memcpy(texts[r] + (n > 0 ? at : 0), cards + r * CARD_BYTES,
                   n < CARD_BYTES ? n : CARD_BYTES);
        }
    }
    free(cards);
    free(length);
    return rc;
}

static enum merak_status gather(struct merak_boot *boot, const char *mine,
                                struct merak_examination *ex,
                                struct merak_error *err)
{
    char **texts = calloc((size_t)boot->size, sizeof(*texts));
    enum merak_status rc = MERAK_OK;

    if (mine == NULL || texts == NULL)
        rc = merak_fail_nomem(err, CARD_BYTES);
    rc = merak_boot_agree(boot, rc, err);
    if (rc == MERAK_OK)
        rc = swap_texts(boot, mine, texts, err);
    if (rc == MERAK_OK && boot->rank == 0)
        rc = draw_up(boot, texts, ex, err);
    for (int r = 0; texts != NULL && r < boot->size; r++)
        free(texts[r]);
    free(texts);
    return rc;
}

enum merak_status merak_examine(struct merak_boot *boot, const char *dir,
                                struct merak_examination *ex,
                                struct merak_error *err)
{
    struct merak_findings *found = calloc(1, sizeof(*found));
    char cores_text[CORES_TEXT] = "", *mine;
    struct merak_cores cores;
    enum merak_status rc = MERAK_OK;

    *ex = (struct merak_examination){
        .tasks = boot->size, .n_nodes = boot->n_nodes, .hosts = boot->hosts};
    if (found == NULL)
        rc = merak_fail_nomem(err, sizeof(*found));
    rc = merak_boot_agree(boot, rc, err);
    if (rc == MERAK_OK)
        rc = look_around(boot, dir, found, err);
    if (rc == MERAK_OK) {
        if (merak_cores_gather(&cores))
            merak_cores_text(&cores, cores_text, sizeof(cores_text));
        mine = pack_findings(found, cores_text);
        rc = gather(boot, mine, ex, err);
        free(mine);
    }
    free(found);
    return rc;
}

void merak_examination_fini(struct merak_examination *ex)
{
    for (int i = 0; i < ex->n; i++)
        free(ex->placed[i].node);
    free(ex->placed);
    ex->placed = NULL;
    ex->n = 0;
}

int merak_examination_code(const struct merak_examination *ex)
{
    for (int i = 0; i < ex->n; i++) {
        if (ex->placed[i].finding.level == MERAK_FINDING_ERROR)
            return ex->placed[i].finding.code;
    }
    return MERAK_EXIT_DONE;
}
