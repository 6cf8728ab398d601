/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.c - a plan as text
 *
 * A JSON object.  Its first keys are in this order, because srun's plugin
 * reads the degrees without a JSON library (spank_plugin/plan_head.c):
 *
 *   merak_plan  the format's version, 2; 3 if stages have unlike ranks
 *   sent        {pp_bytes, dp_bytes} per step, over a link between stages and
 *               one between replicas; absent if not known
 *   islands     the names of nodes of islands, in the order of their ranks, as
 *               "n[5-8];n[1-4]"; only in plans for islands with names
 *   plan        {tp, pp, dp, order, cp, ep, chunks, microbatches,
 *               micro_batch, schedule, sub_pipeline, recompute, memory_bytes,
 *               zero1, sp, dtype, scatter, cut, drop, branches, tp_batch,
 *               expert_room, ep_form, cp_axes, cp_form, cp_order, fetch,
 *               grad_sum, tp_axes, dp_in, zero_home, offload, split,
 *               tp_plan, loss_pieces, lossy_hops}: struct merak_plan
 *               as text; cp, ep and dp_in are present only if they are not 1,
 *               branches and those behind it if they are not the usual (older
 *               files have a flag for branches, gathered, which is still
 *               read); zero1 is true or false, or else zero has the level.
 *               Micro-batches: a sub-pipeline's halves count as one.  cut is
 *               null if merak_stages_cut() decides, drop ({attention, blocks}
 *               of each part, with again if it is not 0) if recompute does;
 *               scatter is 0 if absent.
 *               meshes is there in version 3 alone, [{dp, tp}, ..] of each
 *               stage: then tp and dp are 1, and micro_batch is that of all
 *               replicas together
 *   run         {model, seq, global_batch} it is for; model is
 *               merak_graph_fingerprint()
 *   program     merak_program_ids(), 16 digits: a run whose programs have
 *               another id does not run this plan
 *   id          XXH3 of plan, run, program, sent and islands as compact JSON
 * with sorted keys, 16 digits, to detect changes of any predicted   {step_s,
 * memory_bytes, device}; and kinds, if stages are on nodes of several:
 * [{device, nodes, flops_per_s} ..], in the order of their ranks
 *
 * All other keys are for users and other programs.
 */
#include "config.h"

#include "io/plan_file.h"
#include "io/plan_lists.h"

#include "base/error.h"
#include "base/factors.h"
#include "base/open.h"
#include "partitioner/plan/choice.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FORMAT = 2, FORMAT_MESHES = 3 };
#define MAX_BYTES ((size_t)64 << 20)

/* Is the choice a boolean, not one of two words? */
static bool is_flag(const struct merak_choice *c)
{
    char word[MERAK_CHOICE_WORD];

    return c->kind == MERAK_OPTION_BOOL &&
           strcmp(merak_choice_word(c, 0, word), "no") == 0;
}

/* --- writing -------------------------------------------------------------- */

/* Micro-batches that run as one. */
static int halves(const struct merak_plan *p)
{
    return p->sub_pipeline ? 2 : 1;
}

/* NULL when out of memory. */
static json_t *choice_value(const struct merak_choice *c,
                            const struct merak_choices *choices)
{
    long value = merak_choice_get(c, choices);
    char word[MERAK_CHOICE_WORD], factors[MERAK_FACTORS_TEXT];

    if (merak_choice_key(c, value) == c->flag_key)
        return json_boolean(value);
    switch (c->kind) {
    case MERAK_OPTION_TEXT:
        return json_string(choices->schedule);
    case MERAK_OPTION_BOOL:
    case MERAK_OPTION_WORD:
        return is_flag(c) ? json_boolean(value)
                          : json_string(merak_choice_word(c, value, word));
    case MERAK_OPTION_GRID:
        return json_string(merak_factors_text(value, "x", factors));
    default:
        return json_integer(value);
    }
}

/* 0, or -1 when out of memory. */
static int put_choices(json_t *object, const struct merak_plan *p)
{
    struct merak_choices choices;
    int bad = 0;

    merak_choices_of(p, &choices);
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];
        const char *key = merak_choice_key(c, merak_choice_get(c, &choices));

        if (c->key == NULL)
            continue;
        if (c->flag_key != NULL && key == c->key)
            json_object_del(object, c->flag_key);
        if (c->is_implied && merak_choice_get(c, &choices) == c->usual)
            json_object_del(object, key);
        else
            bad |= json_object_set_new(object, key, choice_value(c, &choices));
    }
    return bad;
}

static int put_structs(json_t *object, const struct merak_plan *p)
{
    char text[MERAK_CHOICE_TEXT(0)];
    int bad = 0;

    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice_struct *is = merak_choice[i].is;
        const char *value = is != NULL ? (const char *)p + is->plan_at : NULL;

        if (value != NULL && merak_choice_struct_any(is, value))
            bad |= json_object_set_new(
                object, is->key,
                json_string(is->text(value, ",", text, sizeof(text))));
    }
    return bad;
}

json_t *merak_plan_object(const struct merak_plan *p)
{
    /* In this order; other keys follow. */
    static const char *const keys[] = {
        "tp",           "pp",         "dp",           "order",       "cp",
        "ep",           "chunks",     "microbatches", "micro_batch", "schedule",
        "sub_pipeline", "recompute",  "memory_bytes", "zero1",       "sp",
        "dtype",        "scatter",    "cut",          "drop",        "branches",
        "tp_batch",     "expert_room"};
    int parts = merak_plan_parts(p), bad = 0;
    json_t *object = json_object();

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        bad |= json_object_set_new(object, keys[i], json_null());
    bad |= put_choices(object, p);
    bad |= json_object_update_new(
        object,
        json_pack("{s:i, s:I, s:s, s:i, s:o, s:o}", "microbatches",
                  p->microbatches / halves(p), "memory_bytes",
                  (json_int_t)p->memory_bytes, "dtype",
                  p->dtype == MERAK_F32 ? "fp32" : "bf16", "scatter",
                  p->scatter, "cut",
                  merak_plan_cut_json(p->cut, parts - merak_plan_shared(p) - 1),
                  "drop", merak_plan_drop_json(p->drop, parts)));
    bad |= put_structs(object, p);
    if (p->stage != NULL)
        bad |= json_object_set_new(object, "meshes", merak_plan_meshes_json(p));
    if (bad == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* The id of a plan; false when out of memory. */
static bool make_id(const json_t *file, char id[MERAK_FINGERPRINT_TEXT])
{
    json_t *all = json_pack(
        "{s:O?, s:O?, s:O?, s:O*, s:O*}", "plan", json_object_get(file, "plan"),
        "run", json_object_get(file, "run"), "program",
        json_object_get(file, "program"), "sent", json_object_get(file, "sent"),
        "islands", json_object_get(file, "islands"));
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);

    json_decref(all);
    if (text == NULL)
        return false;
    snprintf(id, MERAK_FINGERPRINT_TEXT, "%016" PRIx64,
             (uint64_t)XXH3_64bits(text, strlen(text)));
    free(text);
    return true;
}

/* NULL if not known. */
static json_t *sent_object(const struct merak_sent *sent)
{
    if (sent->pp_bytes == 0 && sent->dp_bytes == 0)
        return NULL;
    return json_pack("{s:I, s:I}", "pp_bytes", (json_int_t)sent->pp_bytes,
                     "dp_bytes", (json_int_t)sent->dp_bytes);
}

#define RANKS_TEXT 512

json_t *merak_plan_file_object(struct merak_plan_file *file)
{
    char program[MERAK_FINGERPRINT_TEXT], ranks[RANKS_TEXT] = "";
    json_t *object;

    if (file->plan.stage != NULL) /* for srun's map of them: plan_head.c */
        merak_stages_text(file->plan.stage, file->plan.pp, ranks,
                          sizeof(ranks));
    snprintf(program, sizeof(program), "%016" PRIx64, file->program);
    object = json_pack(
        "{s:i, s:o*, s:o*, s:o*, s:o, s:{s:s, s:I, s:I}, s:s}", "merak_plan",
        file->plan.stage != NULL ? FORMAT_MESHES : FORMAT, "sent",
        sent_object(&file->sent), "islands",
        file->islands[0] != '\0' ? json_string(file->islands) : NULL, "ranks",
        ranks[0] != '\0' ? json_string(ranks) : NULL, "plan",
        merak_plan_object(&file->plan), "run", "model", file->model, "seq",
        (json_int_t)file->seq, "global_batch", (json_int_t)file->global_batch,
        "program", program);
    if (object == NULL || !make_id(object, file->id)) {
        json_decref(object);
        return NULL;
    }
    json_object_set_new(object, "id", json_string(file->id));
    json_object_set_new(
        object, "predicted",
        json_pack("{s:f, s:I, s:s, s:o*}", "step_s", file->step_s,
                  "memory_bytes", (json_int_t)file->memory_bytes, "device",
                  file->device, "kinds", merak_plan_kinds_json(file)));
    return object;
}

/* --- reading -------------------------------------------------------------- */

static enum merak_dtype read_dtype(struct merak_plan_reader *r,
                                   const json_t *in)
{
    const json_t *value = json_object_get(in, "dtype");
    const char *text = json_string_value(value);

    if (text != NULL && strcmp(text, "bf16") == 0)
        return MERAK_BF16;
    if (text == NULL || strcmp(text, "fp32") != 0)
        merak_plan_fail_field(r, "dtype", value, "one of fp32 bf16");
    return MERAK_F32;
}

/* 16 hexadecimal digits. */
static void read_id(struct merak_plan_reader *r, const json_t *in,
                    const char *key, char id[MERAK_FINGERPRINT_TEXT])
{
    const json_t *value = json_object_get(in, key);
    const char *text = json_string_value(value);

    if (text != NULL && strlen(text) == MERAK_FINGERPRINT_TEXT - 1 &&
        strspn(text, "0123456789abcdef") == strlen(text))
        memcpy(id, text, MERAK_FINGERPRINT_TEXT);
    else
        merak_plan_fail_field(r, key, value, "16 hexadecimal digits");
}

static const json_t *read_object(struct merak_plan_reader *r, const json_t *in,
                                 const char *key)
{
    const json_t *value = json_object_get(in, key);

    if (!json_is_object(value))
        merak_plan_fail_field(r, key, value, "an object");
    return value;
}

/* In the file, as in options, a sub-pipeline's halves count as one
 * micro-batch. */
static void halve(struct merak_plan_reader *r, struct merak_plan *p)
{
    size_t all = 2;

    if (!p->sub_pipeline || r->rc != MERAK_OK)
        return;
    if (p->stage != NULL)
        all = 2 * merak_stages_least_samples(p->stage, p->pp);
    if (p->micro_batch % all != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "plan %s: micro_batch is %zu, expected a multiple "
                           "of %zu, which sub_pipeline halves",
                           r->name, p->micro_batch, all);
    p->micro_batch /= 2;
    p->microbatches *= 2;
}

static long read_factors(struct merak_plan_reader *r,
                         const struct merak_choice *c, const json_t *value)
{
    const char *text = json_string_value(value);
    int64_t factors = 0;

    if (text == NULL || !merak_factors_parse(text, &factors))
        merak_plan_fail_field(r, c->key, value, "factors, as in \"2x4\"");
    return (long)factors;
}

/* A missing choice gets its default, if it may be absent. */
static long read_choice(struct merak_plan_reader *r, const json_t *in,
                        const struct merak_choice *c)
{
    const json_t *value = json_object_get(in, c->key);
    const char *text = json_string_value(value);
    char expected[64] = "one of", word[MERAK_CHOICE_WORD];
    int found;

    if (value == NULL && c->is_implied)
        return c->usual;
    if (is_flag(c) || (value == NULL && c->flag_key != NULL))
        return merak_plan_read_bool(r, in, is_flag(c) ? c->key : c->flag_key);
    if (c->kind == MERAK_OPTION_INT || c->kind == MERAK_OPTION_SIZE)
        return merak_plan_read_integer(r, in, c->key,
                                       (json_int_t)c->option.least,
                                       (json_int_t)c->option.most);
    if (c->kind == MERAK_OPTION_GRID)
        return read_factors(r, c, value);
    found = text != NULL ? merak_choice_find_word(c, text) : -1;
    for (int i = 0; i < merak_choice_words(c) && found < 0; i++)
        snprintf(expected + strlen(expected),
                 sizeof(expected) - strlen(expected), " %s",
                 merak_choice_word(c, i, word));
    if (found < 0)
        merak_plan_fail_field(r, c->key, value, expected);
    return found < 0 ? 0 : found;
}

/* Borrowed from the object. */
static const char *read_schedule(struct merak_plan_reader *r, const json_t *in)
{
    const json_t *value = json_object_get(in, "schedule");
    const char *text = json_string_value(value);
    const struct merak_schedule *schedule;

    if (r->rc == MERAK_OK &&
        (text == NULL || strlen(text) >= MERAK_OPTION_NAME_BYTES ||
         merak_schedule_find(text, &schedule, NULL) != MERAK_OK))
        merak_plan_fail_field(r, "schedule", value, "one that merak(7) lists");
    return text;
}

static void read_choices(struct merak_plan_reader *r, const json_t *in,
                         struct merak_plan *plan)
{
    struct merak_choices choices = {.tp = 0};

    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice *c = &merak_choice[i];

        choices.given[i] = true;
        if (c->kind == MERAK_OPTION_TEXT)
            choices.schedule = read_schedule(r, in);
        else if (c->key != NULL)
            merak_choice_set(c, &choices, read_choice(r, in, c));
    }
    if (json_object_get(in, "branches") == NULL &&
        json_is_true(json_object_get(in, "gathered")))
        choices.branches = MERAK_BRANCHES_GATHERED;
    if (r->rc == MERAK_OK)
        merak_choices_take(&choices, plan);
}

static void read_structs(struct merak_plan_reader *r, const json_t *in,
                         struct merak_plan *plan)
{
    for (int i = 0; i < MERAK_CHOICE_COUNT; i++) {
        const struct merak_choice_struct *is = merak_choice[i].is;
        const json_t *value = is != NULL ? json_object_get(in, is->key) : NULL;
        const char *text = json_string_value(value);

        if (r->rc == MERAK_OK && value != NULL &&
            (text == NULL || is->parse(text, (char *)plan + is->plan_at,
                                       NULL) != MERAK_OK))
            merak_plan_fail_field(r, is->key, value, is->expected);
    }
}

static void read_plan(struct merak_plan_reader *r, const json_t *in,
                      bool unlike, struct merak_plan_file *file)
{
    struct merak_plan *p = &file->plan;
    const json_int_t most = 65535, large = (json_int_t)1 << 50;

    read_choices(r, in, p);
    if (unlike)
        merak_plan_read_meshes(r, in, file);
    p->microbatches =
        (int)merak_plan_read_integer(r, in, "microbatches", 1, INT_MAX / 2);
    p->memory_bytes =
        (size_t)merak_plan_read_integer(r, in, "memory_bytes", 0, large);
    p->dtype = read_dtype(r, in);
    if (r->rc == MERAK_OK && json_object_get(in, "scatter") != NULL)
        p->scatter = (int)merak_plan_read_integer(r, in, "scatter", 0, most);
    p->threads = 1;
    read_structs(r, in, p);
    if (r->rc == MERAK_OK) {
        r->rc = merak_plan_check_degrees(p, r->err);
        if (r->rc != MERAK_OK)
            merak_error_wrap(r->err, "plan %s", r->name);
    }
    halve(r, p);
    merak_plan_read_cut(r, in, file);
    merak_plan_read_drop(r, in, file);
}

/* Absent or wrong predictions are harmless. */
static void read_predicted(const json_t *in, struct merak_plan_file *file)
{
    const char *device = json_string_value(json_object_get(in, "device"));

    file->step_s = json_number_value(json_object_get(in, "step_s"));
    file->memory_bytes =
        (size_t)json_integer_value(json_object_get(in, "memory_bytes"));
    snprintf(file->device, sizeof(file->device), "%s",
             device != NULL ? device : "");
    merak_plan_read_kinds(json_object_get(in, "kinds"), file);
}

/* A report of a search adds what it was asked for: likewise. */
static int read_requested(const json_t *request, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(request, name));

    return n > 0 && n <= 65535 ? (int)n : 0;
}

static void check_id(struct merak_plan_reader *r, const json_t *in,
                     const struct merak_plan_file *file)
{
    char id[MERAK_FINGERPRINT_TEXT];

    if (r->rc != MERAK_OK)
        return;
    if (!make_id(in, id))
        r->rc = merak_fail_nomem(r->err, 1);
    else if (strcmp(id, file->id) != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "plan %s was changed after it was saved: its id is "
                           "%s, its content has %s; fix choices by `merak plan "
                           "--what-if`",
                           r->name, file->id, id);
}

static void read_sent(struct merak_plan_reader *r, const json_t *in,
                      struct merak_sent *sent)
{
    const json_int_t most = 1000000000000000000; /* an exabyte */

    sent->pp_bytes =
        (uint64_t)merak_plan_read_integer(r, in, "pp_bytes", 0, most - 1);
    sent->dp_bytes =
        (uint64_t)merak_plan_read_integer(r, in, "dp_bytes", 0, most - 1);
}

static void read_file(struct merak_plan_reader *r, const json_t *in,
                      struct merak_plan_file *file)
{
    const json_t *run, *request;
    const char *levels;
    char program[MERAK_FINGERPRINT_TEXT] = "0";
    json_int_t version;

    if (!json_is_integer(json_object_get(in, "merak_plan"))) {
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "plan %s: it has no merak_plan; expected what "
                           "`merak plan --json` writes",
                           r->name);
        return;
    }
    version =
        merak_plan_read_integer(r, in, "merak_plan", FORMAT, FORMAT_MESHES);
    read_plan(r, read_object(r, in, "plan"), version == FORMAT_MESHES, file);
    if (json_object_get(in, "sent") != NULL)
        read_sent(r, read_object(r, in, "sent"), &file->sent);
    run = read_object(r, in, "run");
    read_id(r, run, "model", file->model);
    file->seq = (size_t)merak_plan_read_integer(r, run, "seq", 1, INT_MAX);
    file->global_batch =
        (size_t)merak_plan_read_integer(r, run, "global_batch", 1, INT_MAX);
    read_id(r, in, "program", program);
    file->program = strtoull(program, NULL, 16);
    read_id(r, in, "id", file->id);
    read_predicted(json_object_get(in, "predicted"), file);
    request = json_object_get(in, "request");
    file->ranks_per_node = read_requested(request, "ranks_per_node");
    file->rack_nodes = read_requested(request, "rack_nodes");
    levels = json_string_value(json_object_get(request, "levels"));
    if (levels != NULL && strlen(levels) < sizeof(file->levels))
        memcpy(file->levels, levels, strlen(levels) + 1);
    file->has_islands = json_object_get(in, "island_order") != NULL;
    check_id(r, in, file);
}

enum merak_status merak_plan_file_decode(const char *text, size_t bytes,
                                         const char *name,
                                         struct merak_plan_file **file_p,
                                         struct merak_error *err)
{
    struct merak_plan_reader r = {.name = name, .err = err};
    struct merak_plan_file *file = calloc(1, sizeof(*file));
    json_error_t why;
    json_t *in = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);

    if (file == NULL) {
        r.rc = merak_fail_nomem(err, sizeof(*file));
        goto out;
    }
    if (in == NULL) {
        r.rc = merak_fail(err, MERAK_ERR_CONFIG,
                          "plan %s is not JSON: line %d: %.80s; expected what "
                          "`merak plan --json` writes, whole",
                          name, why.line, why.text);
        goto out;
    }
    read_file(&r, in, file);
    if (r.rc != MERAK_OK)
        goto out;
    *file_p = file;
    file = NULL; /* now owned by the caller */
out:
    json_decref(in);
    merak_plan_file_destroy(file);
    return r.rc;
}

enum merak_status merak_plan_file_load(const char *path,
                                       struct merak_plan_file **file_p,
                                       struct merak_error *err)
{
    FILE *in;
    const char *why = merak_fopen_regular(path, &in);
    char *text = NULL;
    size_t n = 0;
    enum merak_status rc;

    if (why != NULL)
        return merak_fail(err, MERAK_ERR_CONFIG, "plan %s: %s", path, why);
    if (fseek(in, 0, SEEK_END) == 0 && ftell(in) > 0)
        n = (size_t)ftell(in);
    rewind(in);
    text = n <= MAX_BYTES ? malloc(n + 1) : NULL;
    if (n > MAX_BYTES)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "plan %s has %zu bytes; plans have less than %zu", path,
                        n, MAX_BYTES);
    else if (text == NULL)
        rc = merak_fail_nomem(err, n + 1);
    else
        rc = merak_plan_file_decode(text, fread(text, 1, n, in), path, file_p,
                                    err);
    free(text);
    fclose(in);
    return rc;
}

void merak_plan_file_destroy(struct merak_plan_file *file)
{
    if (file == NULL)
        return;
    free(file->cut);
    free(file->drop);
    free(file->stage);
    free(file);
}
