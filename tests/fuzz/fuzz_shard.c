/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_shard.c - the HDF5 files of a checkpoint: a shard, the master
 *
 * A file that does not have the manifest's checksum is refused unread.  So the
 * manifest is made to fit the changed file, as if who changed it knew how: what
 * HDF5 and we then read may be wrong, but not out of bounds. */
#include "config.h"

#include "fuzz/fuzz.h"

#include "fuzz/fuzz_ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char shard_name[] = "shard-00000.h5";
static char manifest_path[700], committed_path[700], shard_path[700];

void fuzz_seeds(void)
{
    const char *dir = fuzz_ckpt();

    snprintf(manifest_path, sizeof(manifest_path), "%s/" MERAK_CKPT_MANIFEST,
             dir);
    snprintf(committed_path, sizeof(committed_path), "%s/" MERAK_CKPT_COMMITTED,
             dir);
    snprintf(shard_path, sizeof(shard_path), "%s/%s", dir, shard_name);
    fuzz_add_file(-1, shard_path);
}

static void write_whole(const char *path, const void *data, size_t n)
{
    FILE *out = fopen(path, "wbe");

    fuzz_must(out != NULL && fwrite(data, 1, n, out) == n && fclose(out) == 0,
              "a file is written");
}

/* The shard, and a manifest with its size and checksum. */
static void put_shard(const uint8_t *data, size_t n)
{
    static json_t *root;
    char hash[MERAK_HASH_TEXT], record[MERAK_CKPT_MAX_RECORD], *text;
    json_t *shard;

    if (root == NULL)
        root = json_load_file(manifest_path, 0, NULL);
    shard = json_array_get(json_object_get(root, "shards"), 0);
    fuzz_must(shard != NULL, "the manifest has a shard");
    merak_hash(data, n, hash);
    json_object_set_new(shard, "bytes", json_integer((json_int_t)n));
    json_object_set_new(shard, "xxh128", json_string(hash));
    /* then its parts are taken to be as sound as the whole */
    json_object_del(shard, "rest");
    text = json_dumps(root, 0);
    fuzz_must(text != NULL, "a manifest has a text");
    write_whole(shard_path, data, n);
    write_whole(manifest_path, text, strlen(text));
    write_whole(committed_path, record,
                merak_ckpt_record(record, 7, text, strlen(text)));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static float x[FUZZ_ELEMENTS];
    struct merak_ckpt *ckpt = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc;

    put_shard(data, n);
    rc = merak_ckpt_open(fuzz_ckpt(), &ckpt, &err);
    for (int i = 0; i < FUZZ_TENSORS && rc == MERAK_OK; i++) {
        const struct merak_ckpt_piece piece = fuzz_piece(i, x);

        rc = merak_ckpt_read(ckpt, &piece, &err);
    }
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    merak_ckpt_close(ckpt);
    rc = merak_ckpt_verify(fuzz_ckpt(), NULL, NULL, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    return 0;
}
