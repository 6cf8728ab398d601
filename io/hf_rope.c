/* SPDX-License-Identifier: Apache-2.0 */
/* hf_rope.c - rotary positions in config.json
 *
 * Older files have "rope_scaling" with a "type", newer ones "rope_parameters"
 * with a "rope_type", which also contains theta.
 */
#include "config.h"

#include "io/hf_rope.h"

#include "base/error.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define KINDS "rope_type default, linear, dynamic, llama3, yarn or longrope"

/* Those of some kind: like transformers, the others ignore them. */
static const char *const known[] = {"attention_factor",
                                    "beta_fast",
                                    "beta_slow",
                                    "factor",
                                    "high_freq_factor",
                                    "long_factor",
                                    "low_freq_factor",
                                    "mscale",
                                    "mscale_all_dim",
                                    "original_max_position_embeddings",
                                    "short_factor",
                                    "truncate",
                                    NULL};

/* What is being read: an object of rotary positions, or NULL, and where it
 * belongs. */
struct rope_file {
    struct merak_hf_reader *r; /* what has the object: the file, mostly */
    struct merak_hf_reader *in;
    struct merak_hf_names *unread;
    const char *where; /* "", or of the object in the file: "NAME." */
    const struct merak_hf_family *f;
    struct merak_hf_config *c;
    struct merak_rope_scaling *to;
    bool slides; /* of layers with windows */
};

/* The sequence length that frequencies were made for.  As in transformers, a
 * field of config.json itself has precedence, which phi3 always has, and none
 * where kinds of layers have their own. */
static double original_positions(const struct rope_file *file)
{
    const char *name = "original_max_position_embeddings";
    bool own =
        file->f->rope.slide_theta == 0 && merak_hf_field(file->r, name) != NULL;

    if (file->f->rope.is_long || own)
        return (double)merak_hf_size(file->r, name, INT32_MAX, 4096);
    return (double)merak_hf_size(file->in, name, INT32_MAX, file->c->positions);
}

static double required(struct merak_hf_reader *in, const char *name)
{
    if (merak_hf_field(in, name) == NULL)
        merak_hf_missing(in, name);
    return (double)merak_hf_positive(in, name, 1);
}

static void read_llama3(const struct rope_file *file)
{
    struct merak_rope_scaling *s = file->to;
    struct merak_hf_reader *in = file->in;
    double positions = original_positions(file);

    s->kind = MERAK_ROPE_FREQUENCY_RAMP;
    s->factor = required(in, "factor");
    s->low = required(in, "low_freq_factor") / positions;
    s->high = required(in, "high_freq_factor") / positions;
    if (in->rc == MERAK_OK && !(s->high > s->low))
        merak_hf_refuse(in, "high_freq_factor", "more than low_freq_factor");
}

/* Peng et al. 2023, sec. 3.4: the temperature of attention, as a factor. */
static double yarn_magnitude(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

/* Channels of a head that are rotated. */
static size_t turned(const struct rope_file *file)
{
    return file->to->turned > 0 ? file->to->turned : file->c->head_dim;
}

/* The pair that makes `turns` rotations over the original positions. */
static double yarn_pair(const struct rope_file *file, double turns,
                        double positions)
{
    double theta = (double)(file->slides ? file->c->rope.slide_theta
                                         : file->c->rope.theta);

    return (double)turned(file) * log(positions / (turns * 2 * M_PI)) /
           (2 * log(theta));
}

/* As in transformers, 0 means not given. */
static double or_else(double x, double otherwise)
{
    return x == 0 ? otherwise : x;
}

static void read_yarn(const struct rope_file *file)
{
    struct merak_rope_scaling *s = file->to;
    struct merak_hf_reader *in = file->in;
    double positions = original_positions(file);
    double fast = or_else(merak_hf_real(in, "beta_fast", 32), 32);
    double slow = or_else(merak_hf_real(in, "beta_slow", 1), 1);
    double scale = merak_hf_real(in, "mscale", 0);
    double all = merak_hf_real(in, "mscale_all_dim", 0), own;
    bool whole = merak_hf_bool(in, "truncate", true);

    s->kind = MERAK_ROPE_PAIR_RAMP;
    s->factor = (double)merak_hf_positive(
        in, "factor", (double)file->c->positions / positions);
    own = scale != 0 && all != 0 ? yarn_magnitude(s->factor, scale) /
                                       yarn_magnitude(s->factor, all)
                                 : yarn_magnitude(s->factor, 1);
    s->amplitude = (double)merak_hf_positive(in, "attention_factor", own);
    s->low = yarn_pair(file, fast, positions);
    s->high = yarn_pair(file, slow, positions);
    s->low = fmax(0, whole ? floor(s->low) : s->low);
    s->high = fmin((double)turned(file) - 1, whole ? ceil(s->high) : s->high);
    if (s->low == s->high)
        s->high += 0.001;
    if (in->rc == MERAK_OK && !(s->high > s->low))
        in->rc = merak_fail(in->err, MERAK_ERR_CONFIG,
                            "yarn: beta_fast %g turns pairs up to %g and "
                            "beta_slow %g from %g on; expected a rise",
                            fast, s->low, slow, s->high);
}

/* The factors of `pairs` pairs, positive numbers. */
static void read_pairs(struct merak_hf_reader *in, const char *name,
                       size_t pairs, double to[MERAK_HF_PAIRS])
{
    const json_t *list = merak_hf_field(in, name), *number;
    char want[64];
    size_t i;

    if (list == NULL) {
        merak_hf_missing(in, name);
        return;
    }
    snprintf(want, sizeof(want), "a list of %zu positive numbers", pairs);
    if (json_array_size(list) != pairs || pairs > MERAK_HF_PAIRS) {
        merak_hf_refuse(in, name, want);
        return;
    }
    json_array_foreach(list, i, number)
    {
        to[i] = json_number_value(number);
        if (!(to[i] > 0) || !isfinite(to[i])) {
            merak_hf_refuse(in, name, want);
            return;
        }
    }
}

/* Ding et al. 2024 (arXiv:2402.13753). */
static void read_longrope(const struct rope_file *file)
{
    struct merak_rope_scaling *s = file->to;
    struct merak_hf_reader *in = file->in;
    double positions = original_positions(file), own = 1;

    s->kind = MERAK_ROPE_PAIRS;
    s->factor = (double)merak_hf_positive(
        in, "factor", (double)file->c->positions / positions);
    if (s->factor > 1)
        own = sqrt(1 + log(s->factor) / log(positions));
    s->amplitude = (double)merak_hf_positive(in, "attention_factor", own);
    file->c->rope.short_positions = (size_t)positions;
    read_pairs(in, "short_factor", turned(file) / 2, file->c->rope.by_short);
    read_pairs(in, "long_factor", turned(file) / 2, file->c->rope.by_long);
}

/* For families whose older files call longrope "su" or "yarn". */
static void read_long_kind(const struct rope_file *file, const char *name,
                           const char *type)
{
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0 ||
        strcmp(type, "yarn") == 0)
        read_longrope(file);
    else if (strcmp(type, "default") != 0)
        merak_hf_refuse(file->r, name, "rope_type default or longrope");
}

static void read_kind(const struct rope_file *file, const char *name)
{
    struct merak_hf_reader *in = file->in;
    const char *old = merak_hf_word(in, "type", "default");
    const char *type = merak_hf_word(in, "rope_type", old);

    if (file->f->rope.is_long) {
        read_long_kind(file, name, type);
        return;
    }
    if (strcmp(type, "linear") == 0) {
        file->to->kind = MERAK_ROPE_LINEAR;
        file->to->factor = required(in, "factor");
    } else if (strcmp(type, "llama3") == 0) {
        read_llama3(file);
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(file);
    } else if (strcmp(type, "longrope") == 0 &&
               file->f->rope.slide_theta == 0) {
        read_longrope(file);
    } else if (strcmp(type, "default") != 0 && strcmp(type, "dynamic") != 0) {
        /* dynamic equals default up to max_position_embeddings, and no
         * training sequence is longer */
        merak_hf_refuse(file->r, name, KINDS);
    }
}

/* In some families only a fraction of each head's channels, the first ones, may
 * be rotated.  The fraction is in config.json or, with precedence, in the rope
 * object, as in transformers; there, other families have no such field or
 * ignore it. */
static void read_turned(const struct rope_file *file)
{
    const char *inner = "partial_rotary_factor";
    const char *name = file->f->rope.share_field;
    double usual = file->f->rope.share, share;
    size_t n;

    if (name == NULL)
        name = inner;
    share = merak_hf_real(file->r, name, usual > 0 ? usual : 1);
    if (file->in != NULL)
        share = merak_hf_real(file->in, inner, share);
    if (share == 1)
        return;
    n = share > 0 && share < 1 ? (size_t)((double)file->c->head_dim * share)
                               : 0;
    if (usual == 0)
        merak_hf_refuse(file->r, name, "1");
    else if (n == 0 || n % 2 != 0)
        merak_hf_refuse(file->r, name,
                        "a fraction of head_dim that is an even number");
    file->to->turned = n;
}

/* With latent attention, scores are multiplied by the square of a temperature
 * of their own where mscale_all_dim is given. */
static void read_temperature(const struct rope_file *file)
{
    struct merak_hf_reader *in = file->in;
    struct merak_hf_config *c = file->c;
    const char *old = merak_hf_word(in, "type", "default");
    const char *type = merak_hf_word(in, "rope_type", old);
    double all = merak_hf_real(in, "mscale_all_dim", 0), factor, x;

    if (c->latent.kv_rank == 0 || all == 0 || strcmp(type, "default") == 0)
        return;
    factor = file->to->factor;
    factor = (double)merak_hf_positive(in, "factor", factor > 0 ? factor : 1);
    x = yarn_magnitude(factor, all);
    c->attn_scale = (float)(x * x / sqrt((double)c->head_dim));
}

/* The fields of an object, which is `name` in messages, or "". */
static void read_object(struct rope_file *file, const json_t *object,
                        const char *name, double theta)
{
    struct merak_hf_reader *r = file->r;
    struct merak_hf_reader in = {
        .root = object, .family = r->family, .err = r->err};
    float *to =
        file->slides ? &file->c->rope.slide_theta : &file->c->rope.theta;
    char before[64];

    if (!json_is_object(object)) {
        merak_hf_refuse(r, name, "an object with " KINDS);
        return;
    }
    file->in = &in;
    *to = merak_hf_positive(&in, "rope_theta", theta);
    merak_hf_require_absent(&in, "full_attention");
    merak_hf_require_absent(&in, "sliding_attention");
    read_turned(file);
    read_kind(file, name);
    read_temperature(file);
    snprintf(before, sizeof(before), "%s%s.", file->where, name);
    merak_hf_list_unread(&in, known, known, before, file->unread);
    if (r->rc == MERAK_OK)
        r->rc = in.rc;
    file->in = NULL;
}

/* As in transformers, an object without fields is none. */
static bool has_object(struct merak_hf_reader *r, const char *name)
{
    const json_t *value = merak_hf_field(r, name);

    return value != NULL &&
           !(json_is_object(value) && json_object_size(value) == 0);
}

/* What a family has where its files have nothing. */
static void read_default(struct rope_file *file, double theta)
{
    json_t *object = json_loads(file->f->rope.object, 0, NULL);

    read_object(file, object, "rope_parameters", theta);
    json_decref(object);
}

static void read_one(struct rope_file *file, double theta)
{
    struct merak_hf_reader *r = file->r;
    bool newer = has_object(r, "rope_parameters");

    if (has_object(r, "rope_scaling"))
        read_object(file, merak_hf_field(r, "rope_scaling"), "rope_scaling",
                    theta);
    else if (newer)
        read_object(file, merak_hf_field(r, "rope_parameters"),
                    "rope_parameters", theta);
    else if (file->f->rope.object != NULL)
        read_default(file, theta);
    else
        read_turned(file);
}

static const char *const kinds[] = {"full_attention", "sliding_attention"};

/* The object of rope_parameters for layers without windows, or with them. */
static void read_nested(struct rope_file *file, const json_t *both, int kind,
                        double theta)
{
    struct merak_hf_reader *r = file->r;
    struct merak_hf_reader in = {
        .root = both, .family = r->family, .err = r->err};
    const json_t *object = json_object_get(both, kinds[kind]);

    if (r->rc != MERAK_OK || object == NULL || json_is_null(object))
        return;
    file->r = &in;
    file->where = "rope_parameters.";
    read_object(file, object, kinds[kind], theta);
    file->where = "";
    file->r = r;
    r->rc = in.rc;
}

static void check_kinds(struct merak_hf_reader *r, const json_t *both)
{
    const char *name;
    json_t *one;

    if (both != NULL && !json_is_object(both))
        merak_hf_refuse(r, "rope_parameters", "an object");
    json_object_foreach((json_t *)(uintptr_t)both, name, one)
    {
        if (r->rc == MERAK_OK && strcmp(name, kinds[0]) != 0 &&
            strcmp(name, kinds[1]) != 0)
            r->rc = merak_fail(r->err, MERAK_ERR_CONFIG,
                               "field rope_parameters.%.40s is not of a kind "
                               "of layers; the %s family has full_attention "
                               "and sliding_attention there",
                               name, r->family);
    }
}

/* Where layers with windows have rotary positions of their own, both kinds are
 * in rope_parameters.  Older files have rope_scaling for the others alone. */
static void read_two(struct rope_file *file, double theta)
{
    const struct merak_hf_rope_family *rope = &file->f->rope;
    struct merak_hf_reader *r = file->r;
    const json_t *both = merak_hf_field(r, "rope_parameters");
    double slide_theta = rope->slide_theta;

    if (rope->slide_theta_field != NULL)
        slide_theta =
            (double)merak_hf_positive(r, rope->slide_theta_field, slide_theta);
    file->c->rope.slide_theta = (float)slide_theta;
    check_kinds(r, both);
    read_turned(file);
    if (has_object(r, "rope_scaling"))
        read_object(file, merak_hf_field(r, "rope_scaling"), "rope_scaling",
                    theta);
    else
        read_nested(file, both, 0, theta);
    file->slides = true;
    file->to = &file->c->rope.slide_scaling;
    read_nested(file, both, 1, slide_theta);
}

/* Fields that transformers 4 wrote beside those with the family's own names:
 * they must say the same. */
static void check_twin(struct merak_hf_reader *r, const char *name,
                       const char *own, double value)
{
    if (own == NULL || merak_hf_field(r, name) == NULL)
        return;
    if (merak_hf_real(r, name, value) != value)
        merak_hf_refuse(r, name, own);
}

void merak_hf_rope_read(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c)
{
    const struct merak_hf_rope_family *rope = &f->rope;
    double theta = (double)merak_hf_positive(
        r, rope->theta_field != NULL ? rope->theta_field : "rope_theta",
        rope->theta > 0 ? rope->theta : 10000);
    struct rope_file file = {.r = r,
                             .unread = &r->unread,
                             .where = "",
                             .f = f,
                             .c = c,
                             .to = &c->rope.scaling};

    check_twin(r, "rope_theta", rope->theta_field, theta);
    check_twin(r, "partial_rotary_factor", rope->share_field,
               rope->share_field == NULL
                   ? 1
                   : merak_hf_real(r, rope->share_field, rope->share));
    c->rope.theta = (float)theta;
    (void)merak_hf_field(r, "original_max_position_embeddings");
    if (rope->slide_theta > 0)
        read_two(&file, theta);
    else
        read_one(&file, theta);
}
