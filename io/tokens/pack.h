/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/pack.h - writing token files
 *
 * Everything is written under temporary names next to the final ones, and
 * renamed only when it is complete and on disk.  A data set of the same name
 * is replaced; programs that have it open keep reading the old one.
 */
#ifndef MERAK_IO_TOKENS_PACK_H
#define MERAK_IO_TOKENS_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/tokens/token_file.h"
#include "merak/status.h"

enum merak_pack_format {
    MERAK_PACK_MEGATRON, /* PREFIX.bin and PREFIX.idx */
    MERAK_PACK_LLMC,     /* PREFIX.bin with llm.c's header */
};

struct merak_pack_totals {
    uint64_t tokens, documents;
    uint64_t counted; /* with a mask: to be predicted */
    enum merak_token_type type;
};

struct merak_pack;

/*
 *   vocab  ids are below it; if it is below 65500 they are written as u16, else
 *          as i32 (Megatron) or u32 (llm.c)
 */
enum merak_status merak_pack_create(const char *prefix,
                                    enum merak_pack_format format, size_t vocab,
                                    struct merak_pack **pack_p,
                                    struct merak_error *err) MERAK_CHECKED;
/*
 * Before the first token: also write a mask (mask.h), PREFIX.mask.  Only with
 * the Megatron format; MERAK_ERR_CONFIG with llm.c's.
 */
enum merak_status merak_pack_add_mask(struct merak_pack *pack,
                                      const char *prefix,
                                      struct merak_error *err) MERAK_CHECKED;
/* With a mask: documents are pairs of a chosen and a rejected answer. */
void merak_pack_set_pairs(struct merak_pack *pack);
/* Are the tokens that follow to be predicted?  Initially they are. */
void merak_pack_set_counted(struct merak_pack *pack, bool counted);
/* Add tokens to the current document. */
enum merak_status merak_pack_tokens(struct merak_pack *pack, const int32_t *ids,
                                    size_t n,
                                    struct merak_error *err) MERAK_CHECKED;
/* End the document; one without tokens is left out. */
enum merak_status
merak_pack_end_document(struct merak_pack *pack,
                        struct merak_error *err) MERAK_CHECKED;
/* Tokens and ended documents so far. */
struct merak_pack_totals merak_pack_totals(const struct merak_pack *pack);
/* Write the rest, sync, and rename the files. */
enum merak_status merak_pack_commit(struct merak_pack *pack,
                                    struct merak_error *err) MERAK_CHECKED;
/* Frees pack; what was not committed is removed. */
void merak_pack_destroy(struct merak_pack *pack);

#endif
