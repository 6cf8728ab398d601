/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/token_file.h - one file of tokens, in any format
 *
 * Files are read with pread and not mapped: if a file shrinks, or a disk
 * fails, the result is an error message and not a SIGBUS.
 */
#ifndef MERAK_IO_TOKENS_FILE_H
#define MERAK_IO_TOKENS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "io/tokens/mask.h"
#include "merak/status.h"

/* Integers, little endian on disk.  Values are Megatron's codes where it
 * has one. */
enum merak_token_type {
    MERAK_TOKEN_U8 = 1,
    MERAK_TOKEN_I8 = 2,
    MERAK_TOKEN_I16 = 3,
    MERAK_TOKEN_I32 = 4,
    MERAK_TOKEN_I64 = 5,
    MERAK_TOKEN_U16 = 8,
    MERAK_TOKEN_U32 = 100, /* llm.c only */
};

struct XXH3_state_s;

struct merak_token_file {
    char *path;         /* of the file with the tokens */
    const char *format; /* "Megatron .bin/.idx", "llm.c" */
    enum merak_token_type type;
    int fd;
    uint64_t first_byte; /* where token 0 is */
    uint64_t tokens;
    uint64_t documents; /* 0: not in this format */
    struct merak_mask *mask; /* NULL: every token is to be predicted */
    uint64_t *begin;         /* merak_token_file_documents() */
};

/* Bytes of one token. */
size_t merak_token_bytes(enum merak_token_type type);
/* "u16" */
const char *merak_token_type_name(enum merak_token_type type);

/*
 * Open a data set: a Megatron prefix or one of its files, an llm.c file, or a
 * pattern of such files, in sorted order.  All sizes, counts and pointers are
 * checked for consistency.
 *   files_p, n_p  out  [n], to be closed by merak_token_files_close
 */
enum merak_status merak_token_files_open(const char *path,
                                         struct merak_token_file **files_p,
                                         size_t *n_p,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_token_files_close(struct merak_token_file *files, size_t n);
/*
 * Set file->begin[documents + 1]: the first token of each document, then the
 * number of tokens.  MERAK_ERR_UNSUPPORTED names the file if its format has no
 * documents.
 */
enum merak_status
merak_token_file_documents(struct merak_token_file *file,
                           struct merak_error *err) MERAK_CHECKED;
/* Its documents have to be pairs of answers; MERAK_ERR_MISMATCH names it. */
enum merak_status
merak_token_file_require_pairs(const struct merak_token_file *file,
                               struct merak_error *err) MERAK_CHECKED;
/*
 * Tokens [at, at + n) of a file.
 *   vocab  ids must be below; 0: any that fits
 *   out    i32[n]
 * MERAK_ERR_CORRUPT names the file, the position and the id.  Allocates
 * nothing; thread-safe.
 */
enum merak_status merak_token_file_read(const struct merak_token_file *file,
                                        uint64_t at, size_t n, size_t vocab,
                                        int32_t *out,
                                        struct merak_error *err) MERAK_CHECKED;
/* Add to a checksum of 128 bits what a file holds, whatever it is called: its
 * sizes, its mask, and the ids at places throughout. */
enum merak_status merak_token_file_hash(const struct merak_token_file *file,
                                        struct XXH3_state_s *h,
                                        struct merak_error *err) MERAK_CHECKED;

/* --- formats: each opens one file, for merak_token_files_open --------- */

/* Check that the file's size matches its type, its number of tokens and the
 * bytes before the first; `where` is the source of these: "header". */
enum merak_status
merak_token_file_check_size(const struct merak_token_file *file, uint64_t bytes,
                            const char *where,
                            struct merak_error *err) MERAK_CHECKED;
/* Close a file whose opening failed, or whose fields were moved. */
void merak_token_file_fini(struct merak_token_file *file);

/* Open prefix.bin and prefix.idx. */
enum merak_status merak_megatron_open(const char *prefix,
                                      struct merak_token_file *file,
                                      struct merak_error *err) MERAK_CHECKED;
/* Read its documents, for merak_token_file_documents. */
enum merak_status
merak_megatron_documents(struct merak_token_file *file,
                         struct merak_error *err) MERAK_CHECKED;
/* Open one file with llm.c's header. */
enum merak_status merak_llmc_open(const char *path,
                                  struct merak_token_file *file,
                                  struct merak_error *err) MERAK_CHECKED;

/* Constants for the readers and for io/tokens/pack.c. */
#define MERAK_IDX_MAGIC "MMIDIDX\0" /* with the literal's NUL: 9 bytes */
#define MERAK_IDX_MAGIC_BYTES 9
#define MERAK_IDX_VERSION 1
#define MERAK_IDX_HEADER_BYTES 34
#define MERAK_LLMC_HEADER_BYTES 1024
#define MERAK_LLMC_MAGIC_U16 20240520
#define MERAK_LLMC_VERSION_U16 1
#define MERAK_LLMC_MAGIC_U32 20240801
#define MERAK_LLMC_VERSION_U32 7

#endif
