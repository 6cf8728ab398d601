/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/documents.h - the documents in a file of text
 *
 * Lines of JSON have one document each, a string under a key of an object;
 * blank lines are skipped; the objects of one list are read likewise.  They
 * are read if a key is given, if the file's name
 * ends in .jsonl or .ndjson, or if its first line is such an object.  Any other
 * file is one document, unless its first bytes are those of a format that is
 * no text.  What gzip or zstd have compressed is read, and the rows of a
 * Parquet file as lines (parquet.h).  "-" is standard input.
 *
 * If no key is given, a line may have questions and answers instead, also in
 * the forms of talk_formats.h:
 * {"prompt": TEXT, "completion": TEXT}, or {"messages": [{"role": R,
 * "content": TEXT, ..}, ..]}; messages may have more fields, and the line
 * "tools", "documents" and "chat_template_kwargs".
 */
#ifndef MERAK_IO_TOKENS_DOCUMENTS_H
#define MERAK_IO_TOKENS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer/chat.h"
#include "merak/status.h"

/* Receives each document, borrowed for the call; a failure ends the
 * reading. */
typedef enum merak_status (*merak_document_fn)(void *arg, const char *text,
                                               size_t n,
                                               struct merak_error *err);

/* Receives the turns of a line with answers, borrowed for the call: a prompt
 * and its completion, as a user's turn and the answer, or messages.  At least
 * one of them is an answer. */
typedef enum merak_status (*merak_turns_fn)(void *arg, bool is_chat,
                                            const struct merak_chat_talk *talk,
                                            struct merak_error *err);

/* Lines that were left out, and what is wrong with the first. */
struct merak_bad_lines {
    unsigned long long n;
    char first[256];
};

struct merak_document_reader {
    merak_document_fn document;
    merak_turns_fn turns;
    void *arg;
    struct merak_bad_lines *bad; /* NULL: a bad line is an error */
};

/*
 *   key  NULL: "text" for lines of JSON without answers
 * Uses memory for one line; files are mapped, unless they are compressed.
 * MERAK_ERR_FORMAT names file and line of what is not JSON or lacks the key;
 * failures of a reader on a line get them, too.  MERAK_ERR_CORRUPT names the
 * byte at which compressed data are damaged.
 */
enum merak_status
merak_documents_read(const char *path, const char *key,
                     const struct merak_document_reader *reader,
                     struct merak_error *err) MERAK_CHECKED;
/* The same for those lines of JSON that begin at bytes [begin, end) of a file
 * that can be cut; end 0: all of any file. */
enum merak_status
merak_documents_read_part(const char *path, const char *key, uint64_t begin,
                          uint64_t end,
                          const struct merak_document_reader *reader,
                          struct merak_error *err) MERAK_CHECKED;
/* The bytes of a file that can be cut: lines of JSON that are not compressed.
 * Else 0, also for what will be refused. */
uint64_t merak_documents_cut_bytes(const char *path, const char *key);
/* How many bytes will be read of a file; 0: that is not known before. */
double merak_documents_bytes(const char *path);

#endif
