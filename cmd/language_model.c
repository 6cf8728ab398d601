/* SPDX-License-Identifier: Apache-2.0 */
/* language_model.c - a checkpoint's model, ready to run, and its tokenizer */
#include "config.h"

#include "cmd/language_model.h"

#include "base/error.h"
#include "base/hub.h"
#include "base/log.h"
#include "io/ckpt/ckpt.h"
#include "io/lora_record.h"
#include "io/weights/run_model.h"
#include "runtime/boot/boot.h"
#include "runtime/runtime.h"
#include "runtime/train/param_rules.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- where things are --------------------------------------------------- */

static bool is_there(const char *path)
{
    char room[PATH_MAX];
    struct stat st;

    return stat(merak_hub_path(path, room), &st) == 0;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The folder of the model's files: --model if that is a folder; else --ckpt,
 * or its run's model folder; "" if none has a config.json. */
static void find_folder(const struct merak_lm_options *opt,
                        char folder[PATH_MAX])
{
    static const char *const near[] = {"", "/" MERAK_RUN_MODEL, "/..",
                                       "/../" MERAK_RUN_MODEL};
    size_t n = merak_ckpt_is_one(opt->ckpt) ? 4 : 2;
    char path[PATH_MAX + 16], room[PATH_MAX];
    const char *from;

    folder[0] = '\0';
    if (opt->model != NULL) {
        from = merak_hub_path(opt->model, room);
        if (is_folder(from))
            snprintf(folder, PATH_MAX, "%s", from);
        return;
    }
    from = merak_hub_path(opt->ckpt, room);
    for (size_t i = 0; i < n && folder[0] == '\0'; i++) {
        snprintf(folder, PATH_MAX, "%s%s", from, near[i]);
        snprintf(path, sizeof(path), "%s/config.json", folder);
        if (!is_there(path))
            folder[0] = '\0';
    }
}

static enum merak_status read_config(const struct merak_lm_options *opt,
                                     const char *folder, struct merak_lm *lm,
                                     struct merak_error *err)
{
    const char *path = opt->model != NULL ? opt->model : folder, *what;
    enum merak_status rc;

    if (path[0] == '\0')
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no config.json in %s: give --model DIR, a Hugging "
                          "Face folder or its config.json",
                          opt->ckpt);
    rc = merak_hf_config_read(path, (enum merak_hf_unknown)opt->unknown,
                              &lm->config, err);
    if (rc != MERAK_OK)
        return merak_error_as_config(rc, err);
    if (!merak_hf_is_causal(&lm->config, &what))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.100s: model_type %s is %s, expected a model that "
                          "predicts the next token",
                          path, merak_hf_family_name(lm->config.family), what);
    if (lm->config.note[0] != '\0')
        merak_info("io", "%s", lm->config.note);
    return MERAK_OK;
}

/* --- opening ------------------------------------------------------------- */

static enum merak_status open_tokenizer(const struct merak_lm_options *opt,
                                        const char *folder, bool need,
                                        struct merak_lm *lm,
                                        struct merak_error *err)
{
    static const char *const file[] = {"tokenizer.json", "tokenizer.model"};
    char path[PATH_MAX + 32];

    if (opt->tokenizer != NULL)
        return merak_tokenizer_open(opt->tokenizer, &lm->tokenizer, err);
    for (size_t i = 0; i < 2 && folder[0] != '\0'; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, file[i]);
        if (is_there(path))
            return merak_tokenizer_open(path, &lm->tokenizer, err);
    }
    return !need ? MERAK_OK
                 : merak_fail(err, MERAK_ERR_CONFIG,
                              "no tokenizer: give --tokenizer byte, a "
                              "tokenizer.json or a folder that has one");
}

static enum merak_status check_vocab(const struct merak_lm *lm,
                                     struct merak_error *err)
{
    if (lm->tokenizer == NULL ||
        merak_tokenizer_vocab(lm->tokenizer) <= lm->config.vocab)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_MISMATCH,
                      "the tokenizer has %zu tokens, the model %zu: it was "
                      "trained with another one",
                      merak_tokenizer_vocab(lm->tokenizer), lm->config.vocab);
}

enum merak_status merak_lm_open(const struct merak_lm_options *opt,
                                bool need_tokenizer, struct merak_lm *lm,
                                struct merak_error *err)
{
    enum merak_status rc;

    memset(lm, 0, sizeof(*lm));
    if (opt->ckpt == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "no weights: give --ckpt DIR, a Hugging Face "
                          "folder, a run or one checkpoint of it");
    if (!is_there(opt->ckpt))
        return merak_fail_no_weights(
            err, "--ckpt", opt->ckpt,
            "a Hugging Face folder, a run or one checkpoint of it");
    find_folder(opt, lm->folder);
    rc = read_config(opt, lm->folder, lm, err);
    if (rc == MERAK_OK)
        rc = open_tokenizer(opt, lm->folder, need_tokenizer, lm, err);
    if (rc == MERAK_OK)
        rc = check_vocab(lm, err);
    return rc;
}

/* Hops that were sent in part while the weights were trained are whole here,
 * where there are no stages. */
static void warn_of_hops(const struct merak_ckpt_state *state)
{
    static const char key[] = "--lossy-hops=";
    const char *at = strstr(state->fingerprint, key), *end;

    if (at == NULL)
        return;
    at += sizeof(key) - 1;
    end = at + strcspn(at, ";");
    if (strncmp(at, "none;", 5) != 0)
        merak_warn("cmd",
                   "the weights were trained with --lossy-hops %.*s; here hops "
                   "are whole, for which they are not as good",
                   (int)(end - at), at);
}

/* The adapters of a checkpoint; none of a folder.  Of a run, `path` becomes the
 * checkpoint that was chosen: what is skipped is told of once. */
static enum merak_status read_record(const char *dir, char path[PATH_MAX],
                                     struct merak_lora_record *record,
                                     struct merak_error *err)
{
    struct merak_ckpt *ckpt = NULL;
    enum merak_status rc;

    memset(record, 0, sizeof(*record));
    snprintf(path, PATH_MAX, "%s", dir);
    if (merak_safetensors_is_one(dir))
        return MERAK_OK;
    rc = merak_ckpt_open(dir, &ckpt, err);
    if (rc == MERAK_OK) {
        (void)merak_lora_parse(merak_ckpt_state(ckpt)->recipe, record);
        warn_of_hops(merak_ckpt_state(ckpt));
        snprintf(path, PATH_MAX, "%s", merak_ckpt_path(ckpt));
    }
    merak_ckpt_close(ckpt);
    /* merak_decoder_load() says what is not there */
    return rc == MERAK_ERR_NOT_FOUND ? MERAK_OK : rc;
}

enum merak_status merak_lm_load(struct merak_lm *lm,
                                const struct merak_lm_options *opt,
                                size_t positions, bool grows,
                                struct merak_error *err)
{
    static const struct merak_param_rules none = {.n = 0};
    struct merak_lora_record record;
    char path[PATH_MAX];
    struct merak_ruled_model ruled = {.describe = merak_hf_describe,
                                      .arg = &lm->config,
                                      .rules = &none,
                                      .lora = &record.lora};
    struct merak_decoder_options how = {
        .describe = merak_ruled_describe,
        .arg = &ruled,
        .dtype = opt->dtype == 1 ? MERAK_BF16 : MERAK_F32,
        .positions = positions,
        .early = grows ? lm->config.rope.short_positions : 0,
        .threads = opt->threads,
        .weights = path,
    };
    enum merak_status rc = read_record(opt->ckpt, path, &record, err);

    if (rc == MERAK_OK && how.threads == 0)
        rc = merak_boot_threads(1, &how.threads, err);
    if (rc == MERAK_OK)
        rc = merak_decoder_create(&how, &lm->decoder, err);
    return rc == MERAK_OK ? merak_decoder_load(lm->decoder, path, err) : rc;
}

void merak_lm_close(struct merak_lm *lm)
{
    merak_decoder_destroy(lm->decoder);
    merak_tokenizer_close(lm->tokenizer);
    memset(lm, 0, sizeof(*lm));
}

/* --- ids ----------------------------------------------------------------- */

enum merak_status merak_ids_add(void *ids, const int32_t *id, size_t n,
                                struct merak_error *err)
{
    struct merak_ids *to = ids;

    if (n > to->room - to->n) {
        size_t room = 2 * (to->n + n);
        int32_t *more = realloc(to->id, room * sizeof(*more));

        if (more == NULL)
            return merak_fail_nomem(err, room * sizeof(*more));
        to->id = more;
        to->room = room;
    }
    memcpy(to->id + to->n, id, n * sizeof(*id));
    to->n += n;
    return MERAK_OK;
}
