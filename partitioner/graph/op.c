/* SPDX-License-Identifier: Apache-2.0 */
/* op.c - ops by their names */
#include "config.h"

#include "partitioner/graph/op_tables.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static const struct merak_op *const builtin[] = {
    merak_ops_embedding, merak_ops_linear,      merak_ops_norm,
    merak_ops_attention, merak_ops_elementwise, merak_ops_loss,
    merak_ops_experts,   merak_ops_expert_rows, merak_ops_balance,
    merak_ops_window,    merak_ops_mean,        merak_ops_channels,
    merak_ops_topk,      merak_ops_step,
};

const struct merak_number merak_no_numbers[] = {{NULL, 0, 0}};

/* Ops a program added.  A process-wide list, as the header promises: an op
 * is code, like the built-in tables, and belongs to no model. */
static struct {
    const struct merak_op **op;
    size_t n;
} added;

/* Asked for each candidate of a search: most names differ in a letter. */
static bool is_named(const struct merak_op *op, const char *name)
{
    return op->name[0] == name[0] && strcmp(op->name, name) == 0;
}

const struct merak_op *merak_op_find(const char *name)
{
    for (size_t t = 0; t < sizeof(builtin) / sizeof(*builtin); t++) {
        for (const struct merak_op *op = builtin[t]; op->name != NULL; op++) {
            if (is_named(op, name))
                return op;
        }
    }
    for (size_t i = 0; i < added.n; i++) {
        if (is_named(added.op[i], name))
            return added.op[i];
    }
    return NULL;
}

const struct merak_op *merak_op_at(size_t i)
{
    for (size_t t = 0; t < sizeof(builtin) / sizeof(*builtin); t++) {
        for (const struct merak_op *op = builtin[t]; op->name != NULL; op++) {
            if (i-- == 0)
                return op;
        }
    }
    return i < added.n ? added.op[i] : NULL;
}

static enum merak_status check_op(const struct merak_op *op,
                                  struct merak_error *err)
{
    if (op->name == NULL || op->name[0] == '\0')
        return merak_fail(err, MERAK_ERR_PARAM, "an op needs a name");
    if (op->infer == NULL || op->signature == NULL || op->cost == NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "op %s: %s is missing",
                          op->name,
                          op->infer == NULL       ? "infer"
                          : op->signature == NULL ? "signature"
                                                  : "cost");
    if (op->min_in < 0 || op->max_in < op->min_in || op->n_out < 1 ||
        op->max_in > MERAK_MAX_OPERANDS - op->n_out)
        return merak_fail(err, MERAK_ERR_PARAM,
                          "op %s: %d to %d inputs and %d outputs, expected at "
                          "least one output and at most %d operands",
                          op->name, op->min_in, op->max_in, op->n_out,
                          MERAK_MAX_OPERANDS);
    if (merak_op_find(op->name) != NULL)
        return merak_fail(err, MERAK_ERR_PARAM, "op %s: the name is taken",
                          op->name);
    return MERAK_OK;
}

enum merak_status merak_op_register(const struct merak_op *op,
                                    struct merak_error *err)
{
    const struct merak_op **grown;
    enum merak_status rc = check_op(op, err);

    if (rc != MERAK_OK)
        return rc;
    grown = realloc(added.op, (added.n + 1) * sizeof(*grown));
    if (grown == NULL)
        return merak_fail_nomem(err, (added.n + 1) * sizeof(*grown));
    added.op = grown;
    added.op[added.n++] = op;
    return MERAK_OK;
}
