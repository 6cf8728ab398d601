/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_ls.c - `merak ckpt ls`: the checkpoints of a run */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include <inttypes.h>
#include <stdlib.h>

struct ls {
    bool json;
};

static const struct merak_option rows[] = {
    {"json", MERAK_OPTION_YES, offsetof(struct ls, json),
     .about = "as a line of JSON"},
};
const struct merak_option_table ckpt_ls_options = {rows, sizeof(rows) /
                                                             sizeof(rows[0])};

/* One of a run's checkpoints. */
struct found {
    const struct merak_ckpt_entry *entry;
    char dir[PATH_MAX];
    struct merak_ckpt_manifest *mf; /* NULL: not committed, or damaged */
    bool damaged;
    struct merak_error why; /* if so */
};

static void look_at(const char *run_dir, const struct merak_ckpt_entry *entry,
                    struct found *found)
{
    *found = (struct found){.entry = entry};
    merak_path(found->dir, run_dir, entry->name);
    found->damaged =
        entry->kind != MERAK_CKPT_TMP &&
        merak_ckpt_load(found->dir, &found->mf, &found->why) != MERAK_OK;
}

/* " cp 2 ep 4", where there are more ranks along them than one. */
static const char *more_degrees(const struct merak_ckpt_state *state,
                                char text[32])
{
    int n = 0;

    text[0] = '\0';
    if (state->cp > 1)
        n = snprintf(text, 32, " cp %d", state->cp);
    if (state->ep > 1)
        snprintf(text + n, 32 - (size_t)n, " ep %d", state->ep);
    return text;
}

static void print_one(const struct found *found)
{
    const char *name = found->entry->name;
    char when[32], size[16], more[32], layout[MERAK_DEGREES_TEXT];
    const struct merak_ckpt_state *state;

    if (found->damaged) {
        printf("%-20s DAMAGED: %s\n", name, found->why.text);
        return;
    }
    if (found->mf == NULL) {
        printf("%-20s not committed: a save in progress, or interrupted\n",
               name);
        return;
    }
    state = &found->mf->state;
    if (state->stages[0] != '\0')
        snprintf(layout, sizeof(layout), "%s", state->stages);
    else
        snprintf(layout, sizeof(layout), "%dx%dx%d%s", state->tp, state->pp,
                 state->dp, more_degrees(state, more));
    printf("%-20s %-16s %10" PRIu64 " %9s %7d %7d  %-10s %s\n", name,
           ckpt_time_text(when, found->dir, false), state->step,
           ckpt_size_text(size, ckpt_total_bytes(found->mf)),
           found->mf->n_tensors, found->mf->n_shards, layout, state->dtype);
}

static json_t *json_one(const struct found *found)
{
    const struct merak_ckpt_manifest *mf = found->mf;
    char when[32];
    json_t *json = json_pack("{s:s, s:I, s:s}", "name", found->entry->name,
                             "step", (json_int_t)found->entry->step, "status",
                             found->damaged ? "damaged"
                             : mf == NULL   ? "not committed"
                                            : "committed");

    if (found->damaged)
        json_object_set_new(json, "why", json_string(found->why.text));
    if (mf != NULL)
        json_object_update_new(
            json,
            json_pack("{s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s}",
                      "saved", ckpt_time_text(when, found->dir, true), "bytes",
                      (json_int_t)ckpt_total_bytes(mf), "tensors",
                      mf->n_tensors, "shards", mf->n_shards, "tp", mf->state.tp,
                      "pp", mf->state.pp, "dp", mf->state.dp, "cp",
                      mf->state.cp, "ep", mf->state.ep, "dtype",
                      mf->state.dtype));
    if (mf != NULL && mf->state.stages[0] != '\0')
        json_object_set_new(json, "stages", json_string(mf->state.stages));
    return json;
}

static int list(const struct ls *ls, const char *dir,
                const struct merak_ckpt_entry *entries, int n)
{
    json_t *all = json_array();
    int damaged = 0, code;

    if (n == 0)
        fprintf(stderr, "merak ckpt ls: no checkpoint in %s\n", dir);
    else if (!ls->json)
        printf("%-20s %-16s %10s %9s %7s %7s  %-10s %s\n", "CHECKPOINT",
               "SAVED", "STEP", "SIZE", "TENSORS", "SHARDS", "TPxPPxDP",
               "DTYPE");
    for (int i = 0; i < n; i++) {
        struct found found;

        look_at(dir, &entries[i], &found);
        damaged += found.damaged;
        if (ls->json)
            json_array_append_new(all, json_one(&found));
        else
            print_one(&found);
        merak_ckpt_manifest_destroy(found.mf);
    }
    code = n == 0 || damaged > 0 ? MERAK_EXIT_DATA : MERAK_EXIT_DONE;
    if (ls->json)
        return ckpt_flushed_json(
            "ls", json_pack("{s:s, s:o}", "run", dir, "checkpoints", all),
            code);
    json_decref(all);
    return ckpt_flushed("ls", code);
}

int ckpt_run_ls(int argc, char **argv)
{
    struct merak_ckpt_entry *entries = NULL;
    struct ls ls = {.json = false};
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int n = 0, code;

    code = ckpt_parse(&ckpt_ls_options, &ls, argc, argv, 1, 1, "a directory",
                      &words);
    if (code != MERAK_EXIT_DONE)
        return code;
    rc = merak_ckpt_list(words.word[0], &entries, &n, &err);
    if (rc != MERAK_OK)
        return ckpt_failed("ls", rc, &err);
    code = list(&ls, words.word[0], entries, n);
    free(entries);
    return code;
}
