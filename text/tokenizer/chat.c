/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - conversations as text in a model's chat format */
#include "config.h"

#include "text/tokenizer/chat_impl.h"

#include "base/hub.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

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
        if (known == chat->n_words && known < MERAK_MOST_WORDS)
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
    char room[PATH_MAX];
    enum merak_status rc;

    if (chat == NULL)
        return merak_fail_nomem(err, sizeof(*chat));
    tokenizer = merak_hub_path(tokenizer, room);
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

void merak_chat_put(struct merak_chat_renderer *r, const char *text, size_t n)
{
    if (r->rc == MERAK_OK)
        r->rc = merak_buffer_add(&r->out->text, text, n, r->err);
}

/* Append a text of the format, or nothing if NULL. */
static void put_own(struct merak_chat_renderer *r, const char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == BOS[0])
            merak_chat_put(r, r->chat->bos, strlen(r->chat->bos));
        else if (*text == EOS[0])
            merak_chat_put(r, r->chat->eos, strlen(r->chat->eos));
        else
            merak_chat_put(r, text, 1);
    }
}

static void put_said(struct merak_chat_renderer *r,
                     const struct merak_chat_turn *turn, bool trims)
{
    const char *text = turn->text;
    size_t n = turn->n;

    while (trims && n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (; trims && n > 0 && isspace((unsigned char)*text); n--)
        text++;
    merak_chat_put(r, text, n);
}

void merak_chat_add_answer(struct merak_chat_renderer *r, size_t begin,
                           size_t end)
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

static void put_answer(struct merak_chat_renderer *r,
                       const struct merak_chat_turn *turn)
{
    size_t begin = r->out->text.n;

    put_said(r, turn, r->chat->format.trims);
    put_own(r, r->chat->format.answer_end);
    if (!turn->context)
        merak_chat_add_answer(r, begin, r->out->text.n);
}

/* system: the message to insert into this turn of the user, or NULL. */
static void put_turn(struct merak_chat_renderer *r,
                     const struct merak_chat_turn *turn,
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
    struct merak_chat_renderer r = {
        .chat = chat, .out = out, .err = err, .rc = MERAK_OK};
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

/* A row has places for texts alone. */
static enum merak_status check_texts(const struct merak_chat *chat,
                                     const struct merak_chat_talk *talk,
                                     struct merak_error *err)
{
    for (size_t i = 0; i < talk->n; i++) {
        if (talk->turn[i].role == MERAK_CHAT_OTHER ||
            talk->turn[i].text == NULL)
            return merak_fail(err, MERAK_ERR_FORMAT,
                              "message %zu has %s; --chat %s has only texts of "
                              "system, user and assistant",
                              i + 1,
                              talk->turn[i].text == NULL ? "no text as content"
                                                         : "another role",
                              chat->format.name);
    }
    return MERAK_OK;
}

static enum merak_status take_row(struct merak_chat *chat,
                                  const struct merak_chat_talk *talk,
                                  struct merak_chat_text *out,
                                  struct merak_error *err)
{
    enum merak_status rc = check_texts(chat, talk, err);
    const char *key;
    json_t *value;

    for (size_t i = 0; i < talk->n && rc == MERAK_OK; i++) {
        json_object_foreach((json_t *)talk->turn[i].whole, key, value)
        {
            rc = merak_chat_note_unread(chat, &talk->turn[i], i, key, err);
            if (rc != MERAK_OK)
                break;
        }
    }
    return rc == MERAK_OK ? render_row(chat, talk->turn, talk->n, out, err)
                          : rc;
}

enum merak_status merak_chat_render(struct merak_chat *chat,
                                    const struct merak_chat_talk *talk,
                                    struct merak_chat_text *out,
                                    struct merak_error *err)
{
    out->text.n = out->n_answers = 0;
    return chat->template != NULL
               ? merak_chat_run_template(chat, talk, out, err)
               : take_row(chat, talk, out, err);
}

void merak_chat_text_fini(struct merak_chat_text *text)
{
    free(text->text.text);
    free(text->answer);
    memset(text, 0, sizeof(*text));
}
