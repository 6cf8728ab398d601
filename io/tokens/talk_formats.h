/* SPDX-License-Identifier: Apache-2.0 */
/* io/tokens/talk_formats.h - a line's questions and answers in the forms of
 * others, as {"messages": [..]}, which each call adds to the line's object
 *
 * MERAK_ERR_FORMAT says what is not as in the form.
 */
#ifndef MERAK_IO_TOKENS_TALK_FORMATS_H
#define MERAK_IO_TOKENS_TALK_FORMATS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

/* ShareGPT: {"conversations": [{"from": "human", "value": TEXT}, ..]}, and
 * perhaps "system". */
enum merak_status
merak_talk_from_sharegpt(json_t *object, struct merak_error *err) MERAK_CHECKED;
/* Alpaca: {"instruction": TEXT, "input": TEXT, "output": TEXT}, the last of
 * them the answer; input may be empty or absent, and there may be "system". */
enum merak_status merak_talk_from_alpaca(json_t *object,
                                         struct merak_error *err) MERAK_CHECKED;
/* TRL: {"prompt": [MESSAGE, ..], "completion": [MESSAGE, ..]}; *given_p
 * messages are the prompt's.  Nothing is done to texts. */
enum merak_status merak_talk_from_prompt(json_t *object, size_t *given_p,
                                         struct merak_error *err) MERAK_CHECKED;

/*
 * TRL's pairs of answers: {"prompt": .., "chosen": .., "rejected": ..}, of
 * texts or of lists of messages, also without a prompt: then it is what both
 * begin with.  Of lists, "chosen" and "rejected" become all messages,
 * *given_p of them the prompt's; a text beside them is the prompt once more.
 */
enum merak_status merak_talk_from_pair(json_t *object, size_t *given_p,
                                       struct merak_error *err) MERAK_CHECKED;
/* Has a line one of the two answers? */
bool merak_talk_is_pair(const json_t *object);
/* Then it may have this key, too: "prompt", and what some data sets have, the
 * messages of the chosen answer once more. */
bool merak_talk_is_of_pair(const json_t *object, const char *key);

#endif
