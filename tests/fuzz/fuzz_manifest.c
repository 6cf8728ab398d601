/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_manifest.c - the manifest of a checkpoint */
#include "config.h"

#include "fuzz/fuzz.h"

#include "fuzz/fuzz_ckpt.h"

#include <stdio.h>
#include <string.h>

/* Two shards that share a tensor, as two tensor ranks write it. */
static const char two_shards[] =
    "{\"format\": \"merak-checkpoint\", \"version\": 1,"
    " \"state\": {\"step\": 7, \"consumed_samples\": 5, \"consumed_tokens\": 4,"
    "  \"seed\": 1, \"seq\": 8, \"global_batch\": 8, \"model_id\": \"a\","
    "  \"data_id\": \"b\", \"dtype\": \"fp32\", \"tp\": 2, \"pp\": 1, \"dp\": "
    "1},"
    " \"master\": {\"file\": \"master.h5\", \"bytes\": 800,"
    "  \"xxh128\": \"0123456789abcdef0123456789abcdef\"},"
    " \"shards\": [{\"file\": \"shard-00000.h5\", \"bytes\": 4096,"
    "  \"xxh128\": \"0123456789abcdef0123456789abcdef\", \"parts\": ["
    "   {\"tensor\": \"param/w\", \"shape\": [4, 6], \"lo\": [0, 0],"
    "    \"len\": [4, 3], \"offset\": 2048,"
    "    \"xxh128\": \"0123456789abcdef0123456789abcdef\"}]},"
    " {\"file\": \"shard-00001.h5\", \"bytes\": 4096,"
    "  \"xxh128\": \"0123456789abcdef0123456789abcdef\", \"parts\": ["
    "   {\"tensor\": \"param/w\", \"shape\": [4, 6], \"lo\": [0, 3],"
    "    \"len\": [4, 3], \"offset\": 2048,"
    "    \"xxh128\": \"0123456789abcdef0123456789abcdef\"},"
    "   {\"tensor\": \"param/s\", \"shape\": [], \"lo\": [], \"len\": [],"
    "    \"offset\": 4092,"
    "    \"xxh128\": \"0123456789abcdef0123456789abcdef\"}]}]}";

void fuzz_seeds(void)
{
    char path[700];

    fuzz_add_text(two_shards);
    snprintf(path, sizeof(path), "%s/" MERAK_CKPT_MANIFEST, fuzz_ckpt());
    fuzz_add_file(-1, path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_ckpt_manifest *mf = NULL;
    struct merak_error err = {.text = ""};
    char name[MERAK_CKPT_MAX_DATASET], shape[160];
    enum merak_status rc =
        merak_ckpt_manifest_parse((const char *)data, n, &mf, &err);

    if (rc == MERAK_OK)
        rc = merak_ckpt_manifest_cover(mf, MERAK_ERR_CORRUPT, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    for (int i = 0; mf != NULL && i < mf->n_tensors; i++) {
        const struct merak_ckpt_tensor *t = &mf->tensor[i];

        fuzz_must(merak_ckpt_tensor_find(mf, t->name) == t,
                  "a tensor is found by its name");
        merak_shape_text(shape, &t->shape);
        for (int k = 0; k < t->n; k++) {
            const struct merak_ckpt_part *part = &mf->part[t->first + k];

            merak_ckpt_dataset_name(name, part->tensor, &part->box);
            fuzz_must(part->shard >= 0 && part->shard < mf->n_shards,
                      "a part is in a shard");
            fuzz_must(part->offset <= mf->shard[part->shard].bytes,
                      "inside its file");
        }
    }
    merak_ckpt_manifest_destroy(mf);
    return 0;
}
