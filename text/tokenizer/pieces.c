/* SPDX-License-Identifier: Apache-2.0 */
/* pieces.c - the patterns that split texts into pieces */
#include "config.h"

#include "text/tokenizer/pieces.h"

#include "text/tokenizer/unicode.h"

#include <stdbool.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern;
    enum merak_split split;
} patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
     "\\s+(?!\\S)|\\s+",
     MERAK_SPLIT_GPT2},
    {CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST,
     MERAK_SPLIT_LLAMA3},
    {CONTRACTIONS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST,
     MERAK_SPLIT_QWEN2},
};

enum merak_split merak_split_find(const char *pattern)
{
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        if (strcmp(patterns[i].pattern, pattern) == 0)
            return patterns[i].split;
    }
    return MERAK_SPLIT_NONE;
}

static size_t run_of(enum merak_char class, const unsigned char *text, size_t n,
                     size_t from)
{
    size_t bytes;

    while (from < n && merak_char_at(text + from, n - from, &bytes) == class)
        from += bytes;
    return from;
}

/* Class of what follows; MERAK_CHAR_INVALID at the end. */
static enum merak_char class_at(const unsigned char *text, size_t n,
                                size_t from, size_t *bytes_p)
{
    *bytes_p = 0;
    return from < n ? merak_char_at(text + from, n - from, bytes_p)
                    : MERAK_CHAR_INVALID;
}

/* 's 't 'm 'd 're 've 'll: length, or 0. */
static size_t contraction(const unsigned char *text, size_t n)
{
    if (n >= 2 && memchr("stmd", text[1], 4) != NULL)
        return 2;
    if (n >= 3 &&
        (memcmp(text + 1, "re", 2) == 0 || memcmp(text + 1, "ve", 2) == 0 ||
         memcmp(text + 1, "ll", 2) == 0))
        return 3;
    return 0;
}

/* The same, ignoring case; the long s (U+017F) counts as s. */
static size_t any_contraction(const unsigned char *text, size_t n)
{
    unsigned char lower[3] = {text[0]};

    for (size_t i = 1; i < 3 && i < n; i++)
        lower[i] = text[i] < 0x80 ? text[i] | 0x20 : text[i];
    if (n >= 3 && text[1] == 0xc5 && text[2] == 0xbf)
        return 3;
    return contraction(lower, n < 3 ? n : 3);
}

/* A run of spaces leaves its last one to the word that follows. */
static size_t space_piece(const unsigned char *text, size_t n)
{
    size_t end = 0, last = 0, bytes;

    while (end < n &&
           merak_char_at(text + end, n - end, &bytes) == MERAK_CHAR_SPACE) {
        last = end;
        end += bytes;
    }
    if (end == n || last == 0 ||
        merak_char_at(text + end, n - end, &bytes) == MERAK_CHAR_INVALID)
        return end;
    return last;
}

static size_t gpt2_piece(const unsigned char *text, size_t n)
{
    size_t bytes, next_bytes, cut;
    enum merak_char class = merak_char_at(text, n, &bytes), next;

    if (text[0] == '\'') {
        cut = contraction(text, n);
        if (cut > 0)
            return cut;
    }
    if (text[0] == ' ' && n > 1) {
        next = merak_char_at(text + 1, n - 1, &next_bytes);
        if (next != MERAK_CHAR_SPACE && next != MERAK_CHAR_INVALID)
            return run_of(next, text, n, 1 + next_bytes);
    }
    if (class == MERAK_CHAR_SPACE)
        return space_piece(text, n);
    return run_of(class, text, n, bytes);
}

static bool is_newline(unsigned char c)
{
    return c == '\r' || c == '\n';
}

/* [^\s\p{L}\p{N}]+[\r\n]* from `from` on, or 0. */
static size_t sign_piece(const unsigned char *text, size_t n, size_t from)
{
    size_t end = run_of(MERAK_CHAR_OTHER, text, n, from);

    if (end == from)
        return 0;
    while (end < n && is_newline(text[end]))
        end++;
    return end;
}

/* \s*[\r\n]+, or 0: a run of spaces up to its last line break. */
static size_t line_piece(const unsigned char *text, size_t n)
{
    size_t run = run_of(MERAK_CHAR_SPACE, text, n, 0);

    while (run > 0 && !is_newline(text[run - 1]))
        run--;
    return run;
}

static size_t numerals(const unsigned char *text, size_t n, int most)
{
    size_t end = 0, bytes;

    while (most-- > 0 && class_at(text, n, end, &bytes) == MERAK_CHAR_NUMBER)
        end += bytes;
    return end;
}

static size_t llama3_piece(const unsigned char *text, size_t n, int numbers)
{
    size_t bytes, next_bytes, cut;
    enum merak_char class = merak_char_at(text, n, &bytes), next;

    if (text[0] == '\'') {
        cut = any_contraction(text, n);
        if (cut > 0)
            return cut;
    }
    if (class == MERAK_CHAR_LETTER)
        return run_of(class, text, n, bytes);
    if (class == MERAK_CHAR_INVALID)
        return run_of(class, text, n, bytes);
    if (class == MERAK_CHAR_NUMBER)
        return numerals(text, n, numbers);
    next = class_at(text, n, bytes, &next_bytes);
    if (next == MERAK_CHAR_LETTER && !is_newline(text[0]))
        return run_of(next, text, n, bytes + next_bytes);
    cut = sign_piece(text, n, text[0] == ' ');
    if (cut == 0)
        cut = line_piece(text, n);
    return cut > 0 ? cut : space_piece(text, n);
}

size_t merak_piece(enum merak_split split, const unsigned char *text, size_t n)
{
    switch (split) {
    case MERAK_SPLIT_GPT2:
        return gpt2_piece(text, n);
    case MERAK_SPLIT_LLAMA3:
        return llama3_piece(text, n, 3);
    case MERAK_SPLIT_QWEN2:
        return llama3_piece(text, n, 1);
    case MERAK_SPLIT_NONE:
        break;
    }
    return n;
}

size_t merak_digits_piece(enum merak_digits digits, const unsigned char *text,
                          size_t n)
{
    size_t end = 0, bytes;
    bool number = class_at(text, n, 0, &bytes) == MERAK_CHAR_NUMBER;

    if (digits == MERAK_DIGITS_NONE)
        return n;
    if (number && digits == MERAK_DIGITS_EACH)
        return bytes;
    while (end < n &&
           (class_at(text, n, end, &bytes) == MERAK_CHAR_NUMBER) == number)
        end += bytes;
    return end;
}
