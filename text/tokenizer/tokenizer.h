/* SPDX-License-Identifier: Apache-2.0 */
/* text/tokenizer/tokenizer.h - text to token ids and back
 *
 * "byte": ids 0-255 are the bytes, 256 ends a document.  Anything else is the
 * path of a Hugging Face tokenizer.json, or of a folder that has one: BPE over
 * bytes (GPT-2, Llama 3, Qwen, OLMo) or over characters (SentencePiece's, as
 * Llama 2, Mistral, Gemma).  Ids are those of Hugging Face's tokenizers
 * package, including special tokens written in the text.  A file *.model is a
 * SentencePiece model, Unigram or BPE; ids are those of that library.  Bytes
 * that are not UTF-8, which that package does not accept, are encoded byte by
 * byte like any others.
 */
#ifndef MERAK_TEXT_TOKENIZER_TOKENIZER_H
#define MERAK_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "merak/status.h"

struct merak_tokenizer;

/* Receives ids as they are made; a failure ends the encoding. */
typedef enum merak_status (*merak_ids_fn)(void *arg, const int32_t *ids,
                                          size_t n, struct merak_error *err);

/*
 * MERAK_ERR_UNSUPPORTED names what a file needs that is not supported (another
 * model, a normalizer, ..), MERAK_ERR_FORMAT what is wrong in it.
 */
enum merak_status merak_tokenizer_open(const char *name,
                                       struct merak_tokenizer **tok_p,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_tokenizer_close(struct merak_tokenizer *tok);
/* Largest id plus one. */
size_t merak_tokenizer_vocab(const struct merak_tokenizer *tok);
/* The id that ends a document ("<|endoftext|>" or an equivalent), or -1 if
 * there is none. */
int32_t merak_tokenizer_eod(const struct merak_tokenizer *tok);
/* Is it not part of a text?  False for ids without a token. */
bool merak_tokenizer_is_special(const struct merak_tokenizer *tok, int32_t id);
/* Bytes of the texts so far that had no token, not even an unknown one, and
 * were left out. */
uint64_t merak_tokenizer_left_out(const struct merak_tokenizer *tok);
/* One thread at a time: it caches words. */
enum merak_status merak_tokenizer_encode(struct merak_tokenizer *tok,
                                         const void *text, size_t n,
                                         merak_ids_fn sink, void *arg,
                                         struct merak_error *err) MERAK_CHECKED;
/* The same with the tokens that the file's template puts around a text:
 * usually the one that begins it. */
enum merak_status
merak_tokenizer_encode_whole(struct merak_tokenizer *tok, const void *text,
                             size_t n, merak_ids_fn sink, void *arg,
                             struct merak_error *err) MERAK_CHECKED;
/*
 * Bytes of an id, borrowed from tok: *text_p [*n_p].  MERAK_ERR_PARAM for an
 * id without a token.
 */
enum merak_status merak_tokenizer_decode(const struct merak_tokenizer *tok,
                                         int32_t id, const char **text_p,
                                         size_t *n_p,
                                         struct merak_error *err) MERAK_CHECKED;

/*
 * Streaming conversion of ids to text; a character whose bytes are in several
 * tokens is returned only when it is complete.  Special tokens and a blank
 * that encoding prepended are left out.
 */
struct merak_text {
    const struct merak_tokenizer *tok;
    char held[8]; /* bytes of an incomplete character */
    size_t n_held;
    bool begun;
    char *room; /* what was returned last */
    size_t room_bytes;
};
void merak_text_begin(struct merak_text *text,
                      const struct merak_tokenizer *tok);
/* *bytes_p [*n_p] is valid until the next call. */
enum merak_status merak_text_add(struct merak_text *text, int32_t id,
                                 const char **bytes_p, size_t *n_p,
                                 struct merak_error *err) MERAK_CHECKED;
/* The remaining bytes of an incomplete character.  Valid until
 * merak_text_fini(). */
const char *merak_text_end(struct merak_text *text, size_t *n_p);
void merak_text_fini(struct merak_text *text);

#endif
