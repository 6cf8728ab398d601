/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/documents.h - the documents in a file of text
 *
 * A .jsonl file has one document per line, a string under a key of a JSON
 * object; blank lines are skipped.  Any other file is one document.  "-" is
 * standard input: lines of JSON if a key is given, else one document.
 *
 * If no key is given, a line may have questions and answers instead:
 * {"prompt": TEXT, "completion": TEXT}, or {"messages": [{"role": R,
 * "content": TEXT}, ..]} with R system, user or assistant.
 */
#ifndef MERAK_IO_TOKENS_DOCUMENTS_H
#define MERAK_IO_TOKENS_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "io/tokenizer/chat.h"
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
                                            const struct merak_chat_turn *turn,
                                            size_t n, struct merak_error *err);

struct merak_document_reader {
    merak_document_fn document;
    merak_turns_fn turns;
    void *arg;
};

/*
 *   key  NULL: "text" for lines of JSON without answers
 * Uses memory for one line; files are mapped.  MERAK_ERR_FORMAT names file and
 * line of what is not JSON or lacks the key; failures of a reader on a line
 * get them, too.
 */
enum merak_status
merak_documents_read(const char *path, const char *key,
                     const struct merak_document_reader *reader,
                     struct merak_error *err) MERAK_CHECKED;

#endif
