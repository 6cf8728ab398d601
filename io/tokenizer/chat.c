/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - conversations as text in a model's chat format */
#include "config.h"

#include "io/tokenizer/chat.h"
#include "io/tokenizer/chat_formats.h"

#include "io/template/jinja.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

enum { MOST_WORDS = 32 };

struct merak_chat {
    struct merak_jinja *template; /* NULL: one of our rows .. */
    struct merak_chat_format format;
    const char *name;
    /* from the tokenizer's files */
    json_t *config, *map;
    struct merak_jinja_word word[MOST_WORDS];
    size_t n_words;
    const char *bos, *eos;
    time_t now;
    bool has_date;
    struct merak_jinja_output made; /* output of the template */
};

/* --- opening -------------------------------------------------------------- */

/* The path of a file next to the tokenizer's, or in its folder. */
static void beside(const char *tokenizer, const char *name, char path[PATH_MAX])
{
    const char *slash = strrchr(tokenizer, '/');
    struct stat st;
    int n = (int)strlen(tokenizer);

    if (stat(tokenizer, &st) != 0 || !S_ISDIR(st.st_mode))
        n = slash == NULL ? 0 : (int)(slash - tokenizer);
    snprintf(path, PATH_MAX, "%.*s%s%s", n, tokenizer,
             n > 0 || tokenizer[0] == '/' ? "/" : "", name);
}

/* Read names with a text, such as "bos_token": "<s>", or {"content": "<s>",
 * ..}. */
static void read_words(struct merak_chat *chat, const json_t *config)
{
    static const char end[] = "_token";
    const char *name;
    const json_t *value;
    size_t known, n;

    json_object_foreach((json_t *)config, name, value)
    {
        if (json_is_object(value))
            value = json_object_get(value, "content");
        n = strlen(name);
        if (!json_is_string(value) || n < sizeof(end) ||
            strcmp(name + n - sizeof(end) + 1, end) != 0)
            continue;
        for (known = 0; known < chat->n_words; known++) {
            if (strcmp(chat->word[known].name, name) == 0)
                break;
        }
        if (known == chat->n_words && known < MOST_WORDS)
            chat->word[chat->n_words++] =
                (struct merak_jinja_word){name, json_string_value(value)};
    }
}

static const char *word_of(const struct merak_chat *chat, const char *name,
                           const char *or_else)
{
    for (size_t i = 0; i < chat->n_words; i++) {
        if (strcmp(chat->word[i].name, name) == 0)
            return chat->word[i].text;
    }
    return or_else;
}

/* The template: a text, or the default one in a list of named texts. */
static const char *template_of(const json_t *config)
{
    const json_t *template = json_object_get(config, "chat_template"), *each;
    size_t i;

    json_array_foreach(template, i, each)
    {
        const char *name = json_string_value(json_object_get(each, "name"));

        if (name != NULL && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(each, "template"));
    }
    return json_string_value(template);
}

/* Read a small file as a string, to be freed; NULL if it does not exist. */
static char *read_text(const char *path)
{
    FILE *f = fopen(path, "re");
    struct merak_buffer b = {0};
    char block[4096];
    size_t n = 1;

    while (f != NULL && n > 0) {
        n = fread(block, 1, sizeof(block), f);
        if (b.n > 1 << 24 || merak_buffer_add(&b, block, n, NULL) != MERAK_OK)
            break;
    }
    if (f != NULL)
        fclose(f);
    if (b.n == 0 || merak_buffer_add(&b, "", 1, NULL) != MERAK_OK) {
        free(b.text);
        return NULL;
    }
    return (char *)b.text;
}

const char *merak_chat_names(void)
{
    return "chatml, gemma, llama2, llama3, llama3.1, mistral, phi3, qwen3, "
           "zephyr";
}

static enum merak_status find_word(const char *word,
                                   const struct merak_chat_format **format_p,
                                   struct merak_error *err)
{
    const struct merak_chat_format *f = merak_chat_formats;

    while (f->name != NULL && strcmp(f->name, word) != 0)
        f++;
    if (f->name == NULL)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--chat: no format \"%.40s\"; there are %s", word,
                          merak_chat_names());
    *format_p = f;
    return MERAK_OK;
}

/* The current time, or SOURCE_DATE_EPOCH, as in reproducible builds. */
static time_t read_clock(void)
{
    const char *said = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    long long at = said != NULL ? strtoll(said, &end, 10) : 0;

    return said != NULL && end != said && *end == '\0' ? (time_t)at
                                                       : time(NULL);
}

static enum merak_status open_template(struct merak_chat *chat,
                                       const char *tokenizer,
                                       struct merak_error *err)
{
    char path[PATH_MAX], *own;
    const char *template;
    enum merak_status rc;

    beside(tokenizer, "chat_template.jinja", path);
    own = read_text(path);
    template = own != NULL ? own : template_of(chat->config);
    chat->name = own != NULL ? "chat_template.jinja" : "tokenizer_config.json";
    if (template == NULL)
        rc = merak_fail(err, MERAK_ERR_UNSUPPORTED,
                        "messages need a chat template, and there is none next "
                        "to %s (tokenizer_config.json or chat_template.jinja); "
                        "choose one with --chat FORMAT: %s",
                        tokenizer, merak_chat_names());
    else
        rc = merak_jinja_compile(template, strlen(template), &chat->template,
                                 err);
    if (rc != MERAK_OK && template != NULL)
        merak_error_wrap(err,
                         "the chat template of %s cannot be run here (choose "
                         "the nearest format with --chat FORMAT: %s)",
                         tokenizer, merak_chat_names());
    free(own);
    return rc;
}

static json_t *load(const char *tokenizer, const char *name)
{
    char path[PATH_MAX];

    beside(tokenizer, name, path);
    return json_load_file(path, 0, NULL);
}

enum merak_status merak_chat_open(const char *tokenizer, const char *format,
                                  struct merak_chat **chat_p,
                                  struct merak_error *err)
{
    struct merak_chat *chat = calloc(1, sizeof(*chat));
    const struct merak_chat_format *f = NULL;
    enum merak_status rc;

    if (chat == NULL)
        return merak_fail_nomem(err, sizeof(*chat));
    chat->config = load(tokenizer, "tokenizer_config.json");
    chat->map = load(tokenizer, "special_tokens_map.json");
    chat->now = read_clock();
    read_words(chat, chat->config);
    read_words(chat, chat->map);
    if (format == NULL) {
        rc = open_template(chat, tokenizer, err);
    } else {
        rc = find_word(format, &f, err);
        if (rc == MERAK_OK) {
            chat->format = *f;
            chat->name = f->name;
        }
    }
    chat->bos = word_of(chat, "bos_token", f != NULL && f->bos ? f->bos : "");
    chat->eos = word_of(chat, "eos_token", f != NULL && f->eos ? f->eos : "");
    if (rc != MERAK_OK)
        merak_chat_close(chat);
    else
        *chat_p = chat;
    return rc;
}

void merak_chat_close(struct merak_chat *chat)
{
    if (chat == NULL)
        return;
    merak_jinja_free(chat->template);
    merak_jinja_output_fini(&chat->made);
    json_decref(chat->config);
    json_decref(chat->map);
    free(chat);
}

const char *merak_chat_name(const struct merak_chat *chat)
{
    return chat->name;
}

bool merak_chat_has_date(const struct merak_chat *chat)
{
    return chat->has_date;
}

/* --- rendering -------------------------------------------------------------
 */

struct renderer {
    struct merak_chat *chat;
    struct merak_chat_text *out;
    struct merak_error *err;
    enum merak_status rc;
};

static void put(struct renderer *r, const char *text, size_t n)
{
    if (r->rc == MERAK_OK)
        r->rc = merak_buffer_add(&r->out->text, text, n, r->err);
}

/* Append a text of the format, or nothing if NULL. */
static void put_own(struct renderer *r, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == BOS[0])
            put(r, r->chat->bos, strlen(r->chat->bos));
        else if (*text == EOS[0])
            put(r, r->chat->eos, strlen(r->chat->eos));
        else
            put(r, text, 1);
    }
}

static void put_said(struct renderer *r, const struct merak_chat_turn *turn,
                     bool trims)
{
    const char *text = turn->text;
    size_t n = turn->n;

    while (trims && n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (; trims && n > 0 && isspace((unsigned char)*text); n--)
        text++;
    put(r, text, n);
}

static void add_answer(struct renderer *r, size_t begin, size_t end)
{
    struct merak_chat_text *out = r->out;

    if (r->rc == MERAK_OK && out->n_answers == out->room) {
        size_t room = 2 * out->room + 8;
        void *more = realloc(out->answer, room * sizeof(*out->answer));

        if (more == NULL) {
            r->rc = merak_fail_nomem(r->err, room * sizeof(*out->answer));
            return;
        }
        out->answer = more;
        out->room = room;
    }
    if (r->rc == MERAK_OK)
        out->answer[out->n_answers++] = (struct merak_chat_span){begin, end};
}

static void put_answer(struct renderer *r, const struct merak_chat_turn *turn)
{
    size_t begin = r->out->text.n;

    put_said(r, turn, r->chat->format.trims);
    put_own(r, r->chat->format.answer_end);
    add_answer(r, begin, r->out->text.n);
}

/* system: the message to insert into this turn of the user, or NULL. */
static void put_turn(struct renderer *r, const struct merak_chat_turn *turn,
                     const struct merak_chat_turn *system, bool is_last)
{
    const struct merak_chat_format *f = &r->chat->format;

    put_own(r, f->turn[turn->role][0]);
    if (system != NULL) {
        put_own(r, f->system_in[0]);
        put_said(r, system, false);
        put_own(r, f->system_in[1]);
    }
    if (is_last && turn->role == MERAK_CHAT_ANSWER)
        put_own(r, f->last_answer);
    if (turn->role == MERAK_CHAT_ANSWER)
        put_answer(r, turn);
    else
        put_said(r, turn, f->trims);
    put_own(r, f->turn[turn->role][1]);
}

/* Check that the format allows message i, from 0, there. */
static enum merak_status check_turn(const struct merak_chat_format *f,
                                    const struct merak_chat_turn *turn,
                                    size_t i, size_t first,
                                    struct merak_error *err)
{
    static const char *const role[] = {"system", "user", "assistant"};
    enum merak_chat_role turn_of =
        (i - first) % 2 == 0 ? MERAK_CHAT_USER : MERAK_CHAT_ANSWER;

    if (turn[i].role == MERAK_CHAT_SYSTEM && i > 0 &&
        (f->alternates || f->system != MERAK_CHAT_SYSTEM_TURN))
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu has role system; %s has it only at the "
                          "beginning",
                          i + 1, f->name);
    if (turn[i].role == MERAK_CHAT_SYSTEM &&
        f->system == MERAK_CHAT_SYSTEM_REFUSED)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu has role system, which %s does not "
                          "have; give it role user",
                          i + 1, f->name);
    if (f->alternates && i >= first && turn[i].role != turn_of)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu has role %s, expected %s: in %s they "
                          "take turns",
                          i + 1, role[turn[i].role], role[turn_of], f->name);
    if (f->last_answer != NULL && turn[i].role == MERAK_CHAT_ANSWER &&
        memmem(turn[i].text, turn[i].n, "</think>", 8) != NULL)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu has </think> in it; answers of %s "
                          "without thoughts are expected",
                          i + 1, f->name);
    return MERAK_OK;
}

/* The turn that the system's message is inserted into; n: none. */
static size_t find_place(const struct merak_chat_format *f,
                         const struct merak_chat_turn *turn, size_t n)
{
    size_t i = 1;

    if (turn[0].role != MERAK_CHAT_SYSTEM ||
        f->system == MERAK_CHAT_SYSTEM_TURN)
        return n;
    if (f->system == MERAK_CHAT_SYSTEM_LAST_USER) {
        for (i = n - 1; i > 1 && turn[i].role != MERAK_CHAT_USER;)
            i--;
    }
    return i;
}

static enum merak_status render_row(struct merak_chat *chat,
                                    const struct merak_chat_turn *turn,
                                    size_t n, struct merak_chat_text *out,
                                    struct merak_error *err)
{
    const struct merak_chat_format *f = &chat->format;
    struct renderer r = {.chat = chat, .out = out, .err = err, .rc = MERAK_OK};
    bool has_system = turn[0].role == MERAK_CHAT_SYSTEM;
    size_t first = has_system && f->system != MERAK_CHAT_SYSTEM_TURN;
    size_t place = find_place(f, turn, n);

    for (size_t i = 0; i < n && r.rc == MERAK_OK; i++)
        r.rc = check_turn(f, turn, i, first, err);
    put_own(&r, f->begin);
    if (!has_system)
        put_own(&r, f->no_system);
    for (size_t i = first; i < n && r.rc == MERAK_OK; i++)
        put_turn(&r, &turn[i], i == place ? &turn[0] : NULL, i == n - 1);
    put_own(&r, f->end);
    return r.rc;
}

/* --- running the tokenizer's template -----------------------------------
 */

/* The token that ends an answer belongs to it, such as "</s>" or "<|im_end|>"
 * after it, with blanks before that; but not one that begins a text. */
static size_t end_of_answer(const struct merak_chat *chat, const char *text,
                            size_t n, size_t at)
{
    size_t eos = strlen(chat->eos), bos = strlen(chat->bos), end = at, begin;

    while (at < n && isspace((unsigned char)text[at]))
        at++;
    if (eos > 0 && n - at >= eos && memcmp(text + at, chat->eos, eos) == 0)
        return at + eos;
    if ((bos > 0 && n - at >= bos && memcmp(text + at, chat->bos, bos) == 0) ||
        at >= n || (text[at] != '<' && strncmp(text + at, "[|", 2) != 0))
        return end;
    for (begin = at++; at < n && at - begin < 64; at++) {
        if (isspace((unsigned char)text[at]) || text[at] == '<')
            break;
        if (text[at] == (text[begin] == '<' ? '>' : ']'))
            return at + 1;
    }
    return end;
}

/* Thoughts before the answer belong to it, including the token that begins
 * them. */
static size_t begin_of_answer(const char *text, size_t at)
{
    static const char *const token[] = {"<think>", "[THINK]"};
    size_t end = at;

    while (end > 0 && isspace((unsigned char)text[end - 1]))
        end--;
    for (size_t i = 0; i < sizeof(token) / sizeof(*token); i++) {
        size_t n = strlen(token[i]);

        if (end >= n && memcmp(text + end - n, token[i], n) == 0)
            return end - n;
    }
    return at;
}

/* Find message i in the output: from its first mark to its last. */
static void find_answer(struct renderer *r, size_t i)
{
    const struct merak_jinja_output *made = &r->chat->made;
    size_t begin = SIZE_MAX, end = 0, parts = 0;

    for (size_t k = 0; k < made->n_marks; k++) {
        const struct merak_jinja_mark *m = &made->mark[k];

        if (m->message != (int)i)
            continue;
        begin = m->begin < begin ? m->begin : begin;
        end = m->end > end ? m->end : end;
        parts++;
    }
    for (size_t k = 0; k < made->n_marks && parts > 0; k++) {
        if (made->mark[k].message != (int)i && made->mark[k].begin > begin &&
            made->mark[k].begin < end)
            parts = 0;
    }
    if (parts == 0)
        r->rc = merak_fail(r->err, MERAK_ERR_FORMAT,
                           "message %zu has role assistant, and its content is "
                           "not, or not in one piece, in the text that the "
                           "chat template makes",
                           i + 1);
    else
        add_answer(r, parts > 1 ? begin_of_answer(made->text, begin) : begin,
                   end_of_answer(r->chat, made->text, made->n, end));
}

/* Use what the template itself marks as generated, or else the answers. */
static void find_answers(struct renderer *r, const struct merak_chat_turn *turn,
                         size_t n)
{
    const struct merak_jinja_output *made = &r->chat->made;

    for (size_t k = 0; k < made->n_marks; k++) {
        if (made->mark[k].message < 0)
            add_answer(r, made->mark[k].begin, made->mark[k].end);
    }
    if (r->out->n_answers > 0)
        return;
    for (size_t i = 0; i < n && r->rc == MERAK_OK; i++) {
        if (turn[i].role == MERAK_CHAT_ANSWER)
            find_answer(r, i);
    }
}

static enum merak_status render_template(struct merak_chat *chat,
                                         const struct merak_chat_turn *turn,
                                         size_t n, struct merak_chat_text *out,
                                         struct merak_error *err)
{
    static const char *const role[] = {"system", "user", "assistant"};
    struct renderer r = {.chat = chat, .out = out, .err = err, .rc = MERAK_OK};
    struct merak_jinja_message *message = calloc(n, sizeof(*message));
    const struct merak_jinja_input in = {.message = message,
                                         .n_messages = n,
                                         .word = chat->word,
                                         .n_words = chat->n_words,
                                         .now = chat->now};

    if (message == NULL)
        return merak_fail_nomem(err, n * sizeof(*message));
    for (size_t i = 0; i < n; i++)
        message[i] = (struct merak_jinja_message){role[turn[i].role],
                                                  turn[i].text, turn[i].n};
    r.rc = merak_jinja_render(chat->template, &in, &chat->made, err);
    free(message);
    if (r.rc != MERAK_OK) {
        if (r.rc == MERAK_ERR_UNSUPPORTED)
            merak_error_wrap(err, "the chat template, which is run");
        return r.rc;
    }
    chat->has_date |= chat->made.has_date;
    put(&r, chat->made.text, chat->made.n);
    find_answers(&r, turn, n);
    return r.rc;
}

enum merak_status merak_chat_render(struct merak_chat *chat,
                                    const struct merak_chat_turn *turn,
                                    size_t n, struct merak_chat_text *out,
                                    struct merak_error *err)
{
    out->text.n = out->n_answers = 0;
    return chat->template != NULL ? render_template(chat, turn, n, out, err)
                                  : render_row(chat, turn, n, out, err);
}

void merak_chat_text_fini(struct merak_chat_text *text)
{
    free(text->text.text);
    free(text->answer);
    memset(text, 0, sizeof(*text));
}
