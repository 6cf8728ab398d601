/* SPDX-License-Identifier: Apache-2.0 */
/* codec.c - a plan as one line of text
 *
 *   plan  = "merak2/" id "/" job "." step "/" body
 *   id    = 16 hexadecimal digits, FNV-1a of body; zeros while a degree is
 *           auto
 *   body  = tp cp ep "x" pp "x" dp "/" order bytes "/" domain "/" nodes "/"
 *           tree "/" map
 *   cp    = "" | "c" cp        "" for 1; 0: auto
 *   ep    = "" | "e" ep        "" for 1 or, if a degree is auto, not given; 0:
 *           auto
 *   bytes = "" | ":" pp-bytes ":" dp-bytes       "" if not known
 *   nodes = a hostlist in the launcher's order; nodes are numbered from 0
 *   tree  = part *("," part)      part = name "(" tree ")" | low ["-" high]
 *   map   = run *("," run)        run  = first "+" n "*" each
 *
 * The tree holds every node once, by number, at its leaf, or at the top if its
 * location is unknown; switches without a node of the step are left out.  The
 * map lists tasks in their order: n nodes from `first` upwards with `each`
 * consecutive tasks (PMI's process mapping).  Numbers are decimal.  A degree of
 * 0 is auto.
 *
 * The rank map is not written: every reader computes the same one from this.
 * 2000 nodes take about 10 KiB.  The reader trusts nothing, since a user can
 * put any text in a job's environment.
 */
#include "config.h"

#include "placement/placement_impl.h"

#include "base/error.h"
#include "placement/hostlist.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A change in how the map is computed needs another version. */
static const char magic[] = "merak2/";

/* Longer text is rejected unread; Slurm cannot pass more anyway. */
enum { MAX_TEXT = 1 << 18 };

/* Most bytes in a step; sums in take_number() stay within 64 bits. */
static const int64_t MAX_BYTES = INT64_C(1) << 59;

/* --- writing ------------------------------------------------------------- */

static bool is_plain(const char *name)
{
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                        "0123456789._-") == strlen(name);
}

static enum merak_status check_names(const struct merak_site *site,
                                     struct merak_error *err)
{
    for (int i = 0; i < site->n_nodes; i++) {
        const char *bad = NULL;

        if (!is_plain(site->node_path[i]))
            bad = site->node_path[i];
        if (!is_plain(site->node_name[i]) || site->node_name[i][0] == '\0')
            bad = site->node_name[i];
        if (bad != NULL)
            return merak_fail(err, MERAK_ERR_UNSUPPORTED,
                              "the name \"%.64s\" has a character beyond "
                              "A-Z a-z 0-9 . _ -",
                              bad);
    }
    return MERAK_OK;
}

/* Number of leading switches two paths share, and where they end. */
static int shared_parts(const char *a, const char *b, size_t *length)
{
    int parts = 0;
    size_t i = 0;

    *length = 0;
    if (*a == '\0' || *b == '\0')
        return 0;
    for (;; i++) {
        bool end_a = a[i] == '\0' || a[i] == '.';
        bool end_b = b[i] == '\0' || b[i] == '.';

        if (end_a && end_b) {
            parts++;
            *length = i;
        }
        if (a[i] != b[i] || a[i] == '\0')
            return parts;
    }
}

static int count_parts(const char *path)
{
    size_t length;

    return shared_parts(path, path, &length);
}

/* Open the switches of path after its first `length` characters. */
static void open_switches(FILE *out, const char *path, size_t length)
{
    const char *p = path + length;

    while (*p != '\0') {
        size_t n;

        p += *p == '.';
        n = strcspn(p, ".");
        fwrite(p, 1, n, out);
        fputc('(', out);
        p += n;
    }
}

static void write_tree(FILE *out, const struct merak_walk *walk,
                       const struct merak_site *site)
{
    const char *before = "";

    for (int i = 0; i < walk->n_nodes; i++) {
        const char *path = site->node_path[walk->node[i]];
        int first = walk->node[i];
        size_t length;
        int shared = shared_parts(before, path, &length);

        for (int close = count_parts(before); close > shared; close--)
            fputc(')', out);
        if (i > 0)
            fputc(',', out);
        open_switches(out, path, length);
        while (i + 1 < walk->n_nodes &&
               walk->node[i + 1] == walk->node[i] + 1 &&
               strcmp(site->node_path[walk->node[i + 1]], path) == 0)
            i++;
        fprintf(out, "%d", first);
        if (walk->node[i] > first)
            fprintf(out, "-%d", walk->node[i]);
        before = path;
    }
    for (int close = count_parts(before); close > 0; close--)
        fputc(')', out);
}

/* How many tasks from i on are on the same node. */
static int run_length(const struct merak_site *site, int i)
{
    int n = 1;

    while (i + n < site->n_tasks &&
           site->node_of_task[i + n] == site->node_of_task[i])
        n++;
    return n;
}

static void write_map(FILE *out, const struct merak_site *site)
{
    for (int i = 0; i < site->n_tasks;) {
        int first = site->node_of_task[i], each = run_length(site, i), n = 1;
        int next = i + each;

        while (next < site->n_tasks && site->node_of_task[next] == first + n &&
               run_length(site, next) == each) {
            next += each;
            n++;
        }
        fprintf(out, "%s%d+%d*%d", i > 0 ? "," : "", first, n, each);
        i = next;
    }
}

/* Write the body; the names have been checked. */
static enum merak_status write_body(FILE *out, const struct merak_site *site,
                                    const struct merak_placement_input *input,
                                    struct merak_error *err)
{
    struct merak_walk walk;
    enum merak_status rc = merak_walk_init(&walk, site, err);

    if (rc != MERAK_OK)
        return rc;
    merak_input_write(out, input);
    merak_hostlist_fold(out, site->node_name, site->n_nodes);
    fputc('/', out);
    write_tree(out, &walk, site);
    fputc('/', out);
    write_map(out, site);
    merak_walk_fini(&walk);
    return MERAK_OK;
}

static enum merak_status make_body(const struct merak_site *site,
                                   const struct merak_placement_input *input,
                                   char **body_p, struct merak_error *err)
{
    char *body = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&body, &size);
    enum merak_status rc;

    if (out == NULL)
        return merak_fail_nomem(err, 4096);
    rc = write_body(out, site, input, err);
    if (fclose(out) != 0 && rc == MERAK_OK)
        rc = merak_fail_nomem(err, size);
    if (rc == MERAK_OK)
        *body_p = body;
    else
        free(body);
    return rc;
}

static uint64_t fingerprint(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, 64 bits */

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

enum merak_status merak_plan_id(const struct merak_site *site,
                                const struct merak_placement_input *input,
                                uint64_t *id_p, struct merak_error *err)
{
    char *body;
    enum merak_status rc = make_body(site, input, &body, err);

    if (rc != MERAK_OK)
        return rc;
    *id_p = fingerprint(body);
    free(body);
    return MERAK_OK;
}

enum merak_status merak_plan_encode(const struct merak_placement_plan *plan,
                                    char **text_p, struct merak_error *err)
{
    char *body, *text = NULL;
    enum merak_status rc = check_names(&plan->site, err);

    if (rc == MERAK_OK)
        rc = make_body(&plan->site, &plan->input, &body, err);
    if (rc != MERAK_OK)
        return rc;
    if (asprintf(&text, "%s%016" PRIx64 "/%" PRIu32 ".%" PRIu32 "/%s", magic,
                 plan->id, plan->job, plan->step, body) < 0)
        rc = merak_fail_nomem(err, strlen(body) + 64);
    else
        *text_p = text;
    free(body);
    return rc;
}

/* --- reading ------------------------------------------------------------- */

struct reader {
    const char *p, *start;
    struct merak_placement_plan *plan;
    bool *placed; /* [n_nodes]: seen in the tree */
    struct merak_error *err;
};

static enum merak_status malformed(const struct reader *r, const char *what)
{
    return merak_fail(r->err, MERAK_ERR_FORMAT, "plan: %s, at character %zd",
                      what, r->p - r->start);
}

static bool take(struct reader *r, char c)
{
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

/* A decimal number in [0, max]; -1 if there is none. */
static int64_t take_number(struct reader *r, int64_t max)
{
    const char *start = r->p;
    int64_t value = 0;

    while (*r->p >= '0' && *r->p <= '9') {
        value = value * 10 + (*r->p++ - '0');
        if (value > max)
            return -1;
    }
    return r->p > start ? value : -1;
}

/* A copy of the text before the next "/"; NULL if there is no "/" or no
 * memory. */
static char *take_field(struct reader *r)
{
    const char *end = strchr(r->p, '/');
    char *field;

    if (end == NULL)
        return NULL;
    field = strndup(r->p, (size_t)(end - r->p));
    r->p = end + 1;
    return field;
}

/* A number and the character after it; -1 if either is missing. */
static int64_t take_field_number(struct reader *r, int64_t max, char end)
{
    int64_t value = take_number(r, max);

    return value >= 0 && take(r, end) ? value : -1;
}

static enum merak_status read_header(struct reader *r)
{
    struct merak_placement_plan *plan = r->plan;
    int64_t job, step;

    if (strncmp(r->p, magic, strlen(magic)) != 0)
        return malformed(r, "not a plan of this version");
    r->p += strlen(magic);
    if (strspn(r->p, "0123456789abcdef") != 16 || r->p[16] != '/')
        return malformed(r, "an id of 16 digits was expected");
    plan->id = strtoull(r->p, NULL, 16);
    r->p += 17;
    job = take_field_number(r, UINT32_MAX, '.');
    step = job < 0 ? -1 : take_field_number(r, UINT32_MAX, '/');
    if (step < 0)
        return malformed(r, "JOB.STEP was expected");
    plan->job = (uint32_t)job;
    plan->step = (uint32_t)step;
    return MERAK_OK;
}

static enum merak_status read_degrees(struct reader *r)
{
    struct merak_placement_input *in = &r->plan->input;
    bool is_chosen = false; /* ep */

    in->tp = (int)take_number(r, MERAK_MAX_DEGREE);
    in->cp = 1;
    if (in->tp >= 0 && take(r, 'c'))
        in->cp = (int)take_number(r, MERAK_MAX_DEGREE);
    in->ep = 0;
    if (in->tp >= 0 && take(r, 'e')) {
        in->ep = (int)take_number(r, MERAK_MAX_DEGREE);
        is_chosen = in->ep == 0;
    }
    in->pp = in->tp < 0 || in->cp < 0 || in->ep < 0 || !take(r, 'x')
                 ? -1
                 : (int)take_field_number(r, MERAK_MAX_DEGREE, 'x');
    in->cp = in->cp == 0 ? MERAK_CP_CHOSEN : in->cp;
    in->ep = is_chosen ? MERAK_EP_CHOSEN : in->ep;
    in->dp = in->pp < 0 ? -1 : (int)take_field_number(r, MERAK_MAX_TASKS, '/');
    if (in->ep == 0 && !merak_degrees_auto(in))
        in->ep = 1;
    return in->dp < 0 ? malformed(r, "TP[cCP][eEP]xPPxDP was expected")
                      : MERAK_OK;
}

/* Read ":PP:DP", if present, and cut it off the word. */
static bool read_bytes(struct reader *r, char *word)
{
    struct merak_placement_input *in = &r->plan->input;
    char *colon = strchr(word, ':');
    struct reader in_word = {.p = colon != NULL ? colon + 1 : word};
    int64_t pp, dp;

    if (colon == NULL)
        return true;
    *colon = '\0';
    pp = take_field_number(&in_word, MAX_BYTES, ':');
    dp = pp < 0 ? -1 : take_number(&in_word, MAX_BYTES);
    if (dp < 0 || *in_word.p != '\0')
        return false;
    in->pp_bytes = (uint64_t)pp;
    in->dp_bytes = (uint64_t)dp;
    return true;
}

static enum merak_status read_words(struct reader *r)
{
    struct merak_placement_input *in = &r->plan->input;
    char *word = take_field(r);
    enum merak_status rc = MERAK_ERR_FORMAT;

    if (word != NULL && read_bytes(r, word))
        rc = merak_order_parse(word, &in->order);
    free(word);
    if (rc != MERAK_OK)
        return malformed(r, "an order was expected");
    word = take_field(r);
    rc = word == NULL ? MERAK_ERR_FORMAT
                      : merak_domain_parse(word, &in->tp_domain);
    free(word);
    return rc == MERAK_OK ? MERAK_OK : malformed(r, "a domain was expected");
}

static enum merak_status read_nodes(struct reader *r)
{
    char *field = take_field(r);
    struct merak_hostlist list;
    enum merak_status rc;

    if (field == NULL)
        return malformed(r, "nodes were expected");
    rc = merak_hostlist_expand(field, MERAK_MAX_NODES, &list, r->err);
    free(field);
    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < list.n; i++) {
        if (is_plain(list.name[i]))
            continue;
        merak_hostlist_fini(&list);
        return malformed(r, "a node's name was expected");
    }
    r->plan->site.n_nodes = list.n;
    r->plan->site.node_name = list.name;
    r->plan->site.node_path = calloc((size_t)list.n, sizeof(char *));
    r->placed = calloc((size_t)list.n, sizeof(*r->placed));
    if (r->plan->site.node_path == NULL || r->placed == NULL)
        return merak_fail_nomem(r->err, (size_t)list.n * sizeof(char *));
    return MERAK_OK;
}

/* Read "low" or "low-high": these nodes are at path. */
static enum merak_status read_range(struct reader *r, const char *path)
{
    struct merak_site *site = &r->plan->site;
    int64_t low = take_number(r, site->n_nodes - 1), high = low;

    if (low >= 0 && take(r, '-'))
        high = take_number(r, site->n_nodes - 1);
    if (low < 0 || high < low)
        return malformed(r, "a range of nodes was expected");
    for (int64_t i = low; i <= high; i++) {
        if (r->placed[i])
            return malformed(r, "a node is listed twice");
        r->placed[i] = true;
        site->node_path[i] = strdup(path);
        if (site->node_path[i] == NULL)
            return merak_fail_nomem(r->err, strlen(path) + 1);
    }
    return MERAK_OK;
}

/*
 * Read the parts below the switch whose path is path[0 .. length).  A part that
 * is digits up to "(" is a switch, too, since names may be numbers.  A name has
 * no dots, which would make it two.
 */
static enum merak_status read_tree(struct reader *r, char *path, size_t length,
                                   int depth)
{
    do {
        size_t n = strcspn(r->p, "(),/");
        enum merak_status rc;

        if (r->p[n] != '(') {
            path[length] = '\0';
            rc = read_range(r, path);
        } else if (n == 0 || depth == MERAK_MAX_SWITCH_DEPTH ||
                   length + n + 2 > MERAK_NAME_MAX) {
            return malformed(r, "a switch name was expected");
        } else {
            size_t dot = length > 0;

            path[length] = '.';
            memcpy(path + length + dot, r->p, n);
            r->p += n + 1;
            path[length + dot + n] = '\0';
            if (!is_plain(path) || strchr(path + length + dot, '.') != NULL)
                return malformed(r, "a switch name was expected");
            rc = read_tree(r, path, length + dot + n, depth + 1);
            if (rc == MERAK_OK && !take(r, ')'))
                return malformed(r, "\")\" was expected");
        }
        if (rc != MERAK_OK)
            return rc;
    } while (take(r, ','));
    return MERAK_OK;
}

static enum merak_status read_places(struct reader *r)
{
    char path[MERAK_NAME_MAX + 1];
    enum merak_status rc = read_tree(r, path, 0, 0);

    if (rc != MERAK_OK)
        return rc;
    for (int i = 0; i < r->plan->site.n_nodes; i++) {
        if (!r->placed[i])
            return malformed(r, "a node is missing");
    }
    return take(r, '/') ? MERAK_OK : malformed(r, "\"/\" was expected");
}

/* Read one run and add its tasks to the site, whose array has room for all. */
static enum merak_status read_run(struct reader *r)
{
    struct merak_site *site = &r->plan->site;
    int64_t first = take_number(r, site->n_nodes - 1), n = -1, each = -1;

    if (first >= 0 && take(r, '+'))
        n = take_number(r, site->n_nodes - first);
    if (n >= 1 && take(r, '*'))
        each = take_number(r, MERAK_MAX_TASKS);
    if (each < 1 || n * each > MERAK_MAX_TASKS - site->n_tasks)
        return malformed(r, "a run of tasks was expected");
    for (int64_t i = 0; i < n * each; i++)
        site->node_of_task[site->n_tasks++] = (int)(first + i / each);
    return MERAK_OK;
}

static enum merak_status read_map(struct reader *r)
{
    struct merak_site *site = &r->plan->site;
    int *fitting;

    site->node_of_task = malloc(MERAK_MAX_TASKS * sizeof(int));
    if (site->node_of_task == NULL)
        return merak_fail_nomem(r->err, MERAK_MAX_TASKS * sizeof(int));
    do {
        enum merak_status rc = read_run(r);

        if (rc != MERAK_OK)
            return rc;
    } while (take(r, ','));
    if (*r->p != '\0')
        return malformed(r, "the end was expected");
    fitting = realloc(site->node_of_task, (size_t)site->n_tasks * sizeof(int));
    if (fitting != NULL)
        site->node_of_task = fitting;
    return MERAK_OK;
}

/* Check that the degrees are known and fit, or that one is auto. */
static enum merak_status check_degrees(const struct reader *r)
{
    struct merak_placement_input in = r->plan->input;
    int dp = in.dp;
    enum merak_status rc;

    if (merak_degrees_auto(&in))
        return MERAK_OK;
    if (in.order == MERAK_ORDER_AUTO)
        return malformed(r, "an order was expected");
    rc = merak_degrees_resolve(r->plan->site.n_tasks, in.cp, in.ep, &in.tp,
                               &in.pp, &in.dp, r->err);
    if (rc != MERAK_OK || dp != in.dp)
        return malformed(r, "degrees do not fit the tasks");
    return MERAK_OK;
}

enum merak_status merak_plan_decode(const char *text,
                                    struct merak_placement_plan *plan,
                                    struct merak_error *err)
{
    struct merak_placement_plan got = {.job = 0};
    struct reader r = {.p = text, .start = text, .plan = &got, .err = err};
    enum merak_status (*const steps[])(struct reader *) = {
        read_header, read_degrees, read_words,
        read_nodes,  read_places,  read_map,
    };
    enum merak_status rc = MERAK_OK;

    if (strnlen(text, MAX_TEXT) == MAX_TEXT)
        return malformed(&r, "too long");
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        rc = steps[i](&r);
        if (rc != MERAK_OK)
            break;
    }
    if (rc == MERAK_OK)
        rc = check_degrees(&r);
    free(r.placed);
    if (rc != MERAK_OK) {
        merak_plan_fini(&got);
        return rc;
    }
    *plan = got;
    return MERAK_OK;
}

void merak_plan_fini(struct merak_placement_plan *plan)
{
    merak_site_fini(&plan->site);
}
