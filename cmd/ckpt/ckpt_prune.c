/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_prune.c - `merak ckpt prune`: remove checkpoints as training would have
 */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"
#include "cmd/finish.h"

#include "base/error.h"
#include "io/ckpt/owner.h"

struct prune {
    int keep;
    uint64_t every;
    bool dry_run, json;
    int removed;
    uint64_t freed_bytes;
    json_t *all; /* the fate of each */
};

#define AT(field) offsetof(struct prune, field)

static const struct merak_option rows[] = {
    {"keep", MERAK_OPTION_INT, AT(keep),
     .about = "how many of the newest loadable checkpoints stay (2)",
     .least = MERAK_CKPT_MIN_KEEP, .most = 1000000},
    {"keep-every", MERAK_OPTION_COUNT, AT(every),
     .about = "those at multiples of this many steps stay, too; 0: none (0)"},
    {"dry-run", MERAK_OPTION_YES, AT(dry_run),
     .about = "print what would be removed, and remove nothing"},
    {"json", MERAK_OPTION_YES, AT(json), .about = "as a line of JSON"},
};
const struct merak_option_table ckpt_prune_options = {
    rows, sizeof(rows) / sizeof(rows[0])};

static void take_fate(void *arg, const struct merak_ckpt_fate *fate)
{
    struct prune *p = arg;

    if (!fate->stays) {
        p->removed++;
        p->freed_bytes += fate->bytes;
    }
    json_array_append_new(p->all,
                          json_pack("{s:s, s:I, s:I, s:b, s:s}", "name",
                                    fate->name, "step", (json_int_t)fate->step,
                                    "bytes", (json_int_t)fate->bytes, "stays",
                                    fate->stays, "why", fate->why));
}

/* Claims the directory, since a running run removes old checkpoints itself.
 * The list is made before that, because claiming removes what dead saves
 * left. */
static enum merak_status prune(struct prune *p, const char *run,
                               struct merak_error *err)
{
    const struct merak_ckpt_keep keep = {p->keep, p->every};
    const struct merak_ckpt_pruning look = {
        .dry_run = true, .debris = true, .tell = take_fate, .arg = p};
    const struct merak_ckpt_pruning act = {.debris = true};
    struct merak_ckpt_owner *owner = NULL;
    enum merak_status rc;

    rc = merak_ckpt_prune(run, keep, UINT64_MAX, &look, err);
    if (rc == MERAK_OK && json_array_size(p->all) == 0)
        rc = merak_fail(err, MERAK_ERR_NOT_FOUND, "no checkpoint in %s", run);
    if (rc != MERAK_OK || p->dry_run)
        return rc;
    rc = merak_ckpt_owner_take(run, &owner, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_prune(run, keep, UINT64_MAX, &act, err);
    merak_ckpt_owner_destroy(owner);
    return rc;
}

static void print_fate(const struct prune *p, json_t *fate)
{
    const char *name = "", *why = "";
    json_int_t bytes = 0;
    char size[16];
    int stays = 0;

    if (json_unpack(fate, "{s:s, s:I, s:b, s:s}", "name", &name, "bytes",
                    &bytes, "stays", &stays, "why", &why) != 0)
        return;
    printf("%-20s %-8s %9s  %s\n", name,
           stays        ? "stays"
           : p->dry_run ? "would go"
                        : "removed",
           ckpt_size_text(size, (uint64_t)bytes), why);
}

static int conclude(struct prune *p, const char *run)
{
    char size[16];
    json_t *fate;
    size_t i;

    if (p->json)
        return ckpt_flushed_json(
            "prune",
            json_pack("{s:s, s:b, s:i, s:I, s:O}", "run", run, "dry_run",
                      p->dry_run, "removed", p->removed, "bytes",
                      (json_int_t)p->freed_bytes, "checkpoints", p->all),
            MERAK_EXIT_DONE);
    json_array_foreach(p->all, i, fate) print_fate(p, fate);
    printf("%d %s, %s\n", p->removed, p->dry_run ? "would go" : "removed",
           ckpt_size_text(size, p->freed_bytes));
    return ckpt_flushed("prune", MERAK_EXIT_DONE);
}

int ckpt_run_prune(int argc, char **argv)
{
    struct prune p = {.keep = MERAK_CKPT_MIN_KEEP};
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int code = ckpt_parse(&ckpt_prune_options, &p, argc, argv, 1, 1,
                          "the directory of a run", &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    if (merak_ckpt_is_one(words.word[0]))
        return merak_cmd_misused(
            "ckpt",
            "prune: %s is a checkpoint, expected the directory "
            "of a run",
            words.word[0]);
    p.all = json_array();
    rc = prune(&p, words.word[0], &err);
    code = rc == MERAK_OK ? conclude(&p, words.word[0])
                          : ckpt_failed("prune", rc, &err);
    json_decref(p.all);
    return code;
}
