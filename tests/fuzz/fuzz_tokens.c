/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_tokens.c - token files, of llm.c and of Megatron, and samples of them */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/tokens/tokens.h"
#include "io/tokens/token_file.h"

#include <stdlib.h>
#include <string.h>

enum { LLMC, INDEX, TOKENS = 300 };

/* prefix.bin; the input is prefix.idx. */
static uint16_t bin[TOKENS];

static size_t put(uint8_t *at, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (uint8_t)(value >> (8 * i));
    return n;
}

static void add_llmc(int magic, int version, size_t bytes)
{
    static uint8_t file[MERAK_LLMC_HEADER_BYTES + TOKENS * 4];
    size_t at = MERAK_LLMC_HEADER_BYTES;

    memset(file, 0, sizeof(file));
    put(file, (uint64_t)magic, 4);
    put(file + 4, (uint64_t)version, 4);
    put(file + 8, TOKENS, 4);
    for (size_t i = 0; i < TOKENS; i++)
        at += put(file + at, i % 50, bytes);
    fuzz_add_kind(LLMC, file, at);
}

/* Documents of 100, 150 and 50 tokens. */
static void add_index(void)
{
    static const uint64_t length[] = {100, 150, 50}, first[] = {0, 1, 2, 3};
    uint8_t idx[512];
    size_t at = MERAK_IDX_MAGIC_BYTES;
    uint64_t byte = 0;

    memcpy(idx, MERAK_IDX_MAGIC, MERAK_IDX_MAGIC_BYTES);
    at += put(idx + at, MERAK_IDX_VERSION, 8);
    at += put(idx + at, MERAK_TOKEN_U16, 1);
    at += put(idx + at, 3, 8);
    at += put(idx + at, 4, 8);
    for (size_t i = 0; i < 3; i++)
        at += put(idx + at, length[i], 4);
    for (size_t i = 0; i < 3; byte += 2 * length[i++])
        at += put(idx + at, byte, 8);
    for (size_t i = 0; i < 4; i++)
        at += put(idx + at, first[i], 8);
    fuzz_add_kind(INDEX, idx, at);
}

void fuzz_seeds(void)
{
    add_llmc(MERAK_LLMC_MAGIC_U16, MERAK_LLMC_VERSION_U16, 2);
    add_llmc(MERAK_LLMC_MAGIC_U32, MERAK_LLMC_VERSION_U32, 4);
    add_index();
}

/* Every token that a file says it has is there, or is refused by its place. */
static void read_tokens(const char *path)
{
    struct merak_token_file *files = NULL;
    struct merak_error err = {.text = ""};
    static int32_t out[64];
    size_t n = 0;
    enum merak_status rc = merak_token_files_open(path, &files, &n, &err);

    if (rc != MERAK_OK) {
        fuzz_refused(rc, &err);
        return;
    }
    fuzz_must(n == 1, "one path is one file");
    fuzz_must(files->tokens <= (1u << 20), "tokens are no more than bytes");
    for (uint64_t at = 0; at < files->tokens; at += 64) {
        size_t some =
            files->tokens - at < 64 ? (size_t)(files->tokens - at) : 64;

        rc = merak_token_file_read(files, at, some, 60, out, &err);
        if (rc != MERAK_OK)
            fuzz_refused(rc, &err);
        for (size_t i = 0; i < some && rc == MERAK_OK; i++)
            fuzz_must(out[i] >= 0 && out[i] < 60, "ids are below vocab");
    }
    merak_token_files_close(files, n);
}

static void read_samples(const char *path)
{
    const struct merak_data_options opt = {
        .spec = path, .seq = 16, .seed = 3, .valid_fraction = 0.2, .vocab = 60};
    struct merak_data *data = NULL;
    struct merak_error err = {.text = ""};
    int32_t tokens[16], targets[16];
    enum merak_status rc = merak_data_open(&opt, &data, &err);

    for (uint64_t i = 0; rc == MERAK_OK && i < 40; i += 3)
        rc = merak_data_sample(data, i % 2 ? MERAK_VALID : MERAK_TRAIN, i,
                               tokens, targets, &err);
    if (rc != MERAK_OK)
        fuzz_refused(rc, &err);
    merak_data_close(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *path;

    if (n == 0)
        return 0;
    for (size_t i = 0; i < TOKENS; i++)
        bin[i] = (uint16_t)(i % 50);
    if (data[0] % 2 == LLMC) {
        path = fuzz_file("llmc.bin", data + 1, n - 1);
    } else {
        path = fuzz_file("megatron.bin", bin, sizeof(bin));
        fuzz_file("megatron.idx", data + 1, n - 1);
    }
    read_tokens(path);
    read_samples(path);
    return 0;
}
