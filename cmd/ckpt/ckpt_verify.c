/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_verify.c - `merak ckpt verify`: check all checksums, and repair the
 * master file
 */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include "base/clock.h"
#include "base/size.h"

#include <stdlib.h>

struct verify {
    bool json, repair;
    json_t *all; /* with --json: the findings */
};

static const struct merak_option rows[] = {
    {"repair-master", MERAK_OPTION_YES, offsetof(struct verify, repair),
     .about = "rewrite the master file if it is damaged or missing"},
    {"json", MERAK_OPTION_YES, offsetof(struct verify, json),
     .about = "as a line of JSON"},
};
const struct merak_option_table ckpt_verify_options = {
    rows, sizeof(rows) / sizeof(rows[0])};

struct one {
    const char *dir;
    struct merak_progress progress;
    json_t *damage; /* NULL: print it */
};

static void take_damage(void *arg, const char *line)
{
    struct one *one = arg;

    merak_progress_clear(&one->progress);
    if (one->damage != NULL)
        json_array_append_new(one->damage, json_string(line));
    else
        printf("%s: %s\n", one->dir, line);
}

/* Repair the master; returns the result as in JSON, or NULL if impossible. */
static const char *repair(const struct verify *v, const char *dir)
{
    static const char *const text[] = {
        [MERAK_CKPT_REPAIR_SOUND] = "sound",
        [MERAK_CKPT_REPAIR_SAME] = "rewritten, as it was",
        [MERAK_CKPT_REPAIR_REWRITTEN] =
            "rewritten, with a new entry in the manifest",
    };
    enum merak_ckpt_repair found;
    struct merak_error err;
    enum merak_status rc = merak_ckpt_repair_master(dir, &found, &err);

    if (rc != MERAK_OK) {
        fprintf(stderr, "merak ckpt verify: the master is not repaired: %s\n",
                err.text);
        return NULL;
    }
    if (!v->json && found != MERAK_CKPT_REPAIR_SOUND)
        printf("%s: %s is %s\n", dir, MERAK_CKPT_MASTER, text[found]);
    return text[found];
}

static void report(struct verify *v, struct one *one, bool sound,
                   const char *master, double seconds)
{
    struct merak_ckpt_manifest *mf = NULL;
    char size[16];
    json_t *json;

    if (sound && merak_ckpt_load(one->dir, &mf, NULL) == MERAK_OK && !v->json)
        printf("%s: sound, %d tensor%s in %d shard%s, %s checked in %.1f s\n",
               one->dir, mf->n_tensors, merak_plural(mf->n_tensors),
               mf->n_shards, merak_plural(mf->n_shards),
               ckpt_size_text(size, ckpt_total_bytes(mf)), seconds);
    if (v->json) {
        json =
            json_pack("{s:s, s:b, s:O, s:f}", "checkpoint", one->dir, "sound",
                      sound, "damage", one->damage, "seconds", seconds);
        if (v->repair)
            json_object_set_new(json, "master",
                                master != NULL ? json_string(master)
                                               : json_null());
        if (mf != NULL)
            json_object_update_new(
                json, json_pack("{s:I, s:i, s:i}", "bytes",
                                (json_int_t)ckpt_total_bytes(mf), "tensors",
                                mf->n_tensors, "shards", mf->n_shards));
        json_array_append_new(v->all, json);
    }
    merak_ckpt_manifest_destroy(mf);
}

static int verify_one(struct verify *v, const char *dir)
{
    int64_t start_ns = merak_clock_ns();
    struct one one = {.dir = dir, .damage = v->json ? json_array() : NULL};
    const char *master = v->repair ? repair(v, dir) : NULL;
    struct merak_error err;
    enum merak_status rc;
    int code = MERAK_EXIT_DONE;

    merak_progress_init(&one.progress, stderr, "verify", "B", 0);
    rc = merak_ckpt_verify_watched(dir, take_damage, &one, &one.progress, &err);
    merak_progress_clear(&one.progress);
    if (rc == MERAK_OK || rc == MERAK_ERR_CORRUPT)
        report(v, &one, rc == MERAK_OK, master, merak_clock_since_s(start_ns));
    if (rc == MERAK_ERR_CORRUPT)
        code = MERAK_EXIT_DATA;
    else if (rc != MERAK_OK)
        code = ckpt_failed("verify", rc, &err);
    json_decref(one.damage);
    return code;
}

static int verify_run(struct verify *v, const char *run)
{
    struct merak_ckpt_entry *entries = NULL;
    struct merak_error err;
    char path[PATH_MAX];
    enum merak_status rc;
    int n = 0, checked = 0, code = MERAK_EXIT_DONE;

    rc = merak_ckpt_list(run, &entries, &n, &err);
    if (rc != MERAK_OK)
        return ckpt_failed("verify", rc, &err);
    for (int i = 0; i < n; i++) {
        int one;

        if (entries[i].kind == MERAK_CKPT_TMP)
            continue;
        one = verify_one(v, merak_path(path, run, entries[i].name));
        code = one != MERAK_EXIT_DONE ? one : code;
        checked++;
    }
    free(entries);
    if (checked == 0) {
        fprintf(stderr, "merak ckpt verify: no checkpoint in %s\n", run);
        return MERAK_EXIT_DATA;
    }
    return code;
}

int ckpt_run_verify(int argc, char **argv)
{
    struct verify v = {.json = false};
    struct ckpt_words words;
    int code = ckpt_parse(&ckpt_verify_options, &v, argc, argv, 1, 1,
                          "a directory", &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    v.all = v.json ? json_array() : NULL;
    code = merak_ckpt_is_one(words.word[0]) ? verify_one(&v, words.word[0])
                                            : verify_run(&v, words.word[0]);
    if (v.json)
        return ckpt_flushed_json(
            "verify", json_pack("{s:o}", "checkpoints", v.all), code);
    return ckpt_flushed("verify", code);
}
