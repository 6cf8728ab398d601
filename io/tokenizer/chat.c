/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c - conversations as the text that a model was taught */
#include "config.h"

#include "io/tokenizer/chat.h"
#include "io/tokenizer/chat_formats.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { TOKEN_BYTES = 64, LITERAL_BYTES = 256 };

struct merak_chat {
    struct merak_chat_format format;
    char bos[TOKEN_BYTES], eos[TOKEN_BYTES];
    /* what a template says otherwise than its row */
    char no_system[LITERAL_BYTES], user[2][LITERAL_BYTES];
};

/* --- what a template says ------------------------------------------------ */

static bool has(const char *template, const char *mark)
{
    return mark == NULL || strstr(template, mark) != NULL;
}

static const struct merak_chat_format *recognise(const char *template)
{
    const struct merak_chat_format *f = merak_chat_formats;

    for (; f->name != NULL; f++) {
        if (has(template, f->has[0]) && has(template, f->has[1]) &&
            has(template, f->has[2]))
            return f;
    }
    return NULL;
}

/* Text of a template's literal, "\n" written out, that begins at `from` and
 * goes on to one of `ends`; false if there is no such end, or no room for it
 * and a character more. */
static bool copy_literal(const char *from, const char *ends,
                         char to[LITERAL_BYTES])
{
    size_t n = 0;

    for (; *from != '\0' && strchr(ends, *from) == NULL; from++) {
        if (n + 3 > LITERAL_BYTES)
            return false;
        if (from[0] == '\\' && from[1] == 'n') {
            to[n++] = '\n';
            from++;
        } else {
            to[n++] = *from;
        }
    }
    to[n] = '\0';
    return *from != '\0';
}

/* ChatML's publishers have a sentence each for who is told nothing else:
 * "<|im_start|>system\n", the sentence, and "<|im_end|>" in one literal. */
static void find_default_system(struct merak_chat *chat, const char *template)
{
    static const char begin[] = "<|im_start|>system\\n";
    const char *at = template;

    for (; (at = strstr(at, begin)) != NULL; at += sizeof(begin) - 1) {
        if (at[sizeof(begin) - 1] == '\'' || at[sizeof(begin) - 1] == '"' ||
            !copy_literal(at, "'\"", chat->no_system))
            continue;
        if (strstr(chat->no_system, "<|im_end|>") == NULL)
            continue;
        if (chat->no_system[strlen(chat->no_system) - 1] != '\n')
            strcat(chat->no_system, "\n");
        chat->format.no_system = chat->no_system;
        return;
    }
}

/* The literal that `mark` is in. */
static bool find_literal(const char *template, const char *mark,
                         char to[LITERAL_BYTES])
{
    const char *at = strstr(template, mark), *from = at;
    char quote[2] = "";

    while (from != NULL && from > template && quote[0] == '\0') {
        from--;
        if (*from == '\'' || *from == '"')
            quote[0] = *from;
    }
    return quote[0] != '\0' && at - from < LITERAL_BYTES &&
           copy_literal(from + 1, quote, to);
}

/* Revisions of Mistral's differ in blanks, and in where the system goes. */
static void adjust_mistral(struct merak_chat *chat, const char *template)
{
    struct merak_chat_format *f = &chat->format;

    if (find_literal(template, "[INST]", chat->user[0]) &&
        strchr(chat->user[0], '/') == NULL)
        f->turn[MERAK_CHAT_USER][0] = chat->user[0];
    if (find_literal(template, "[/INST]", chat->user[1]))
        f->turn[MERAK_CHAT_USER][1] = chat->user[1];
    if (has(template, "' ' + message") || has(template, "\" \" + message"))
        f->turn[MERAK_CHAT_ANSWER][0] = " ";
    if (has(template, "eos_token + ' '") || has(template, "eos_token + \" \""))
        f->turn[MERAK_CHAT_ANSWER][1] = " ";
    if (has(template, "system_message"))
        f->system = has(template, "loop.last") ? MERAK_CHAT_SYSTEM_LAST_USER
                                               : MERAK_CHAT_SYSTEM_FIRST_USER;
}

/* What the templates of a row differ in. */
static void adjust(struct merak_chat *chat, const char *template)
{
    struct merak_chat_format *f = &chat->format;

    if (strcmp(f->name, "chatml") == 0)
        find_default_system(chat, template);
    if (strcmp(f->name, "mistral") == 0)
        adjust_mistral(chat, template);
    if (strcmp(f->name, "gemma") == 0 && has(template, "first_user_prefix"))
        f->system = MERAK_CHAT_SYSTEM_FIRST_USER;
    if (f->begin == NULL && strcmp(f->name, "llama2") != 0 &&
        has(template, "bos_token"))
        f->begin = BOS;
    if (strcmp(f->name, "phi3") == 0 && !has(template, "eos_token"))
        f->end = NULL;
}

/* --- opening -------------------------------------------------------------- */

/* A file beside the tokenizer's, or in its folder. */
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

/* "<s>", or {"content": "<s>", ..}. */
static void read_token(const json_t *config, const char *key,
                       char to[TOKEN_BYTES])
{
    const json_t *token = json_object_get(config, key);

    if (json_is_object(token))
        token = json_object_get(token, "content");
    if (token != NULL)
        snprintf(to, TOKEN_BYTES, "%s",
                 json_is_string(token) ? json_string_value(token) : "");
}

/* A text, or a list of texts with names, of which one is the default. */
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

/* All of a small file as a string, yours to free; NULL if it is not there. */
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

static enum merak_status find_format(const char *tokenizer, const char *word,
                                     const char *template,
                                     const struct merak_chat_format **format_p,
                                     struct merak_error *err)
{
    if (word != NULL)
        return find_word(word, format_p, err);
    if (template == NULL)
        return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                          "messages need a chat template, and there is none "
                          "beside %s (tokenizer_config.json or "
                          "chat_template.jinja); say which with --chat "
                          "FORMAT: %s",
                          tokenizer, merak_chat_names());
    *format_p = recognise(template);
    return *format_p != NULL
               ? MERAK_OK
               : merak_fail(err, MERAK_ERR_UNSUPPORTED,
                            "the chat template of %s is none that is known; "
                            "say which comes nearest with --chat FORMAT: %s",
                            tokenizer, merak_chat_names());
}

static enum merak_status make_chat(const char *tokenizer, const char *word,
                                   const json_t *config, const char *template,
                                   struct merak_chat *chat,
                                   struct merak_error *err)
{
    const struct merak_chat_format *f = NULL;
    enum merak_status rc = find_format(tokenizer, word, template, &f, err);

    if (rc != MERAK_OK)
        return rc;
    chat->format = *f;
    snprintf(chat->bos, TOKEN_BYTES, "%s", f->bos != NULL ? f->bos : "");
    snprintf(chat->eos, TOKEN_BYTES, "%s", f->eos != NULL ? f->eos : "");
    read_token(config, "bos_token", chat->bos);
    read_token(config, "eos_token", chat->eos);
    if (word == NULL)
        adjust(chat, template);
    return MERAK_OK;
}

enum merak_status merak_chat_open(const char *tokenizer, const char *format,
                                  struct merak_chat **chat_p,
                                  struct merak_error *err)
{
    struct merak_chat *chat = calloc(1, sizeof(*chat));
    char path[PATH_MAX], *own;
    json_t *config;
    enum merak_status rc;

    if (chat == NULL)
        return merak_fail_nomem(err, sizeof(*chat));
    beside(tokenizer, "tokenizer_config.json", path);
    config = json_load_file(path, 0, NULL);
    beside(tokenizer, "chat_template.jinja", path);
    own = read_text(path);
    rc = make_chat(tokenizer, format, config,
                   own != NULL ? own : template_of(config), chat, err);
    json_decref(config);
    free(own);
    if (rc != MERAK_OK)
        free(chat);
    else
        *chat_p = chat;
    return rc;
}

void merak_chat_close(struct merak_chat *chat)
{
    free(chat);
}

const char *merak_chat_name(const struct merak_chat *chat)
{
    return chat->format.name;
}

/* --- rendering -------------------------------------------------------------
 */

struct renderer {
    const struct merak_chat *chat;
    struct merak_chat_text *out;
    struct merak_error *err;
    enum merak_status rc;
};

static void put(struct renderer *r, const char *text, size_t n)
{
    if (r->rc == MERAK_OK)
        r->rc = merak_buffer_add(&r->out->text, text, n, r->err);
}

/* A text of the format; NULL is nothing. */
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

static void put_answer(struct renderer *r, const struct merak_chat_turn *turn)
{
    struct merak_chat_text *out = r->out;
    size_t begin = out->text.n;

    put_said(r, turn, r->chat->format.trims);
    put_own(r, r->chat->format.answer_end);
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
        out->answer[out->n_answers++] =
            (struct merak_chat_span){begin, out->text.n};
}

/* system: what goes into this turn of the user; NULL: nothing. */
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

/* Is message i, from 0, one that may stand there? */
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
                          "message %zu is of the system; %s has it at the "
                          "beginning alone",
                          i + 1, f->name);
    if (turn[i].role == MERAK_CHAT_SYSTEM &&
        f->system == MERAK_CHAT_SYSTEM_REFUSED)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu is of the system, for which %s has no "
                          "place; say it as the user",
                          i + 1, f->name);
    if (f->alternates && i >= first && turn[i].role != turn_of)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu is of the %s, expected of the %s: in "
                          "%s they take turns",
                          i + 1, role[turn[i].role], role[turn_of], f->name);
    if (f->last_answer != NULL && turn[i].role == MERAK_CHAT_ANSWER &&
        memmem(turn[i].text, turn[i].n, "</think>", 8) != NULL)
        return merak_fail(err, MERAK_ERR_FORMAT,
                          "message %zu has </think> in it; answers of %s "
                          "without thoughts are expected",
                          i + 1, f->name);
    return MERAK_OK;
}

/* The turn that the system's message goes into, or n: none. */
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

enum merak_status merak_chat_render(const struct merak_chat *chat,
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
    out->text.n = out->n_answers = 0;
    put_own(&r, f->begin);
    if (!has_system)
        put_own(&r, f->no_system);
    for (size_t i = first; i < n && r.rc == MERAK_OK; i++)
        put_turn(&r, &turn[i], i == place ? &turn[0] : NULL, i == n - 1);
    put_own(&r, f->end);
    return r.rc;
}

void merak_chat_text_fini(struct merak_chat_text *text)
{
    free(text->text.text);
    free(text->answer);
    memset(text, 0, sizeof(*text));
}
