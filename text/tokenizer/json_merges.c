/* SPDX-License-Identifier: Apache-2.0 */
/* json_merges.c - the byte-pair merges of a tokenizer.json */
#include "config.h"

#include "text/tokenizer/json_impl.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* A character without a token becomes the tokens of its bytes, or the unknown
 * token; without either it is left out, as Hugging Face's library does. */
static enum merak_status find_fallback(struct merak_json_loader *ld,
                                       json_t *model,
                                       struct merak_bpe_options *opt)
{
    json_t *unknown = json_object_get(model, "unk_token");
    bool bytes = json_is_true(json_object_get(model, "byte_fallback"));
    char name[8];

    for (unsigned b = 0; b < 256; b++) {
        const unsigned char byte = (unsigned char)b;

        snprintf(name, sizeof(name), "<0x%02X>", b);
        if (ld->byte_level)
            opt->byte_id[b] =
                merak_token_index_find(ld->vocab->index, &byte, 1);
        else
            opt->byte_id[b] =
                bytes ? merak_token_index_find(ld->vocab->index, name, 6) : -1;
        if (ld->byte_level && bytes && opt->byte_id[b] < 0)
            return merak_fail(
                ld->err, MERAK_ERR_UNSUPPORTED,
                "%s: no token for byte %u, and byte_fallback with "
                "ByteLevel",
                ld->path, b);
    }
    if (json_is_string(unknown))
        opt->unknown = merak_json_token_id(ld, json_string_value(unknown));
    if (json_is_string(unknown) && opt->unknown < 0)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: unk_token \"%.40s\" is not in the vocabulary",
                          ld->path, json_string_value(unknown));
    return MERAK_OK;
}

static enum merak_status create_bpe(struct merak_json_loader *ld, json_t *model,
                                    size_t n_merges)
{
    struct merak_bpe_options opt = {
        .chars = !ld->byte_level,
        .ignore_merges = json_is_true(json_object_get(model, "ignore_merges")),
        .unknown = -1,
        .fuse_unknown = json_is_true(json_object_get(model, "fuse_unk")),
        .index = ld->vocab->index,
    };
    enum merak_status rc = find_fallback(ld, model, &opt);

    return rc == MERAK_OK
               ? merak_bpe_create(&opt, n_merges, &ld->vocab->bpe, ld->err)
               : rc;
}

/* The two sides of merge number i; left is copied into room. */
static bool merge_sides(const json_t *merge, char *room, size_t max,
                        const char **left_p, const char **right_p)
{
    const char *text = json_string_value(merge);
    const char *space = text == NULL ? NULL : strchr(text, ' ');

    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left_p = json_string_value(json_array_get(merge, 0));
        *right_p = json_string_value(json_array_get(merge, 1));
        return *left_p != NULL && *right_p != NULL;
    }
    if (space == NULL || strchr(space + 1, ' ') != NULL ||
        (size_t)(space - text) >= max)
        return false;
    memcpy(room, text, (size_t)(space - text));
    room[space - text] = '\0';
    *left_p = room;
    *right_p = space + 1;
    return true;
}

static enum merak_status load_merge(struct merak_json_loader *ld, size_t i,
                                    const json_t *merge)
{
    char room[2048], whole[4096];
    const char *left, *right;
    int32_t l, r, id;

    if (!merge_sides(merge, room, sizeof(room), &left, &right))
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: merge %zu is not two tokens", ld->path, i);
    if ((size_t)snprintf(whole, sizeof(whole), "%s%s", left, right) >=
        sizeof(whole))
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: merge %zu is longer than %zu bytes", ld->path, i,
                          sizeof(whole));
    l = merak_json_token_id(ld, left);
    r = merak_json_token_id(ld, right);
    id = merak_json_token_id(ld, whole);
    if (l < 0 || r < 0 || id < 0)
        return merak_fail(ld->err, MERAK_ERR_FORMAT,
                          "%s: merge %zu needs token \"%.40s\", which the "
                          "vocabulary lacks",
                          ld->path, i,
                          l < 0   ? left
                          : r < 0 ? right
                                  : whole);
    merak_bpe_merge(ld->vocab->bpe, l, r, id);
    return MERAK_OK;
}

enum merak_status merak_json_merges(struct merak_json_loader *ld, json_t *model)
{
    json_t *merges = json_object_get(model, "merges"), *merge;
    size_t i;
    enum merak_status rc = create_bpe(ld, model, json_array_size(merges));

    if (rc != MERAK_OK)
        return rc;
    json_array_foreach(merges, i, merge)
    {
        rc = load_merge(ld, i, merge);
        if (rc != MERAK_OK)
            return rc;
    }
    return MERAK_OK;
}
