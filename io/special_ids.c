/* SPDX-License-Identifier: Apache-2.0 */
/* special_ids.c - ids with a meaning of their own, of a Hugging Face folder
 *
 * tokenizer.json lists such tokens under "added_tokens", and all others under
 * "model" and "vocab"; tokenizer_config.json says which of them is the mask.
 * vocab.txt, which WordPiece had before, has a token a line, and its number
 * from 0 is the id.
 */
#include "config.h"

#include "io/special_ids.h"

#include "base/error.h"
#include "base/hub.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder's files; NULL: it has none such. */
struct files {
    char folder[PATH_MAX];
    json_t *config, *tokenizer, *tokenizer_config;
};

/* --- files ------------------------------------------------------------------
 */

static enum merak_status load(const char *folder, const char *name,
                              json_t **root_p, struct merak_error *err)
{
    char path[PATH_MAX + 32];
    json_error_t why;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (access(path, F_OK) != 0)
        return MERAK_OK;
    *root_p = json_load_file(path, 0, &why);
    return json_is_object(*root_p)
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_FORMAT,
                            "%.200s: expected a JSON object%s%.100s", path,
                            *root_p == NULL ? ": " : "",
                            *root_p == NULL ? why.text : "");
}

/* The folder that the model is, or is in. */
static void find_folder(const char *model, struct files *files)
{
    char room[PATH_MAX], *slash;
    struct stat st;

    snprintf(files->folder, sizeof(files->folder), "%s",
             merak_hub_path(model, room));
    if (stat(files->folder, &st) == 0 && S_ISDIR(st.st_mode))
        return;
    slash = strrchr(files->folder, '/');
    if (slash == NULL)
        strcpy(files->folder, ".");
    else
        slash[slash == files->folder] = '\0';
}

/* --- tokens -----------------------------------------------------------------
 */

static int32_t id_of(const json_t *value)
{
    json_int_t id = json_integer_value(value);

    return json_is_integer(value) && id >= 0 && id <= INT32_MAX ? (int32_t)id
                                                                : -1;
}

static int32_t find_added(const struct files *files, const char *token)
{
    const json_t *added = json_object_get(files->tokenizer, "added_tokens");
    const json_t *entry;
    size_t i;

    json_array_foreach(added, i, entry)
    {
        const char *content =
            json_string_value(json_object_get(entry, "content"));

        if (content != NULL && strcmp(content, token) == 0)
            return id_of(json_object_get(entry, "id"));
    }
    return -1;
}

static int32_t find_line(const struct files *files, const char *token)
{
    char path[PATH_MAX + 32], *line = NULL;
    int32_t id = -1;
    size_t room = 0;
    ssize_t n;
    FILE *f;

    snprintf(path, sizeof(path), "%s/vocab.txt", files->folder);
    f = fopen(path, "r");
    if (f == NULL)
        return -1;
    for (int32_t i = 0; id < 0 && (n = getline(&line, &room, f)) >= 0; i++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (strcmp(line, token) == 0)
            id = i;
    }
    free(line);
    fclose(f);
    return id;
}

static int32_t find_token(const struct files *files, const char *token)
{
    const json_t *model = json_object_get(files->tokenizer, "model");
    int32_t id = find_added(files, token);

    if (id < 0)
        id = id_of(json_object_get(json_object_get(model, "vocab"), token));
    if (id < 0 && files->tokenizer == NULL)
        id = find_line(files, token);
    return id;
}

/* What tokenizer_config.json says, or the usual names. */
static int32_t find_mask(const struct files *files)
{
    static const char *const usual[] = {"[MASK]", "<mask>"};
    const json_t *said = json_object_get(files->tokenizer_config, "mask_token");
    int32_t id = -1;

    if (json_is_object(said))
        said = json_object_get(said, "content");
    if (json_is_string(said))
        id = find_token(files, json_string_value(said));
    for (size_t i = 0; i < sizeof(usual) / sizeof(*usual) && id < 0; i++)
        id = find_token(files, usual[i]);
    return id;
}

static void find_sentinels(const struct files *files,
                           struct merak_special_ids *ids)
{
    char token[32];
    int32_t id;

    ids->sentinel = find_token(files, "<extra_id_0>");
    while (ids->sentinel >= 0) {
        snprintf(token, sizeof(token), "<extra_id_%zu>", ids->n_sentinels);
        id = find_token(files, token);
        if (id < 0 || (size_t)ids->sentinel != (size_t)id + ids->n_sentinels)
            return;
        ids->n_sentinels++;
    }
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* Of tokenizer.json those that are said to be special; of vocab.txt BERT's. */
static enum merak_status list_special(const struct files *files,
                                      struct merak_special_ids *ids,
                                      struct merak_error *err)
{
    static const char *const berts[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                        "[MASK]"};
    const json_t *added = json_object_get(files->tokenizer, "added_tokens");
    const size_t n = sizeof(berts) / sizeof(*berts);
    const json_t *entry;
    size_t i;

    ids->special = calloc(json_array_size(added) + n, sizeof(*ids->special));
    if (ids->special == NULL)
        return merak_fail_nomem(err, n);
    json_array_foreach(added, i, entry)
    {
        int32_t id = id_of(json_object_get(entry, "id"));

        if (id >= 0 && json_is_true(json_object_get(entry, "special")))
            ids->special[ids->n_special++] = id;
    }
    for (i = 0; i < n && files->tokenizer == NULL; i++) {
        int32_t id = find_token(files, berts[i]);

        if (id >= 0)
            ids->special[ids->n_special++] = id;
    }
    qsort(ids->special, ids->n_special, sizeof(*ids->special), compare_ids);
    return MERAK_OK;
}

/* --- open, close ------------------------------------------------------------
 */

static enum merak_status read_files(struct files *files,
                                    struct merak_special_ids *ids,
                                    struct merak_error *err)
{
    enum merak_status rc =
        load(files->folder, "config.json", &files->config, err);

    if (rc == MERAK_OK)
        rc = load(files->folder, "tokenizer.json", &files->tokenizer, err);
    if (rc == MERAK_OK)
        rc = load(files->folder, "tokenizer_config.json",
                  &files->tokenizer_config, err);
    if (rc != MERAK_OK)
        return rc;
    ids->end = id_of(json_object_get(files->config, "eos_token_id"));
    ids->pad = id_of(json_object_get(files->config, "pad_token_id"));
    ids->start =
        id_of(json_object_get(files->config, "decoder_start_token_id"));
    ids->mask = find_mask(files);
    find_sentinels(files, ids);
    return list_special(files, ids, err);
}

enum merak_status merak_special_ids_read(const char *model,
                                         struct merak_special_ids *ids,
                                         struct merak_error *err)
{
    struct files *files;
    enum merak_status rc;

    *ids = (struct merak_special_ids){
        .mask = -1, .sentinel = -1, .end = -1, .pad = -1, .start = -1};
    if (model == NULL)
        return MERAK_OK;
    files = calloc(1, sizeof(*files));
    if (files == NULL)
        return merak_fail_nomem(err, sizeof(*files));
    find_folder(model, files);
    rc = read_files(files, ids, err);
    json_decref(files->config);
    json_decref(files->tokenizer);
    json_decref(files->tokenizer_config);
    free(files);
    return rc;
}

void merak_special_ids_fini(struct merak_special_ids *ids)
{
    int saved = errno;

    free(ids->special);
    ids->special = NULL;
    ids->n_special = 0;
    errno = saved;
}
