/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/token_file.h - one file of tokens, whatever its format
 *
 * Files are read with pread and not mapped: a file that shrinks, or a disk
 * that fails, is then an error with a text and not a SIGBUS.
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

struct merak_token_file {
    char *path;         /* of the file that holds the tokens */
    const char *format; /* "Megatron .bin/.idx", "llm.c" */
    enum merak_token_type type;
    int fd;
    uint64_t first_byte; /* where token 0 is */
    uint64_t tokens;
    uint64_t documents; /* 0: the format does not tell */
    struct merak_mask *mask; /* NULL: every token is to be predicted */
    uint64_t *begin;         /* merak_token_file_documents() */
};

/* Bytes of one token. */
size_t merak_token_bytes(enum merak_token_type type);
/* "u16" */
const char *merak_token_type_name(enum merak_token_type type);

/*
 * Open what a user calls a data set: a Megatron prefix or one of its
 * files, an llm.c file, or a pattern of such files, taken in sorted order.
 * Every size, count and pointer is checked against every other.
 *   files_p, n_p  out  [n], yours to merak_token_files_close
 */
enum merak_status merak_token_files_open(const char *path,
                                         struct merak_token_file **files_p,
                                         size_t *n_p,
                                         struct merak_error *err) MERAK_CHECKED;
void merak_token_files_close(struct merak_token_file *files, size_t n);
/*
 * Set file->begin[documents + 1]: the first token of each, and the number of
 * all.  MERAK_ERR_UNSUPPORTED names the file where its format does not tell.
 */
enum merak_status
merak_token_file_documents(struct merak_token_file *file,
                           struct merak_error *err) MERAK_CHECKED;
/*
 * Tokens [at, at + n) of a file.
 *   vocab  ids must be below; 0: any that fits
 *   out    i32[n]
 * MERAK_ERR_CORRUPT names the file, the position and the id.  Allocates
 * nothing; safe from any thread.
 */
enum merak_status merak_token_file_read(const struct merak_token_file *file,
                                        uint64_t at, size_t n, size_t vocab,
                                        int32_t *out,
                                        struct merak_error *err) MERAK_CHECKED;

/* --- formats: each opens one file, for merak_token_files_open --------- */

/* The file has the bytes that its type and number of tokens come to, and those
 * before the first; `where` says what told them: "header". */
enum merak_status
merak_token_file_check_size(const struct merak_token_file *file, uint64_t bytes,
                            const char *where,
                            struct merak_error *err) MERAK_CHECKED;
/* Close one of which opening failed, or whose fields were handed on. */
void merak_token_file_fini(struct merak_token_file *file);

/* prefix.bin and prefix.idx. */
enum merak_status merak_megatron_open(const char *prefix,
                                      struct merak_token_file *file,
                                      struct merak_error *err) MERAK_CHECKED;
/* Its documents, for merak_token_file_documents. */
enum merak_status
merak_megatron_documents(struct merak_token_file *file,
                         struct merak_error *err) MERAK_CHECKED;
/* One file with llm.c's header. */
enum merak_status merak_llmc_open(const char *path,
                                  struct merak_token_file *file,
                                  struct merak_error *err) MERAK_CHECKED;

/* What the readers look for and io/tokens/pack.c writes. */
#define MERAK_IDX_MAGIC "MMIDIDX\0" /* and the literal's own NUL: 9 bytes */
#define MERAK_IDX_MAGIC_BYTES 9
#define MERAK_IDX_VERSION 1
#define MERAK_IDX_HEADER_BYTES 34
#define MERAK_LLMC_HEADER_BYTES 1024
#define MERAK_LLMC_MAGIC_U16 20240520
#define MERAK_LLMC_VERSION_U16 1
#define MERAK_LLMC_MAGIC_U32 20240801
#define MERAK_LLMC_VERSION_U32 7

#endif
