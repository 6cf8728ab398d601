/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.c - a plan as text
 *
 * A JSON object.  Its first keys are in this order, because srun's plugin
 * reads the degrees without a JSON library (spank_plugin/plan_head.c):
 *
 *   merak_plan  the format's version, 2
 *   sent        {pp_bytes, dp_bytes}: of a step, by a link between stages and
 *               one between replicas; left out where it is not known
 *   plan        {tp, pp, dp, order, chunks, microbatches, micro_batch,
 *               schedule, sub_pipeline, recompute, memory_bytes, zero1, sp,
 *               dtype, scatter, cut, drop, branches, tp_batch}: struct
 *               merak_plan in words; branches is there only if it is not
 *               described (once it was gathered, a flag, which is read
 *               still), tp_batch if it is not 0.  But for micro-batches: a
 *               sub-pipeline's halves together.  cut is null
 *               where merak_stages_cut() says, drop ({attention, blocks} of
 *               each part) where recompute does;
 *               scatter may be left out, for 0
 *   run         {model, seq, global_batch}: what it is for; model is
 *               merak_graph_fingerprint()
 *   program     merak_program_ids(), 16 digits: a run whose programs have
 *               another is not this plan
 *   id          XXH3 of plan, run, program and sent as compact JSON with sorted
 *               keys, 16 digits: a change of any is noticed
 *   predicted   {step_s, memory_bytes, device}
 *
 * All other keys are for people and other programs.
 */
#include "config.h"

#include "io/plan_file.h"

#include "base/error.h"
#include "base/open.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FORMAT = 2 };
#define MAX_BYTES ((size_t)64 << 20)

static const char *const order_words[] = {"tp-dp-pp", "tp-pp-dp", NULL};
static const char *const recompute_words[] = {"none", "full", "selective",
                                              "auto", NULL};
static const char *const sp_words[] = {"auto", "off", "on", NULL};
static const char *const branches_words[] = {"described", "gathered", "blocks",
                                             NULL};
static const char *const dtype_words[] = {"fp32", "bf16", NULL};

/* --- writing -------------------------------------------------------------- */

static json_t *list_object(const int *list, int n)
{
    json_t *array = list == NULL ? json_null() : json_array();

    for (int i = 0; list != NULL && i < n; i++)
        json_array_append_new(array, json_integer(list[i]));
    return array;
}

static json_t *drop_object(const struct merak_drop *drop, int n)
{
    json_t *array = drop == NULL ? json_null() : json_array();

    for (int i = 0; drop != NULL && i < n; i++)
        json_array_append_new(array, json_pack("{s:b, s:i}", "attention",
                                               drop[i].attention, "blocks",
                                               drop[i].blocks));
    return array;
}

/* Micro-batches that are run as one. */
static int halves(const struct merak_plan *p)
{
    return p->sub_pipeline ? 2 : 1;
}

json_t *merak_plan_object(const struct merak_plan *p)
{
    json_t *object = json_pack(
        "{s:i, s:i, s:i, s:s, s:i, s:i, s:I, s:s, s:b, s:s, s:I, s:b, s:s, "
        "s:s, s:i, s:o, s:o}",
        "tp", p->tp, "pp", p->pp, "dp", p->dp, "order",
        order_words[p->order_tp_pp_dp], "chunks", merak_plan_chunks(p),
        "microbatches", p->microbatches / halves(p), "micro_batch",
        (json_int_t)p->micro_batch * halves(p), "schedule", p->schedule,
        "sub_pipeline", p->sub_pipeline, "recompute",
        recompute_words[p->recompute], "memory_bytes",
        (json_int_t)p->memory_bytes, "zero1", p->zero1, "sp", sp_words[p->sp],
        "dtype", dtype_words[p->dtype], "scatter", p->scatter, "cut",
        list_object(p->cut, merak_plan_parts(p) - merak_plan_shared(p) - 1),
        "drop", drop_object(p->drop, merak_plan_parts(p)));

    if (object != NULL && p->branches != MERAK_BRANCHES_DESCRIBED)
        json_object_set_new(object, "branches",
                            json_string(branches_words[p->branches]));
    if (object != NULL && p->tp_batch_percent > 0)
        json_object_set_new(object, "tp_batch",
                            json_integer(p->tp_batch_percent));
    return object;
}

/* Of what a plan is; false when out of memory. */
static bool make_id(const json_t *file, char id[MERAK_FINGERPRINT_TEXT])
{
    json_t *all = json_pack("{s:O?, s:O?, s:O?, s:O*}", "plan",
                            json_object_get(file, "plan"), "run",
                            json_object_get(file, "run"), "program",
                            json_object_get(file, "program"), "sent",
                            json_object_get(file, "sent"));
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);

    json_decref(all);
    if (text == NULL)
        return false;
    snprintf(id, MERAK_FINGERPRINT_TEXT, "%016" PRIx64,
             (uint64_t)XXH3_64bits(text, strlen(text)));
    free(text);
    return true;
}

/* NULL where it is not known. */
static json_t *sent_object(const struct merak_sent *sent)
{
    if (sent->pp_bytes == 0 && sent->dp_bytes == 0)
        return NULL;
    return json_pack("{s:I, s:I}", "pp_bytes", (json_int_t)sent->pp_bytes,
                     "dp_bytes", (json_int_t)sent->dp_bytes);
}

json_t *merak_plan_file_object(struct merak_plan_file *file)
{
    char program[MERAK_FINGERPRINT_TEXT];
    json_t *object;

    snprintf(program, sizeof(program), "%016" PRIx64, file->program);
    object =
        json_pack("{s:i, s:o*, s:o, s:{s:s, s:I, s:I}, s:s}", "merak_plan",
                  FORMAT, "sent", sent_object(&file->sent), "plan",
                  merak_plan_object(&file->plan), "run", "model", file->model,
                  "seq", (json_int_t)file->seq, "global_batch",
                  (json_int_t)file->global_batch, "program", program);
    if (object == NULL || !make_id(object, file->id)) {
        json_decref(object);
        return NULL;
    }
    json_object_set_new(object, "id", json_string(file->id));
    json_object_set_new(
        object, "predicted",
        json_pack("{s:f, s:I, s:s}", "step_s", file->step_s, "memory_bytes",
                  (json_int_t)file->memory_bytes, "device", file->device));
    return object;
}

/* --- reading -------------------------------------------------------------- */

/* Reads fields until the first that is wrong; then every call is a no-op. */
struct reader {
    const char *name; /* of the file */
    enum merak_status rc;
    struct merak_error *err;
};

static void fail_field(struct reader *r, const char *key, const json_t *value,
                       const char *expected)
{
    char *text = value != NULL ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

    if (r->rc == MERAK_OK)
        r->rc =
            merak_fail(r->err, MERAK_ERR_CONFIG,
                       "plan %s: %s is %.40s, expected %s; `merak plan "
                       "--json` writes plans",
                       r->name, key, text != NULL ? text : "missing", expected);
    free(text);
}

static json_int_t read_integer(struct reader *r, const json_t *in,
                               const char *key, json_int_t least,
                               json_int_t most)
{
    const json_t *value = json_object_get(in, key);
    json_int_t n = json_integer_value(value);
    char expected[64];

    if (json_is_integer(value) && n >= least && n <= most)
        return n;
    snprintf(expected, sizeof(expected),
             "an integer %" JSON_INTEGER_FORMAT "..%" JSON_INTEGER_FORMAT,
             least, most);
    fail_field(r, key, value, expected);
    return least;
}

static int read_word(struct reader *r, const json_t *in, const char *key,
                     const char *const *words)
{
    const json_t *value = json_object_get(in, key);
    const char *text = json_string_value(value);
    char expected[64] = "one of";

    for (int i = 0; words[i] != NULL; i++) {
        if (text != NULL && strcmp(text, words[i]) == 0)
            return i;
        snprintf(expected + strlen(expected),
                 sizeof(expected) - strlen(expected), " %s", words[i]);
    }
    fail_field(r, key, value, expected);
    return 0;
}

static bool read_bool(struct reader *r, const json_t *in, const char *key)
{
    const json_t *value = json_object_get(in, key);

    if (!json_is_boolean(value))
        fail_field(r, key, value, "true or false");
    return json_is_true(value);
}

/* 16 hexadecimal digits. */
static void read_id(struct reader *r, const json_t *in, const char *key,
                    char id[MERAK_FINGERPRINT_TEXT])
{
    const json_t *value = json_object_get(in, key);
    const char *text = json_string_value(value);

    if (text != NULL && strlen(text) == MERAK_FINGERPRINT_TEXT - 1 &&
        strspn(text, "0123456789abcdef") == strlen(text))
        memcpy(id, text, MERAK_FINGERPRINT_TEXT);
    else
        fail_field(r, key, value, "16 hexadecimal digits");
}

static const json_t *read_object(struct reader *r, const json_t *in,
                                 const char *key)
{
    const json_t *value = json_object_get(in, key);

    if (!json_is_object(value))
        fail_field(r, key, value, "an object");
    return value;
}

/* Places of cuts, ascending, one fewer than there are parts between blocks
 * that all stages run. */
static void read_cut(struct reader *r, const json_t *in,
                     struct merak_plan_file *file)
{
    const json_t *value = json_object_get(in, "cut"), *at;
    int parts = merak_plan_parts(&file->plan);
    size_t n = (size_t)(parts - merak_plan_shared(&file->plan)) - 1, i;
    json_int_t before = -1;
    char expected[64];

    if (r->rc != MERAK_OK || json_is_null(value))
        return;
    snprintf(expected, sizeof(expected), "%zu ascending integers", n);
    if (!json_is_array(value) || json_array_size(value) != n) {
        fail_field(r, "cut", value, expected);
        return;
    }
    file->cut = calloc(n + 1, sizeof(*file->cut));
    if (file->cut == NULL) {
        r->rc = merak_fail_nomem(r->err, n * sizeof(*file->cut));
        return;
    }
    json_array_foreach(value, i, at)
    {
        json_int_t place = json_integer_value(at);

        if (!json_is_integer(at) || place <= before || place > INT_MAX)
            fail_field(r, "cut", value, expected);
        before = place;
        file->cut[i] = (int)place;
    }
    file->plan.cut = file->cut;
}

static void read_drop(struct reader *r, const json_t *in,
                      struct merak_plan_file *file)
{
    const json_t *value = json_object_get(in, "drop"), *at;
    size_t n = (size_t)merak_plan_parts(&file->plan), i;
    char expected[64];

    if (r->rc != MERAK_OK || json_is_null(value))
        return;
    snprintf(expected, sizeof(expected), "%zu objects", n);
    if (!json_is_array(value) || json_array_size(value) != n) {
        fail_field(r, "drop", value, expected);
        return;
    }
    file->drop = calloc(n, sizeof(*file->drop));
    if (file->drop == NULL) {
        r->rc = merak_fail_nomem(r->err, n * sizeof(*file->drop));
        return;
    }
    json_array_foreach(value, i, at)
    {
        file->drop[i].attention = read_bool(r, at, "attention");
        file->drop[i].blocks = (int)read_integer(r, at, "blocks", 0, INT_MAX);
    }
    file->plan.drop = file->drop;
}

/* The file has what the options say: a sub-pipeline's halves together. */
static void halve(struct reader *r, struct merak_plan *p)
{
    if (!p->sub_pipeline || r->rc != MERAK_OK)
        return;
    if (p->micro_batch % 2 != 0)
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "plan %s: micro_batch is %zu, expected an even "
                           "number, which sub_pipeline halves",
                           r->name, p->micro_batch);
    p->micro_batch /= 2;
    p->microbatches *= 2;
}

static void read_schedule(struct reader *r, const json_t *in,
                          struct merak_plan *plan)
{
    const json_t *value = json_object_get(in, "schedule");
    const char *text = json_string_value(value);
    const struct merak_schedule *schedule;

    if (r->rc != MERAK_OK)
        return;
    if (text == NULL || strlen(text) >= sizeof(plan->schedule) ||
        merak_schedule_find(text, &schedule, NULL) != MERAK_OK)
        fail_field(r, "schedule", value, "one that merak(7) lists");
    else
        strcpy(plan->schedule, text);
}

static void read_plan(struct reader *r, const json_t *in,
                      struct merak_plan_file *file)
{
    struct merak_plan *p = &file->plan;
    const json_int_t most = 65535, large = (json_int_t)1 << 50;

    p->tp = (int)read_integer(r, in, "tp", 1, most);
    p->pp = (int)read_integer(r, in, "pp", 1, most);
    p->dp = (int)read_integer(r, in, "dp", 1, most);
    p->order_tp_pp_dp = read_word(r, in, "order", order_words) == 1;
    p->chunks = (int)read_integer(r, in, "chunks", 1, 1024);
    p->microbatches = (int)read_integer(r, in, "microbatches", 1, INT_MAX / 2);
    p->micro_batch = (size_t)read_integer(r, in, "micro_batch", 1, INT_MAX);
    read_schedule(r, in, p);
    p->sub_pipeline = read_bool(r, in, "sub_pipeline");
    p->recompute =
        (enum merak_recompute)read_word(r, in, "recompute", recompute_words);
    p->memory_bytes = (size_t)read_integer(r, in, "memory_bytes", 0, large);
    p->zero1 = read_bool(r, in, "zero1");
    p->sp = (enum merak_seq_parallel)read_word(r, in, "sp", sp_words);
    p->dtype = (enum merak_dtype)read_word(r, in, "dtype", dtype_words);
    if (r->rc == MERAK_OK && json_object_get(in, "scatter") != NULL)
        p->scatter = (int)read_integer(r, in, "scatter", 0, most);
    if (r->rc == MERAK_OK && json_object_get(in, "tp_batch") != NULL)
        p->tp_batch_percent = (int)read_integer(r, in, "tp_batch", 0, 100);
    p->threads = 1;
    if (json_object_get(in, "branches") != NULL)
        p->branches = read_word(r, in, "branches", branches_words);
    else if (json_is_true(json_object_get(in, "gathered")))
        p->branches = MERAK_BRANCHES_GATHERED;
    halve(r, p);
    read_cut(r, in, file);
    read_drop(r, in, file);
}

/* Absent or odd predictions harm nobody. */
static void read_predicted(const json_t *in, struct merak_plan_file *file)
{
    const char *device = json_string_value(json_object_get(in, "device"));

    file->step_s = json_number_value(json_object_get(in, "step_s"));
    file->memory_bytes =
        (size_t)json_integer_value(json_object_get(in, "memory_bytes"));
    snprintf(file->device, sizeof(file->device), "%s",
             device != NULL ? device : "");
}

static void check_id(struct reader *r, const json_t *in,
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
                           "%s, what it says has %s; choices are fixed by "
                           "`merak plan --what-if`",
                           r->name, file->id, id);
}

static void read_sent(struct reader *r, const json_t *in,
                      struct merak_sent *sent)
{
    const json_int_t most = 1000000000000000000; /* an exabyte */

    sent->pp_bytes = (uint64_t)read_integer(r, in, "pp_bytes", 0, most - 1);
    sent->dp_bytes = (uint64_t)read_integer(r, in, "dp_bytes", 0, most - 1);
}

static void read_file(struct reader *r, const json_t *in,
                      struct merak_plan_file *file)
{
    const json_t *run;
    char program[MERAK_FINGERPRINT_TEXT] = "0";

    if (!json_is_integer(json_object_get(in, "merak_plan"))) {
        r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                           "plan %s: it has no merak_plan; expected what "
                           "`merak plan --json` writes",
                           r->name);
        return;
    }
    read_integer(r, in, "merak_plan", FORMAT, FORMAT);
    read_plan(r, read_object(r, in, "plan"), file);
    if (json_object_get(in, "sent") != NULL)
        read_sent(r, read_object(r, in, "sent"), &file->sent);
    run = read_object(r, in, "run");
    read_id(r, run, "model", file->model);
    file->seq = (size_t)read_integer(r, run, "seq", 1, INT_MAX);
    file->global_batch =
        (size_t)read_integer(r, run, "global_batch", 1, INT_MAX);
    read_id(r, in, "program", program);
    file->program = strtoull(program, NULL, 16);
    read_id(r, in, "id", file->id);
    read_predicted(json_object_get(in, "predicted"), file);
    check_id(r, in, file);
}

enum merak_status merak_plan_file_decode(const char *text, size_t bytes,
                                         const char *name,
                                         struct merak_plan_file **file_p,
                                         struct merak_error *err)
{
    struct reader r = {.name = name, .err = err};
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
    file = NULL; /* the caller's now */
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
    free(file);
}

/* --- for people ----------------------------------------------------------- */

const char *merak_plan_state_text(const struct merak_plan *p)
{
    static const char *const text[] = {
        "", ", optimizer state split over dp",
        ", optimizer state split over tp where weights are alike",
        ", optimizer state split over dp, and tp where weights are alike"};
    bool alike = p->tp > 1 &&
                 p->tp_batch_percent > 0; /* tensor ranks hold layers whole */

    return text[p->zero1 ? (p->dp > 1) + 2 * alike : 0];
}

const char *merak_plan_branches_text(const struct merak_plan *p)
{
    switch (p->branches) {
    case MERAK_BRANCHES_GATHERED:
        return ", branches gathered";
    case MERAK_BRANCHES_BLOCKS:
        return ", branches in blocks";
    default:
        return "";
    }
}

/* " (18 blocks in 2 of 4 stages, attention in 1)": what is recomputed, where
 * the plan says which; else nothing. */
static void describe_drops(const struct merak_plan *p, char *text, size_t size)
{
    int parts = merak_plan_parts(p), blocks = 0, some = 0, attention = 0;
    const char *of = parts > p->pp ? "parts" : parts > 1 ? "stages" : "stage";
    int n;

    text[0] = '\0';
    if (p->drop == NULL || p->recompute != MERAK_RECOMPUTE_AUTO)
        return;
    for (int k = 0; k < parts; k++) {
        blocks += p->drop[k].blocks;
        some += p->drop[k].blocks > 0;
        attention += p->drop[k].attention;
    }
    n = snprintf(text, size, " (");
    if (some > 0)
        n += snprintf(text + n, size - (size_t)n, "%d block%s in %d of %d %s",
                      blocks, blocks == 1 ? "" : "s", some, parts, of);
    if (attention > 0)
        n += snprintf(text + n, size - (size_t)n, "%sattention in %d of %d %s",
                      some > 0 ? ", " : "", attention, parts, of);
    if (some + attention == 0)
        n += snprintf(text + n, size - (size_t)n, "nothing");
    snprintf(text + n, size - (size_t)n, ")");
}

/* "1f1b of 2 chunks a rank, ": nothing where one stage has no pipeline, and
 * micro-batches run one after the other. */
static void describe_schedule(const struct merak_plan *p, char *text,
                              size_t size)
{
    char chunks[32] = "";

    text[0] = '\0';
    if (p->pp == 1 && p->chunks <= 1 && strcmp(p->schedule, "1f1b") == 0)
        return;
    if (p->chunks > 1)
        snprintf(chunks, sizeof(chunks), " of %d chunks a rank", p->chunks);
    snprintf(text, size, "%s%s, ", p->schedule, chunks);
}

void merak_plan_describe(const struct merak_plan *p, char *text, size_t bytes)
{
    char schedule[64], samples[64] = "", sp[48] = "", drops[80];
    int m = p->microbatches / halves(p);

    describe_schedule(p, schedule, sizeof(schedule));
    describe_drops(p, drops, sizeof(drops));
    if (p->tp > 1)
        snprintf(sp, sizeof(sp), ", sequence parallelism %s", sp_words[p->sp]);
    if (p->tp_batch_percent > 0)
        snprintf(samples, sizeof(samples),
                 ", samples cut over tp in %d %% of the model",
                 p->tp_batch_percent);
    snprintf(
        text, bytes,
        "tp %d, pp %d, dp %d; %s%d micro-batch%s of %zu%s; %s%s, "
        "ranks %s%s%s%s, recomputation %s%s%s",
        p->tp, p->pp, p->dp, schedule, m, m == 1 ? "" : "es",
        p->micro_batch * (size_t)halves(p),
        p->sub_pipeline ? " in halves that hide each other's exchanges" : "",
        dtype_words[p->dtype], merak_plan_state_text(p),
        order_words[p->order_tp_pp_dp],
        p->scatter > 0 ? ", stage boundaries in tp parts" : "", sp, samples,
        recompute_words[p->recompute], drops, merak_plan_branches_text(p));
}
