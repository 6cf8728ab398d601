/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/documents.h - the documents in a file of text
 *
 * A .jsonl file has one a line, the string under a key of a JSON object;
 * blank lines are passed over.  Any other file is one document.  "-" is
 * standard input: lines of JSON if a key is given, else one document.
 *
 * Where no key is given, a line may have questions and answers instead:
 * {"prompt": TEXT, "completion": TEXT}, or {"messages": [{"role": R, "content":
 * TEXT}, ..]} with R system, user or assistant.
 */
#ifndef MERAK_IO_TOKENS_DOCUMENTS_H
#define MERAK_IO_TOKENS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "io/tokenizer/chat.h"
#include "merak/status.h"

/* Receives each document, borrowed for the call; a failure ends it. */
typedef enum merak_status (*merak_document_fn)(void *arg, const char *text,
                                               size_t n,
                                               struct merak_error *err);

/* Receives what is said in a line with answers, borrowed for the call: a prompt
 * and its completion, as a user's turn and the answer, or messages.  One of
 * them at least is an answer. */
typedef enum merak_status (*merak_turns_fn)(void *arg, bool is_chat,
                                            const struct merak_chat_turn *turn,
                                            size_t n, struct merak_error *err);

struct merak_document_reader {
    merak_document_fn document;
    merak_turns_fn turns;
    void *arg;
};

/*
 *   key  NULL: "text" where lines of JSON are read that have no answers
 * Memory is that of one line; files are mapped.  MERAK_ERR_FORMAT names file
 * and line of what is no JSON or lacks the key; what a reader returns gets
 * them, too, of a line.
 */
enum merak_status
merak_documents_read(const char *path, const char *key,
                     const struct merak_document_reader *reader,
                     struct merak_error *err) MERAK_CHECKED;

#endif
