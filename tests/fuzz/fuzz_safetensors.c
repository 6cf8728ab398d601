/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c - safetensors files, and indexes of several */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/weights/safetensors.h"

#include <stdio.h>
#include <unistd.h>

enum { FILE_KIND, INDEX };

static const char part[] = "model-0000%d-of-00004.safetensors";

void fuzz_seeds(void)
{
    fuzz_add_vector(FILE_KIND,
                    "weights/llama.model-00002-of-00004.safetensors");
    fuzz_add_vector(FILE_KIND,
                    "weights/llama.model-00004-of-00004.safetensors");
    fuzz_add_vector(INDEX, "weights/llama.model.safetensors.index.json");
}

/* The files that the index speaks of, once. */
static void link_parts(void)
{
    static bool done;
    char from[512], to[64];

    for (int i = 1; i <= 4 && !done; i++) {
        snprintf(to, sizeof(to), part, i);
        snprintf(from, sizeof(from), "%s/vectors/weights/llama.%s", TEST_SRCDIR,
                 to);
        fuzz_must(symlink(from, fuzz_path(to)) == 0, "a link is made");
    }
    done = true;
}

static void read_all(const struct merak_safetensors *st)
{
    static float x[1 << 12];
    struct merak_error err = {.text = ""};

    for (int i = 0; i < st->n; i++) {
        const struct merak_safetensor *t = &st->tensor[i];
        size_t n = t->count < (1 << 12) ? t->count : 1 << 12;

        fuzz_must(t->file >= 0 && t->file < st->n_files, "a tensor has a file");
        if (t->type == MERAK_SAFETENSORS_OTHER)
            continue;
        fuzz_must(merak_safetensors_read(st, t, t->count - n, n, x, &err) ==
                      MERAK_OK,
                  "tensors of a header that is accepted are there");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct merak_safetensors *st = NULL;
    struct merak_error err = {.text = ""};
    const char *path;
    enum merak_status rc;

    if (n == 0)
        return 0;
    link_parts();
    path = fuzz_file(data[0] % 2 == INDEX ? MERAK_SAFETENSORS_INDEX
                                          : MERAK_SAFETENSORS_FILE,
                     data + 1, n - 1);
    rc = merak_safetensors_open(fuzz_dir(), &st, &err);
    if (rc == MERAK_OK)
        read_all(st);
    else
        fuzz_refused(rc, &err);
    merak_safetensors_close(st);
    unlink(path);
    return 0;
}
