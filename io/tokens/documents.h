/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/documents.h - the documents in a file of text
 *
 * A .jsonl file has one a line, the string under a key of a JSON object;
 * blank lines are passed over.  Any other file is one document.  "-" is
 * standard input: lines of JSON if a key is given, else one document.
 */
#ifndef MERAK_IO_TOKENS_DOCUMENTS_H
#define MERAK_IO_TOKENS_DOCUMENTS_H

#include <stddef.h>

#include "merak/status.h"

/* Receives each document, borrowed for the call; a failure ends it. */
typedef enum merak_status (*merak_document_fn)(void *arg, const char *text,
                                               size_t n,
                                               struct merak_error *err);

/*
 *   key  NULL: "text" where lines of JSON are read
 * Memory is that of one line; files are mapped.  MERAK_ERR_FORMAT names file
 * and line of what is no JSON or lacks the key.
 */
enum merak_status merak_documents_read(const char *path, const char *key,
                                       merak_document_fn fn, void *arg,
                                       struct merak_error *err) MERAK_CHECKED;

#endif
