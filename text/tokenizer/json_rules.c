/* SPDX-License-Identifier: Apache-2.0 */
/* json_rules.c - normalizer, pre_tokenizer, post_processor and decoder of a
 * tokenizer.json
 *
 * Each is an object with a "type", or null, or a "Sequence" of such.  Unknown
 * types and options are refused by name, since ignoring them could give wrong
 * ids.
 */
#include "config.h"

#include "text/tokenizer/json_impl.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum merak_status merak_json_unsupported(struct merak_json_loader *ld,
                                         const char *what, const json_t *given,
                                         const char *wanted)
{
    char *text = json_dumps(given, JSON_ENCODE_ANY | JSON_COMPACT);
    enum merak_status rc = merak_fail(
        ld->err, MERAK_ERR_UNSUPPORTED, "%s: %s is %.60s, supported: %s",
        ld->path, what, text == NULL ? "?" : text, wanted);

    free(text);
    return rc;
}

enum merak_status merak_json_malformed(struct merak_json_loader *ld,
                                       const char *what)
{
    return merak_fail(ld->err, MERAK_ERR_FORMAT, "%s: %s", ld->path, what);
}

bool merak_json_is_unset(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

bool merak_json_is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* --- a part, or a sequence of parts -------------------------------------- */

typedef enum merak_status (*part_fn)(struct merak_json_loader *ld,
                                     const json_t *part, const char *type);

/* Refuse a type that is not known. */
static enum merak_status unknown_part(struct merak_json_loader *ld,
                                      const char *what, const json_t *part,
                                      const char *wanted)
{
    const json_t *type = json_object_get(part, "type");

    return merak_json_unsupported(ld, what, type == NULL ? part : type, wanted);
}

/* Call fn for the file's part `name`, or for each part in a sequence's `list`;
 * not for null. */
static enum merak_status each_part(struct merak_json_loader *ld,
                                   const char *name, const char *list,
                                   part_fn fn)
{
    const json_t *part = json_object_get(ld->root, name), *one;
    enum merak_status rc = MERAK_OK;
    size_t i;

    if (merak_json_is_unset(part))
        return MERAK_OK;
    if (!merak_json_is_text(json_object_get(part, "type"), "Sequence")) {
        const char *type = json_string_value(json_object_get(part, "type"));

        return fn(ld, part, type == NULL ? "" : type);
    }
    json_array_foreach(json_object_get(part, list), i, one)
    {
        const char *type = json_string_value(json_object_get(one, "type"));

        rc = fn(ld, one, type == NULL ? "" : type);
        if (rc != MERAK_OK)
            return rc;
    }
    return rc;
}

/* The text of pattern {"String": ..} or {"Regex": ..}, or NULL. */
static const char *pattern_of(const json_t *part, const char *kind)
{
    return json_string_value(
        json_object_get(json_object_get(part, "pattern"), kind));
}

/* --- normalizer ---------------------------------------------------------- */

static enum merak_status add_step(struct merak_json_loader *ld,
                                  enum merak_step_kind kind, const char *from,
                                  const char *to)
{
    struct merak_rules *rules = &ld->vocab->rules;
    struct merak_normal_step *step = &rules->step[rules->n_steps];

    if (rules->n_steps == MERAK_MAX_STEPS)
        return merak_fail(ld->err, MERAK_ERR_UNSUPPORTED,
                          "%s: normalizer of more than %d steps", ld->path,
                          MERAK_MAX_STEPS);
    if (ld->nul[0] != '\0' &&
        ((from != NULL && strstr(from, ld->nul) != NULL) ||
         (to != NULL && strstr(to, ld->nul) != NULL)))
        return merak_fail(ld->err, MERAK_ERR_UNSUPPORTED,
                          "%s: normalizer with a NUL character", ld->path);
    rules->n_steps++;
    *step = (struct merak_normal_step){.kind = kind};
    step->from = from != NULL ? strdup(from) : NULL;
    step->to = to != NULL ? strdup(to) : NULL;
    if ((from != NULL && step->from == NULL) ||
        (to != NULL && step->to == NULL))
        return merak_fail_nomem(ld->err, 1);
    return MERAK_OK;
}

/* A String, or the Regex for two or more blanks. */
static enum merak_status replacement(struct merak_json_loader *ld,
                                     const json_t *part)
{
    const char *to = json_string_value(json_object_get(part, "content"));
    const char *from = pattern_of(part, "String");
    const char *regex = pattern_of(part, "Regex");

    if (to != NULL && from != NULL && from[0] != '\0')
        return add_step(ld, MERAK_NORMAL_REPLACE, from, to);
    if (to != NULL && regex != NULL && strcmp(regex, " {2,}") == 0)
        return add_step(ld, MERAK_NORMAL_BLANKS, NULL, to);
    return merak_json_unsupported(ld, "normalizer.Replace", part,
                                  "a String pattern or the Regex \" {2,}\", "
                                  "and its content");
}

static enum merak_status strip(struct merak_json_loader *ld, const json_t *part)
{
    struct merak_rules *rules = &ld->vocab->rules;
    const json_t *left = json_object_get(part, "strip_left");
    const json_t *right = json_object_get(part, "strip_right");
    enum merak_status rc;

    if (!json_is_boolean(left) || !json_is_boolean(right))
        return merak_json_malformed(ld, "normalizer Strip does not give its "
                                        "sides");
    rc = add_step(ld, MERAK_NORMAL_STRIP, NULL, NULL);
    if (rc != MERAK_OK)
        return rc;
    rules->step[rules->n_steps - 1].left = json_is_true(left);
    rules->step[rules->n_steps - 1].right = json_is_true(right);
    return MERAK_OK;
}

/* Value of a base64 digit; -1: not a digit. */
static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c == '\0' ? NULL : strchr(digits, c);

    return at == NULL ? -1 : (int)(at - digits);
}

/* Decode into `to`, which has room; false if the text is not base64. */
static bool decode_base64(const char *text, size_t n, unsigned char *to,
                          size_t *bytes_p)
{
    size_t bytes = 0, pad = 0;
    uint32_t bits = 0;

    while (pad < 2 && n > 0 && text[n - 1] == '=') {
        n--;
        pad++;
    }
    if ((n + pad) % 4 != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        int digit = base64_digit(text[i]);

        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        /* six bits per digit: each completes a byte, except every fourth */
        if (i % 4 != 0)
            to[bytes++] = (unsigned char)(bits >> (6 - 2 * (i % 4)));
    }
    *bytes_p = bytes;
    return true;
}

static enum merak_status charsmap(struct merak_json_loader *ld,
                                  const json_t *part)
{
    struct merak_spm_normal *normal = &ld->vocab->rules.spm;
    const json_t *text = json_object_get(part, "precompiled_charsmap");
    size_t n = json_string_length(text);

    if (normal->map != NULL)
        return merak_json_malformed(ld, "two normalizers are Precompiled");
    normal->map = malloc(n + 1);
    if (normal->map == NULL)
        return merak_fail_nomem(ld->err, n);
    if (!json_is_string(text) ||
        !decode_base64(json_string_value(text), n, normal->map,
                       &normal->map_bytes) ||
        !merak_spm_map_is_sound(normal->map, normal->map_bytes))
        return merak_json_malformed(ld, "normalizer Precompiled has no sound "
                                        "precompiled_charsmap");
    return add_step(ld, MERAK_NORMAL_MAP, NULL, NULL);
}

/* The forms of Unicode; false: another type. */
static bool find_form(const char *type, enum merak_form *form_p)
{
    static const char *const name[] = {[MERAK_NFC] = "NFC",
                                       [MERAK_NFD] = "NFD",
                                       [MERAK_NFKC] = "NFKC",
                                       [MERAK_NFKD] = "NFKD"};

    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
        if (strcmp(type, name[i]) == 0) {
            *form_p = (enum merak_form)i;
            return true;
        }
    }
    return false;
}

static enum merak_status add_form(struct merak_json_loader *ld,
                                  enum merak_form form)
{
    struct merak_rules *rules = &ld->vocab->rules;
    enum merak_status rc = add_step(ld, MERAK_NORMAL_FORM, NULL, NULL);

    if (rc == MERAK_OK)
        rules->step[rules->n_steps - 1].form = form;
    return rc;
}

static enum merak_status normalizer_part(struct merak_json_loader *ld,
                                         const json_t *part, const char *type)
{
    enum merak_form form;

    if (find_form(type, &form))
        return add_form(ld, form);
    if (strcmp(type, "Prepend") == 0) {
        const char *text = json_string_value(json_object_get(part, "prepend"));

        return text == NULL
                   ? merak_json_malformed(ld, "normalizer Prepend has no text")
                   : add_step(ld, MERAK_NORMAL_PREPEND, NULL, text);
    }
    if (strcmp(type, "Replace") == 0)
        return replacement(ld, part);
    if (strcmp(type, "Strip") == 0)
        return strip(ld, part);
    if (strcmp(type, "Precompiled") == 0)
        return charsmap(ld, part);
    return unknown_part(ld, "normalizer", part,
                        "null, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, "
                        "Precompiled or a Sequence of them");
}

/* --- pre-tokenizer ------------------------------------------------------- */

static const char order_text[] =
    "ByteLevel, Metaspace after an optional WhitespaceSplit, or Digits and one "
    "Split before a ByteLevel";

static enum merak_status byte_level(struct merak_json_loader *ld,
                                    const json_t *part)
{
    struct merak_rules *rules = &ld->vocab->rules;
    const json_t *prefix = json_object_get(part, "add_prefix_space");
    const json_t *regex = json_object_get(part, "use_regex");
    bool cut =
        rules->split != MERAK_SPLIT_NONE || rules->digits != MERAK_DIGITS_NONE;

    if (!json_is_boolean(prefix))
        return merak_json_malformed(ld,
                                    "pre_tokenizer has no add_prefix_space");
    if (rules->marks || ld->byte_level || (json_is_true(prefix) && cut))
        return merak_json_unsupported(
            ld, "pre_tokenizer", json_object_get(ld->root, "pre_tokenizer"),
            order_text);
    ld->byte_level = true;
    if (json_is_true(prefix))
        rules->prefix = MERAK_PREFIX_ALWAYS;
    if (regex != NULL && !json_is_true(regex))
        return MERAK_OK;
    if (rules->split != MERAK_SPLIT_NONE)
        return merak_json_unsupported(ld, "pre_tokenizer.use_regex", regex,
                                      "false after a Split");
    rules->split = MERAK_SPLIT_GPT2;
    return MERAK_OK;
}

/* Does the normalizer replace blanks? */
static bool replaces_blanks(const struct merak_rules *rules)
{
    for (int i = 0; i < rules->n_steps; i++) {
        if (rules->step[i].kind == MERAK_NORMAL_REPLACE &&
            strcmp(rules->step[i].from, " ") == 0 &&
            strchr(rules->step[i].to, ' ') == NULL)
            return true;
    }
    return false;
}

static enum merak_status split(struct merak_json_loader *ld, const json_t *part)
{
    struct merak_rules *rules = &ld->vocab->rules;
    const json_t *behavior = json_object_get(part, "behavior");
    const json_t *invert = json_object_get(part, "invert");
    const char *regex = pattern_of(part, "Regex");
    const char *text = pattern_of(part, "String");
    bool whole =
        (merak_json_is_text(behavior, "Isolated") && !json_is_true(invert)) ||
        (merak_json_is_text(behavior, "Removed") && json_is_true(invert));

    if (text != NULL && strcmp(text, " ") == 0 && replaces_blanks(rules))
        return MERAK_OK;
    if (ld->byte_level || rules->split != MERAK_SPLIT_NONE)
        return merak_json_unsupported(
            ld, "pre_tokenizer", json_object_get(ld->root, "pre_tokenizer"),
            order_text);
    if (regex != NULL)
        rules->split = merak_split_find(regex);
    if (rules->split == MERAK_SPLIT_NONE || !whole)
        return merak_json_unsupported(
            ld, "pre_tokenizer.Split", json_object_get(part, "pattern"),
            "the patterns of GPT-2, Llama 3 and Qwen2, each match a piece");
    return MERAK_OK;
}

static enum merak_status digits(struct merak_json_loader *ld,
                                const json_t *part)
{
    struct merak_rules *rules = &ld->vocab->rules;

    if (ld->byte_level || rules->split != MERAK_SPLIT_NONE ||
        rules->digits != MERAK_DIGITS_NONE)
        return merak_json_unsupported(
            ld, "pre_tokenizer", json_object_get(ld->root, "pre_tokenizer"),
            order_text);
    rules->digits = json_is_true(json_object_get(part, "individual_digits"))
                        ? MERAK_DIGITS_EACH
                        : MERAK_DIGITS_RUNS;
    return MERAK_OK;
}

/* When Metaspace prepends a blank: older files have a boolean. */
static enum merak_status metaspace_prefix(struct merak_json_loader *ld,
                                          const json_t *part,
                                          enum merak_prefix *prefix_p)
{
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    const json_t *add = json_object_get(part, "add_prefix_space");

    if (merak_json_is_text(scheme, "first"))
        *prefix_p = MERAK_PREFIX_FIRST;
    else if (merak_json_is_text(scheme, "never") ||
             (scheme == NULL && json_is_false(add)))
        *prefix_p = MERAK_PREFIX_NEVER;
    else if (scheme == NULL || merak_json_is_text(scheme, "always"))
        *prefix_p = MERAK_PREFIX_ALWAYS;
    else
        return merak_json_unsupported(ld, "Metaspace.prepend_scheme", scheme,
                                      "first, never or always");
    return MERAK_OK;
}

static enum merak_status metaspace(struct merak_json_loader *ld,
                                   const json_t *part)
{
    struct merak_rules *rules = &ld->vocab->rules;
    const json_t *mark = json_object_get(part, "replacement");

    if (!merak_json_is_text(mark, MERAK_MARK))
        return merak_json_unsupported(ld, "Metaspace.replacement", mark,
                                      "\"" MERAK_MARK "\"");
    if (ld->byte_level || rules->marks || rules->split != MERAK_SPLIT_NONE ||
        rules->digits != MERAK_DIGITS_NONE)
        return merak_json_unsupported(
            ld, "pre_tokenizer", json_object_get(ld->root, "pre_tokenizer"),
            order_text);
    rules->marks = true;
    rules->cut_marks = !json_is_false(json_object_get(part, "split"));
    return metaspace_prefix(ld, part, &rules->prefix);
}

static enum merak_status words(struct merak_json_loader *ld)
{
    struct merak_rules *rules = &ld->vocab->rules;

    if (ld->byte_level || rules->marks || rules->split != MERAK_SPLIT_NONE ||
        rules->digits != MERAK_DIGITS_NONE)
        return merak_json_unsupported(
            ld, "pre_tokenizer", json_object_get(ld->root, "pre_tokenizer"),
            order_text);
    rules->words = true;
    return MERAK_OK;
}

static enum merak_status pre_tokenizer_part(struct merak_json_loader *ld,
                                            const json_t *part,
                                            const char *type)
{
    if (strcmp(type, "ByteLevel") == 0)
        return byte_level(ld, part);
    if (strcmp(type, "Split") == 0)
        return split(ld, part);
    if (strcmp(type, "Digits") == 0)
        return digits(ld, part);
    if (strcmp(type, "Metaspace") == 0)
        return metaspace(ld, part);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return words(ld);
    return unknown_part(ld, "pre_tokenizer", part, order_text);
}

/* --- post-processor ------------------------------------------------------ */

static enum merak_status add_around(struct merak_json_loader *ld,
                                    const json_t *ids, bool after)
{
    struct merak_rules *rules = &ld->vocab->rules;
    int *n = after ? &rules->n_after : &rules->n_before;
    int32_t *to = after ? rules->after : rules->before;
    const json_t *id;
    size_t i;

    if (json_array_size(ids) == 0)
        return merak_json_malformed(
            ld, "post_processor names a token that it gives no ids");
    json_array_foreach(ids, i, id)
    {
        json_int_t value = json_integer_value(id);

        if (!json_is_integer(id) || value < 0 || value > INT32_MAX ||
            *n == MERAK_MAX_AROUND)
            return merak_json_malformed(ld, "post_processor: ids are not 1 to "
                                            "8 token ids");
        to[(*n)++] = (int32_t)value;
    }
    return MERAK_OK;
}

/* The template's tokens around "A", the text. */
static enum merak_status text_template(struct merak_json_loader *ld,
                                       const json_t *part)
{
    const json_t *single = json_object_get(part, "single"), *one;
    const json_t *known = json_object_get(part, "special_tokens");
    bool after = false;
    size_t i;

    if (!json_is_array(single))
        return merak_json_malformed(ld, "post_processor has no \"single\"");
    json_array_foreach(single, i, one)
    {
        const char *name = json_string_value(
            json_object_get(json_object_get(one, "SpecialToken"), "id"));
        enum merak_status rc = MERAK_OK;

        if (name != NULL)
            rc = add_around(
                ld, json_object_get(json_object_get(known, name), "ids"),
                after);
        else if (json_object_get(one, "Sequence") == NULL || after)
            rc = merak_json_unsupported(ld, "post_processor.single", single,
                                        "special tokens around one Sequence");
        else
            after = true;
        if (rc != MERAK_OK)
            return rc;
    }
    return after ? MERAK_OK
                 : merak_json_malformed(ld, "post_processor leaves the text "
                                            "out");
}

static enum merak_status post_part(struct merak_json_loader *ld,
                                   const json_t *part, const char *type)
{
    if (strcmp(type, "ByteLevel") == 0)
        return MERAK_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return text_template(ld, part);
    return unknown_part(ld, "post_processor", part,
                        "null, ByteLevel, TemplateProcessing or a Sequence of "
                        "them");
}

/* --- decoder ------------------------------------------------------------- */

/* Decoding tokens of characters always replaces marks by blanks and byte
 * tokens by bytes, and joins them; only the leading blank may differ. */
static enum merak_status decoder_part(struct merak_json_loader *ld,
                                      const json_t *part, const char *type)
{
    static const char *const plain[] = {"ByteLevel", "ByteFallback", "Fuse",
                                        "Replace"};
    struct merak_rules *rules = &ld->vocab->rules;
    enum merak_prefix prefix = MERAK_PREFIX_NEVER;
    enum merak_status rc;

    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        if (strcmp(type, plain[i]) == 0)
            return MERAK_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        rules->drop_blank =
            merak_json_is_text(json_object_get(part, "content"), " ") &&
            json_integer_value(json_object_get(part, "start")) > 0;
        return MERAK_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        rc = metaspace_prefix(ld, part, &prefix);
        rules->drop_blank = prefix != MERAK_PREFIX_NEVER;
        return rc;
    }
    return unknown_part(ld, "decoder", part,
                        "null, ByteLevel, Metaspace, or a Sequence of Replace, "
                        "ByteFallback, Fuse and Strip");
}

enum merak_status merak_json_rules(struct merak_json_loader *ld)
{
    enum merak_status rc;

    rc = each_part(ld, "normalizer", "normalizers", normalizer_part);
    if (rc == MERAK_OK)
        rc =
            each_part(ld, "pre_tokenizer", "pretokenizers", pre_tokenizer_part);
    if (rc == MERAK_OK)
        rc = each_part(ld, "post_processor", "processors", post_part);
    if (rc == MERAK_OK)
        rc = each_part(ld, "decoder", "decoders", decoder_part);
    return rc;
}
