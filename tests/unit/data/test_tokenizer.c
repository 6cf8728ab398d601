/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer.c - ids equal Hugging Face's, and give the text back
 *
 * The vectors were made with the tokenizers package: vectors/tokenizer/.
 */
#include "config.h"

#include "unit/data_files.h"
#include "unit/data/token_ids.h"

#include "base/rng.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

#define VECTORS TEST_SRCDIR "/vectors/tokenizer/"

static struct merak_tokenizer *open_tokenizer(const char *name)
{
    struct merak_tokenizer *tok = NULL;
    struct merak_error err = {.text = ""};

    if (merak_tokenizer_open(name, &tok, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    return tok;
}

static void encode(struct merak_tokenizer *tok, const void *text, size_t n,
                   struct ids *got)
{
    got->n = 0;
    assert_int_equal(merak_tokenizer_encode(tok, text, n, collect, got, NULL),
                     MERAK_OK);
}

static size_t decode(const struct merak_tokenizer *tok, const struct ids *ids,
                     char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < ids->n; i++) {
        const char *text;
        size_t bytes;

        assert_int_equal(
            merak_tokenizer_decode(tok, ids->id[i], &text, &bytes, NULL),
            MERAK_OK);
        assert_true(n + bytes <= MAX_TEXT);
        memcpy(out + n, text, bytes);
        n += bytes;
    }
    return n;
}

/* "hex<TAB>id id ..": the text's length and the ids. */
static size_t parse_vector(char *line, unsigned char *text, struct ids *want)
{
    char *tab = strchr(line, '\t'), *p = line;
    size_t n = 0;
    unsigned byte;

    assert_non_null(tab);
    for (; p < tab; p += 2) {
        assert_int_equal(sscanf(p, "%2x", &byte), 1);
        text[n++] = (unsigned char)byte;
    }
    want->n = 0;
    for (p = strtok(tab, "\t \n"); p != NULL; p = strtok(NULL, " \n"))
        want->id[want->n++] = (int32_t)strtol(p, NULL, 10);
    return n;
}

static void ids_are_those_of_hugging_face(void **state)
{
    static struct ids want, got;
    static unsigned char text[MAX_TEXT];
    static char line[MAX_TEXT], back[MAX_TEXT];
    struct merak_tokenizer *tok = open_tokenizer(VECTORS "tiny.json");
    FILE *f = fopen(VECTORS "vectors.txt", "r");
    int lines = 0;

    (void)state;
    assert_non_null(f);
    for (; fgets(line, sizeof(line), f) != NULL; lines++) {
        size_t n = parse_vector(line, text, &want);

        encode(tok, text, n, &got);
        if (got.n != want.n ||
            memcmp(got.id, want.id, got.n * sizeof(*got.id)) != 0)
            fail_msg("line %d: other ids for \"%.*s\"", lines + 1, (int)n,
                     text);
        assert_int_equal(decode(tok, &got, back), n);
        assert_memory_equal(back, text, n);
    }
    assert_int_equal(lines, 234);
    fclose(f);
    merak_tokenizer_close(tok);
}

static void check_classes(unsigned first, unsigned end, char class)
{
    static const char names[] = "OLNS";

    for (unsigned cp = first; cp < end; cp++) {
        if (cp >= 0xd800 && cp < 0xe000)
            continue;
        if (names[merak_char_class(cp)] != class)
            fail_msg("U+%04X is %c, expected %c", cp,
                     names[merak_char_class(cp)], class);
    }
}

/* Every code point is of the class that the package splits by. */
static void character_classes_are_those_of_hugging_face(void **state)
{
    FILE *f = fopen(VECTORS "classes.txt", "r");
    unsigned first, next;
    char class, next_class;
    int changes = 1;

    (void)state;
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%x %c\n", &first, &class), 2);
    assert_int_equal(first, 0);
    for (; fscanf(f, "%x %c\n", &next, &next_class) == 2; changes++) {
        check_classes(first, next, class);
        first = next;
        class = next_class;
    }
    check_classes(first, 0x110000, class);
    assert_int_equal(changes, 1610);
    fclose(f);
}

/* Bytes of all kinds, most no UTF-8, with tokens of the file in between. */
static size_t random_text(uint64_t key, unsigned char *text)
{
    static const char *const words[] = {
        "the ", "<|endoftext|>", "<|end", "\xc3\xa9", "  ", "'ll", "License"};
    size_t n = 0, pieces = merak_rng_mix(key, 0) % 60;

    for (size_t i = 1; i <= pieces; i++) {
        uint64_t r = merak_rng_mix(key, i);

        if (r % 3 == 0) {
            const char *w = words[r / 3 % 7];

            memcpy(text + n, w, strlen(w));
            n += strlen(w);
        } else {
            text[n++] = (unsigned char)(r / 3);
        }
    }
    return n;
}

static void decoding_gives_every_text_back(void **state)
{
    static const char *const names[] = {"byte", VECTORS "tiny.json"};
    static struct ids ids;
    static char back[MAX_TEXT];
    unsigned char text[1024];

    (void)state;
    for (size_t t = 0; t < 2; t++) {
        struct merak_tokenizer *tok = open_tokenizer(names[t]);

        for (uint64_t key = 0; key < 3000; key++) {
            size_t n = random_text(key, text);

            encode(tok, text, n, &ids);
            assert_int_equal(decode(tok, &ids, back), n);
            assert_memory_equal(back, text, n);
        }
        merak_tokenizer_close(tok);
    }
}

/* What a piece is where bytes are no UTF-8, which no other package says. */
static void bytes_that_are_no_utf8_stand_alone(void **state)
{
    static struct ids whole, parts, part;
    struct merak_tokenizer *tok = open_tokenizer(VECTORS "tiny.json");
    const char *const pieces[] = {" the",     "  ",   "\xff\xc3",     "the",
                                  "\xed\xa0", "\x80", " \xe4\xbd\xa0"};
    char text[100] = "";

    (void)state;
    parts.n = 0;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        strcat(text, pieces[i]);
        encode(tok, pieces[i], strlen(pieces[i]), &part);
        collect(&parts, part.id, part.n, NULL);
    }
    encode(tok, text, strlen(text), &whole);
    assert_int_equal(whole.n, parts.n);
    assert_memory_equal(whole.id, parts.id, whole.n * sizeof(*whole.id));
    merak_tokenizer_close(tok);
}

static void bytes_are_their_own_ids(void **state)
{
    static struct ids ids;
    struct merak_tokenizer *tok = open_tokenizer("byte");
    const int32_t want[] = {'h', 0xc3, 0xa9, 0, 0xff};
    struct merak_error err;
    const char *text;
    size_t n;

    (void)state;
    assert_int_equal(merak_tokenizer_vocab(tok), 257);
    assert_int_equal(merak_tokenizer_eod(tok), 256);
    encode(tok, "h\xc3\xa9\0\xff", 5, &ids);
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.id, want, sizeof(want));
    assert_int_equal(merak_tokenizer_decode(tok, 257, &text, &n, &err),
                     MERAK_ERR_PARAM);
    assert_string_equal(err.text, "no token has id 257");
    merak_tokenizer_close(tok);
}

static enum merak_status refuse(void *arg, const int32_t *ids, size_t n,
                                struct merak_error *err)
{
    (void)err;
    *(int *)arg += 1;
    return n > 0 && ids[0] >= 0 ? MERAK_ERR_NOSPACE : MERAK_OK;
}

static void what_the_sink_says_ends_it(void **state)
{
    static char text[100000];
    struct merak_tokenizer *tok = open_tokenizer("byte");
    int calls = 0;

    (void)state;
    assert_int_equal(
        merak_tokenizer_encode(tok, text, sizeof(text), refuse, &calls, NULL),
        MERAK_ERR_NOSPACE);
    assert_int_equal(calls, 1);
    merak_tokenizer_close(tok);
}

/* tiny.json with the first `from` replaced by `to`. */
static const struct {
    const char *from, *to;
    enum merak_status status;
    const char *text; /* after the file's name */
} rows[] = {
    {"\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
     MERAK_ERR_UNSUPPORTED, "normalizer is \"Lowercase\", supported: null"},
    {"\"type\":\"BPE\"", "\"type\":\"WordPiece\"", MERAK_ERR_UNSUPPORTED,
     "model.type is \"WordPiece\", supported: \"BPE\""},
    {"\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"", MERAK_ERR_UNSUPPORTED,
     "pre_tokenizer is \"Whitespace\", supported: ByteLevel"},
    {"\"post_processor\":null",
     "\"post_processor\":{\"type\":\"TemplateProcessing\"}", MERAK_ERR_FORMAT,
     "post_processor has no \"single\""},
    {"\"post_processor\":null", "\"post_processor\":{\"type\":\"Bert\"}",
     MERAK_ERR_UNSUPPORTED, "post_processor is \"Bert\", supported: null"},
    {"\"truncation\":null", "\"truncation\":{\"max_length\":5}",
     MERAK_ERR_UNSUPPORTED,
     "truncation is {\"max_length\":5}, supported: null"},
    {"\"dropout\":null", "\"dropout\":0.1", MERAK_ERR_UNSUPPORTED,
     "model.dropout is 0.10000000000000001, supported: null or 0"},
    {"\"ignore_merges\":false", "\"ignore_merges\":1", MERAK_ERR_UNSUPPORTED,
     "model.ignore_merges is 1, supported: true or false"},
    {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
     MERAK_ERR_UNSUPPORTED, "end_of_word_suffix is \"</w>\", supported: null"},
    {"\"fuse_unk\":false", "\"novelty\":1", MERAK_ERR_UNSUPPORTED,
     "unknown field \"novelty\" of model"},
    {"\"padding\":null", "\"extra\":null", MERAK_ERR_UNSUPPORTED,
     "unknown field \"extra\" of the file"},
    {"\"version\":\"1.0\"", "\"version\":\"2.0\"", MERAK_ERR_UNSUPPORTED,
     "version is \"2.0\", supported: \"1.0\""},
    {"\"lstrip\":false", "\"lstrip\":0", MERAK_ERR_FORMAT,
     "lstrip of added token \"<|endoftext|>\" is not true or false"},
    {"\"id\":656", "\"id\":655", MERAK_ERR_FORMAT,
     "id 655 is given to \"<|endoftext|>\" and to another token"},
    {"\"!\":0", "\"!\":-1", MERAK_ERR_FORMAT,
     "token \"!\" has no id from 0 to 16777215"},
    {"\"merges\":[[", "\"merges\":[[\"x\"],[", MERAK_ERR_FORMAT,
     "merge 0 is not two tokens"},
    {"\"merges\":[[", "\"merges\":[[\"!\",\"?\"],[", MERAK_ERR_FORMAT,
     "merge 0 needs token \"!?\", which the vocabulary lacks"},
    {"\"merges\":[[", "\"merges\":[\"! ? !\",[", MERAK_ERR_FORMAT,
     "merge 0 is not two tokens"},
    {"\"vocab\":{", "\"vocab\":{,", MERAK_ERR_FORMAT, "not JSON, line 1: "},
};

/* tiny.json as one string, with room to grow. */
static void load_tiny(char *json)
{
    size_t n = read_file(VECTORS "tiny.json", json, MAX_TEXT - 1);

    json[n] = '\0';
}

static void replace(char *json, const char *from, const char *to)
{
    char *p = strstr(json, from);

    assert_non_null(p);
    memmove(p + strlen(to), p + strlen(from), strlen(p + strlen(from)) + 1);
    memcpy(p, to, strlen(to));
}

/* No merge is ever left out. */
static void no_dropout_may_be_said_as_zero(void **state)
{
    static char json[MAX_TEXT];
    struct merak_tokenizer *tok = NULL;
    struct merak_error err;

    (void)state;
    load_tiny(json);
    replace(json, "\"dropout\":null", "\"dropout\":0.0");
    write_file(at("t.json"), json, strlen(json));
    if (merak_tokenizer_open(at("t.json"), &tok, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_tokenizer_close(tok);
}

static void what_is_not_there_is_refused_by_name(void **state)
{
    static char json[MAX_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct merak_tokenizer *tok = NULL;
        struct merak_error err;

        load_tiny(json);
        replace(json, rows[i].from, rows[i].to);
        write_file(at("t.json"), json, strlen(json));
        assert_int_equal(merak_tokenizer_open(at("t.json"), &tok, &err),
                         rows[i].status);
        if (strncmp(err.text + strlen(at("t.json")) + 2, rows[i].text,
                    strlen(rows[i].text)) != 0)
            fail_msg("got \"%s\", want \"%s\"", err.text, rows[i].text);
    }
}

/* Rewrite merges [["a","b"],..] as ["a b",..]. */
static void join_merges(const char *json, char *out)
{
    const char *p = strstr(json, "[[");
    int head = (int)(p + 1 - json);

    out += sprintf(out, "%.*s", head, json);
    for (p++; strncmp(p, "[\"", 2) == 0;) {
        const char *left = p + 2, *comma = strstr(p, "\",\"");
        const char *right = comma + 3, *end = strstr(right, "\"]");

        out += sprintf(out, "\"%.*s %.*s\"", (int)(comma - left), left,
                       (int)(end - right), right);
        p = end + 2;
        if (*p == ',')
            *out++ = *p++;
    }
    strcpy(out, p);
}

/* Files of before 2024 write "a b", newer ones ["a", "b"]. */
static void merges_may_be_strings(void **state)
{
    static char json[MAX_TEXT], joined[MAX_TEXT], text[4096];
    static struct ids one, two;
    struct merak_tokenizer *tok;
    size_t n = read_file(TEST_SRCDIR "/../LICENSE", text, sizeof(text));

    (void)state;
    load_tiny(json);
    join_merges(json, joined);
    assert_null(strstr(joined, "[["));
    write_file(at("s.json"), joined, strlen(joined));
    tok = open_tokenizer(VECTORS "tiny.json");
    encode(tok, text, n, &one);
    merak_tokenizer_close(tok);
    tok = open_tokenizer(at("s.json"));
    encode(tok, text, n, &two);
    merak_tokenizer_close(tok);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.id, two.id, one.n * sizeof(*one.id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_of_hugging_face),
        cmocka_unit_test(character_classes_are_those_of_hugging_face),
        cmocka_unit_test(decoding_gives_every_text_back),
        cmocka_unit_test(bytes_that_are_no_utf8_stand_alone),
        cmocka_unit_test(bytes_are_their_own_ids),
        cmocka_unit_test(what_the_sink_says_ends_it),
        cmocka_unit_test(no_dropout_may_be_said_as_zero),
        cmocka_unit_test(what_is_not_there_is_refused_by_name),
        cmocka_unit_test(merges_may_be_strings),
    };

    return cmocka_run_group_tests_name("tokenizer", tests, make_scratch,
                                       remove_scratch);
}
