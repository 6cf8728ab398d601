/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/gguf.h - the pieces of a GGUF file
 *
 * The format is described in gguf.c.
 */
#ifndef MERAK_IO_WEIGHTS_GGUF_H
#define MERAK_IO_WEIGHTS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/hf_config.h"
#include "io/weights/float_file.h"
#include "merak/status.h"

/* Types of tensors, with the numbers that files have. */
enum merak_gguf_type {
    MERAK_GGUF_F32 = 0,
    MERAK_GGUF_F16 = 1,
    MERAK_GGUF_Q8_0 = 8,
    MERAK_GGUF_BF16 = 30,
};

enum { MERAK_GGUF_NAME = 96, MERAK_GGUF_BLOCK = 32 };

/* --- the header ----------------------------------------------------------- */

/* Bytes that grow; a failure is kept, and later calls do nothing. */
struct merak_gguf {
    unsigned char *bytes;
    size_t n, room;
    uint64_t n_pairs;
    bool failed; /* no memory */
};

/* Add a key with its value. */
void merak_gguf_number(struct merak_gguf *g, const char *key, uint64_t x);
void merak_gguf_real(struct merak_gguf *g, const char *key, double x);
void merak_gguf_yes(struct merak_gguf *g, const char *key, bool x);
void merak_gguf_text(struct merak_gguf *g, const char *key, const char *text);
/* A key whose values follow: n of them, of one kind. */
enum merak_gguf_list { MERAK_GGUF_TEXTS, MERAK_GGUF_INTS, MERAK_GGUF_REALS };
void merak_gguf_begin(struct merak_gguf *g, const char *key,
                      enum merak_gguf_list kind, size_t n);
void merak_gguf_add_text(struct merak_gguf *g, const char *text, size_t bytes);
void merak_gguf_add_int(struct merak_gguf *g, int32_t x);
void merak_gguf_add_real(struct merak_gguf *g, float x);

struct merak_gguf_tensor {
    char name[MERAK_GGUF_NAME];
    enum merak_gguf_type type;
    int ndim;
    size_t dim[2];  /* rows, columns: of one matrix, if there are three dims */
    size_t stacked; /* .. how many follow each other */
};
uint64_t merak_gguf_bytes(const struct merak_gguf_tensor *tensor);
/* Append the header to a file that is empty: the pairs, and n tensors. */
enum merak_status merak_gguf_write(struct merak_gguf *g,
                                   const struct merak_gguf_tensor *tensor,
                                   int n, struct merak_float_file *file,
                                   struct merak_error *err) MERAK_CHECKED;
/* Append the numbers of a tensor, of stacked ones of matrix number k, and
 * behind the last padding. */
enum merak_status merak_gguf_put(struct merak_float_file *file,
                                 const struct merak_gguf_tensor *tensor,
                                 size_t k, const float *x,
                                 struct merak_error *err) MERAK_CHECKED;

/* --- models (gguf_names.c, gguf_tokenizer.c) -------------------------------
 */

/* The architecture's name; MERAK_ERR_UNSUPPORTED says what has none. */
enum merak_status merak_gguf_model(const struct merak_hf_config *config,
                                   const char **name_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* Its keys. */
void merak_gguf_model_keys(struct merak_gguf *g,
                           const struct merak_hf_config *config);
/* The name of a tensor of the Hugging Face's. */
enum merak_status merak_gguf_name(const struct merak_hf_config *config,
                                  const char *tensor,
                                  char name[MERAK_GGUF_NAME],
                                  struct merak_error *err) MERAK_CHECKED;
/* Is the matrix of this name there always in fp32? */
bool merak_gguf_is_precise(const char *name);
/* Rows of queries and keys are in pairs (2i, 2i + 1) there: how many heads the
 * tensor has, or 0 if its rows stay as they are. */
size_t merak_gguf_heads(const struct merak_hf_config *config,
                        const char *tensor);
/* Rows of a head's query, key and value are together in this tensor, and there
 * all queries come first: how many heads it has, else 0. */
size_t merak_gguf_mixed(const struct merak_hf_config *config,
                        const char *tensor);
/* What is added to a norm's weights. */
float merak_gguf_offset(const struct merak_hf_config *config,
                        const char *tensor);
/* How many factors of rotary frequencies there are, 0 if none, and factor i:
 * the tensor rope_freqs.weight. */
size_t merak_gguf_rope_factors(const struct merak_hf_config *config);
float merak_gguf_rope_factor(const struct merak_hf_config *config, size_t i);
/* The keys of the tokenizer in a model's folder; of none, if there is none. */
enum merak_status merak_gguf_tokenizer(struct merak_gguf *g, const char *dir,
                                       size_t vocab,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
