/* SPDX-License-Identifier: Apache-2.0 */
/* describe_attention.c - the calls that describe attention */
#include "config.h"

#include "partitioner/graph/describe.h"

/* Apply an attention to in[n]; the optional inputs are appended. */
static struct merak_value *attend(struct merak_model *m, const char *op,
                                  struct merak_attrs attrs, int n,
                                  struct merak_value **in,
                                  const struct merak_attention_options *opt)
{
    int starts = merak_model_add_starts(m, in, n);

    attrs.i[4] = starts > n ? MERAK_ATTENTION_STARTS : 0;
    n = starts;
    if (opt->key_lengths != NULL) {
        attrs.i[4] |= MERAK_ATTENTION_LENGTHS;
        in[n++] = opt->key_lengths;
    }
    if (opt->prefix_lengths != NULL) {
        attrs.i[4] |= MERAK_ATTENTION_PREFIX;
        in[n++] = opt->prefix_lengths;
    }
    if (opt->bias.table != NULL) {
        attrs.i[4] |= MERAK_ATTENTION_BIAS;
        attrs.f[3] = (double)opt->bias.farthest;
        attrs.f[4] = opt->bias.both_ways ? 1 : 0;
        in[n++] = opt->bias.table;
    }
    if (opt->sinks != NULL) {
        merak_model_make_bias(m, opt->sinks);
        attrs.i[4] |= MERAK_ATTENTION_SINKS;
        in[n++] = opt->sinks;
    }
    return merak_model_apply(m, op, &attrs, n, in);
}

static const struct merak_attention_options causal;

static bool check_mask(struct merak_model *m,
                       const struct merak_attention_options *opt)
{
    enum merak_attention_mask mask = opt->mask;

    if (mask != MERAK_MASK_CAUSAL && mask != MERAK_MASK_FULL &&
        mask != MERAK_MASK_PREFIX)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "attention: mask %d, expected MERAK_MASK_CAUSAL, "
                         "MERAK_MASK_FULL or MERAK_MASK_PREFIX",
                         (int)mask);
    else if (opt->window_after > 0 && mask != MERAK_MASK_FULL)
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "attention: a window of %zu keys after the query, "
                         "expected mask MERAK_MASK_FULL with it",
                         opt->window_after);
    else if ((opt->prefix_lengths != NULL) != (mask == MERAK_MASK_PREFIX))
        merak_model_fail(m, MERAK_ERR_PARAM,
                         "attention: %s, expected both or neither",
                         mask == MERAK_MASK_PREFIX
                             ? "mask MERAK_MASK_PREFIX without prefix_lengths"
                             : "prefix_lengths without mask MERAK_MASK_PREFIX");
    else
        return true;
    return false;
}

/* Only where positions are those of one sequence is one after another. */
static bool check_sequences(struct merak_model *m, const struct merak_value *q,
                            const struct merak_value *k,
                            const struct merak_attention_options *opt)
{
    if (q == NULL || k == NULL || q->shape.ndim < 2 || k->shape.ndim < 2 ||
        q->letter[1] == k->letter[1] ||
        (opt->mask == MERAK_MASK_FULL && opt->window == 0 &&
         opt->window_after == 0))
        return true;
    merak_model_fail(m, MERAK_ERR_PARAM,
                     "attention: q (%s) and k (%s) are of two sequences, "
                     "expected MERAK_MASK_FULL without a window",
                     q->name, k->name);
    return false;
}

static struct merak_attrs
attention_attrs(struct merak_model *m,
                const struct merak_attention_options *opt)
{
    struct merak_attrs attrs = {
        .f = {(double)opt->dropout, (double)opt->scale, (double)opt->soft_cap}};

    attrs.i[3] = (int64_t)opt->window;
    /* a window of the whole sequence or more is no limit */
    if (opt->window > 0 && opt->window < m->graph->seq)
        attrs.i[1] = (int64_t)opt->window;
    if (opt->mask == MERAK_MASK_FULL)
        attrs.i[2] = opt->window_after > 0 ? (int64_t)opt->window_after : -1;
    if (opt->dropout != 0.0f)
        attrs.i[0] = m->n_dropouts++;
    return attrs;
}

struct merak_value *
merak_attention_with(struct merak_model *m, struct merak_value *q,
                     struct merak_value *k, struct merak_value *v,
                     const struct merak_attention_options *opt)
{
    struct merak_value *in[7] = {q, k, v};

    if (!check_mask(m, opt) || !check_sequences(m, q, k, opt))
        return NULL;
    if (opt->bias.table != NULL && opt->sinks != NULL) {
        merak_model_fail(m, MERAK_ERR_UNSUPPORTED,
                         "attention: a bias and sinks, expected either");
        return NULL;
    }
    return attend(m, opt->bias.table != NULL ? "attention_biased" : "attention",
                  attention_attrs(m, opt), 3, in, opt);
}

struct merak_value *
merak_attention_packed_with(struct merak_model *m, struct merak_value *qkv,
                            const struct merak_attention_options *opt)
{
    struct merak_value *in[4] = {qkv};

    if (!check_mask(m, opt))
        return NULL;
    if (opt->bias.table != NULL || opt->sinks != NULL) {
        merak_model_fail(m, MERAK_ERR_UNSUPPORTED,
                         "attention: %s with q, k and v packed, expected "
                         "them apart (merak_attention_with())",
                         opt->bias.table != NULL ? "a bias" : "sinks");
        return NULL;
    }
    return attend(m, "attention_packed", attention_attrs(m, opt), 1, in, opt);
}

struct merak_value *merak_attention(struct merak_model *m,
                                    struct merak_value *q,
                                    struct merak_value *k,
                                    struct merak_value *v)
{
    return merak_attention_with(m, q, k, v, &causal);
}

struct merak_value *merak_attention_packed(struct merak_model *m,
                                           struct merak_value *qkv)
{
    return merak_attention_packed_with(m, qkv, &causal);
}
