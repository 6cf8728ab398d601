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

/* The sequence length that frequencies were made for.  As in transformers, a
 * field of config.json itself has precedence, which phi3 always has. */
static double original_positions(struct merak_hf_reader *r,
                                 struct merak_hf_reader *in,
                                 const struct merak_hf_config *c)
{
    const char *name = "original_max_position_embeddings";

    if (c->family == MERAK_PHI3 || merak_hf_field(r, name) != NULL)
        return (double)merak_hf_size(r, name, INT32_MAX, 4096);
    return (double)merak_hf_size(in, name, INT32_MAX, c->positions);
}

static double required(struct merak_hf_reader *in, const char *name)
{
    if (merak_hf_field(in, name) == NULL)
        merak_hf_missing(in, name);
    return (double)merak_hf_positive(in, name, 1);
}

static void read_llama3(struct merak_hf_reader *r, struct merak_hf_reader *in,
                        struct merak_hf_config *c)
{
    struct merak_rope_scaling *s = &c->rope_scaling;
    double positions = original_positions(r, in, c);

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
static size_t turned(const struct merak_hf_config *c)
{
    return c->rope_scaling.turned > 0 ? c->rope_scaling.turned : c->head_dim;
}

/* The pair that makes `turns` rotations over the original positions. */
static double yarn_pair(const struct merak_hf_config *c, double turns,
                        double positions)
{
    return (double)turned(c) * log(positions / (turns * 2 * M_PI)) /
           (2 * log((double)c->rope_theta));
}

/* As in transformers, 0 means not given. */
static double or_else(double x, double otherwise)
{
    return x == 0 ? otherwise : x;
}

static void read_yarn(struct merak_hf_reader *r, struct merak_hf_reader *in,
                      struct merak_hf_config *c)
{
    struct merak_rope_scaling *s = &c->rope_scaling;
    double positions = original_positions(r, in, c);
    double fast = or_else(merak_hf_real(in, "beta_fast", 32), 32);
    double slow = or_else(merak_hf_real(in, "beta_slow", 1), 1);
    double scale = merak_hf_real(in, "mscale", 0);
    double all = merak_hf_real(in, "mscale_all_dim", 0), own;
    bool whole = merak_hf_bool(in, "truncate", true);

    s->kind = MERAK_ROPE_PAIR_RAMP;
    s->factor = (double)merak_hf_positive(in, "factor",
                                          (double)c->positions / positions);
    own = scale != 0 && all != 0 ? yarn_magnitude(s->factor, scale) /
                                       yarn_magnitude(s->factor, all)
                                 : yarn_magnitude(s->factor, 1);
    s->amplitude = (double)merak_hf_positive(in, "attention_factor", own);
    s->low = yarn_pair(c, fast, positions);
    s->high = yarn_pair(c, slow, positions);
    s->low = fmax(0, whole ? floor(s->low) : s->low);
    s->high = fmin((double)turned(c) - 1, whole ? ceil(s->high) : s->high);
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
static void read_longrope(struct merak_hf_reader *r, struct merak_hf_reader *in,
                          struct merak_hf_config *c)
{
    struct merak_rope_scaling *s = &c->rope_scaling;
    double positions = original_positions(r, in, c), own = 1;

    s->kind = MERAK_ROPE_PAIRS;
    s->factor = (double)merak_hf_positive(in, "factor",
                                          (double)c->positions / positions);
    if (s->factor > 1)
        own = sqrt(1 + log(s->factor) / log(positions));
    s->amplitude = (double)merak_hf_positive(in, "attention_factor", own);
    c->rope_short_positions = (size_t)positions;
    read_pairs(in, "short_factor", turned(c) / 2, c->rope_short);
    read_pairs(in, "long_factor", turned(c) / 2, c->rope_long);
}

/* For phi3, whose older files call longrope "su" or "yarn". */
static void read_phi3_kind(struct merak_hf_reader *r, const char *name,
                           const char *type, struct merak_hf_reader *in,
                           struct merak_hf_config *c)
{
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0 ||
        strcmp(type, "yarn") == 0)
        read_longrope(r, in, c);
    else if (strcmp(type, "default") != 0)
        merak_hf_refuse(r, name, "rope_type default or longrope");
}

static void read_kind(struct merak_hf_reader *r, const char *name,
                      struct merak_hf_reader *in, struct merak_hf_config *c)
{
    const char *old = merak_hf_word(in, "type", "default");
    const char *type = merak_hf_word(in, "rope_type", old);

    if (c->family == MERAK_PHI3) {
        read_phi3_kind(r, name, type, in, c);
        return;
    }
    if (strcmp(type, "linear") == 0) {
        c->rope_scaling.kind = MERAK_ROPE_LINEAR;
        c->rope_scaling.factor = required(in, "factor");
    } else if (strcmp(type, "llama3") == 0) {
        read_llama3(r, in, c);
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(r, in, c);
    } else if (strcmp(type, "longrope") == 0) {
        read_longrope(r, in, c);
    } else if (strcmp(type, "default") != 0 && strcmp(type, "dynamic") != 0) {
        /* dynamic equals default up to max_position_embeddings, and no
         * training sequence is longer */
        merak_hf_refuse(r, name, KINDS);
    }
}

/* For phi3, only a fraction of each head's channels, the first ones, may be
 * rotated.  The fraction is in config.json or, with precedence, in the rope
 * object, as in transformers; there, other families have no such field or
 * ignore it. */
static void read_turned(struct merak_hf_reader *r, struct merak_hf_reader *in,
                        struct merak_hf_config *c)
{
    double share = merak_hf_real(r, "partial_rotary_factor", 1);
    size_t n;

    if (in != NULL)
        share = merak_hf_real(in, "partial_rotary_factor", share);
    if (share == 1)
        return;
    n = share > 0 && share < 1 ? (size_t)((double)c->head_dim * share) : 0;
    if (c->family != MERAK_PHI3)
        merak_hf_refuse(r, "partial_rotary_factor", "1");
    else if (n == 0 || n % 2 != 0)
        merak_hf_refuse(r, "partial_rotary_factor",
                        "a fraction of head_dim that is an even number");
    c->rope_scaling.turned = n;
}

/* The fields of the object `name`; other families than these have an object
 * for each kind of layers. */
static void read_object(struct merak_hf_reader *r, const char *name,
                        double theta, struct merak_hf_config *c)
{
    struct merak_hf_reader in = {.family = r->family, .err = r->err};
    char before[32];

    in.root = merak_hf_field(r, name);
    if (!json_is_object(in.root)) {
        merak_hf_refuse(r, name, "an object with " KINDS);
        return;
    }
    c->rope_theta = merak_hf_positive(&in, "rope_theta", theta);
    merak_hf_require_absent(&in, "full_attention");
    merak_hf_require_absent(&in, "sliding_attention");
    read_turned(r, &in, c);
    read_kind(r, name, &in, c);
    snprintf(before, sizeof(before), "%s.", name);
    merak_hf_list_unread(&in, known, known, before, &r->unread);
    if (r->rc == MERAK_OK)
        r->rc = in.rc;
}

/* As in transformers, an object without fields is none. */
static bool has_object(struct merak_hf_reader *r, const char *name)
{
    const json_t *value = merak_hf_field(r, name);

    return value != NULL &&
           !(json_is_object(value) && json_object_size(value) == 0);
}

void merak_hf_rope_read(struct merak_hf_reader *r, struct merak_hf_config *c)
{
    double theta = (double)merak_hf_positive(r, "rope_theta", 10000);
    bool newer = has_object(r, "rope_parameters");

    c->rope_theta = (float)theta;
    (void)merak_hf_field(r, "original_max_position_embeddings");
    if (has_object(r, "rope_scaling"))
        read_object(r, "rope_scaling", theta, c);
    else if (newer)
        read_object(r, "rope_parameters", theta, c);
    else
        read_turned(r, NULL, c);
}
