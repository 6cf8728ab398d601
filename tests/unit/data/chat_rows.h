/* SPDX-License-Identifier: Apache-2.0 */
/* chat_rows.h - conversations of tests, from JSON */
#ifndef MERAK_UNIT_CHAT_ROWS_H
#define MERAK_UNIT_CHAT_ROWS_H

#include "unit/data_files.h"
#include "unit/data/json_rows.h"

#include "text/tokenizer/chat.h"

#include <jansson.h>

static inline void write_config(const json_t *config)
{
    assert_int_equal(
        json_dump_file(config, at("tokenizer_config.json"), JSON_COMPACT), 0);
}

static inline const char *string_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    assert_true(json_is_string(value));
    return json_string_value(value);
}

static inline size_t read_turns(const json_t *messages,
                                struct merak_chat_turn *turn)
{
    const json_t *each;
    size_t i;

    json_array_foreach(messages, i, each)
    {
        const char *role = string_of(each, "role");
        const json_t *content = json_object_get(each, "content");
        const json_t *weight = json_object_get(each, "weight");

        turn[i] = (struct merak_chat_turn){
            .role = strcmp(role, "system") == 0      ? MERAK_CHAT_SYSTEM
                    : strcmp(role, "user") == 0      ? MERAK_CHAT_USER
                    : strcmp(role, "assistant") == 0 ? MERAK_CHAT_ANSWER
                                                     : MERAK_CHAT_OTHER,
            .text = json_string_value(content),
            .n = json_string_length(content),
            .whole = each,
            .context =
                json_is_integer(weight) && json_integer_value(weight) == 0};
    }
    return json_array_size(messages);
}

#endif
