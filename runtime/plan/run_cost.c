/* SPDX-License-Identifier: Apache-2.0 */
/* run_cost.c - what a run costs, and how many nodes are worth it */
#include "config.h"

#include "runtime/plan/plan_emit.h"

#include "base/error.h"
#include "base/size.h"

enum merak_status plan_cost_check(const struct plan_cost *cost,
                                  struct merak_error *err)
{
    if (cost->price <= 0 || cost->tokens > 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--price needs the tokens of a run: give --tokens, too");
}

void plan_cost_print(const struct plan_cost *cost, double tokens_per_s,
                     int ranks, FILE *out)
{
    double hours = cost->tokens / tokens_per_s / 3600;
    char text[MERAK_NUMBER_TEXT];

    if (cost->tokens <= 0 || tokens_per_s <= 0)
        return;
    fprintf(out, "\n%.4g tokens: %.4g days, %s GPU-hours", cost->tokens,
            hours / 24, merak_number_text(hours * ranks, text));
    if (cost->price > 0)
        fprintf(out, ", %s at %.4g an hour",
                merak_number_text(hours * ranks * cost->price, text),
                cost->price);
    fputc('\n', out);
}

int plan_knee(const int *nodes, const double *tokens_per_s, int n)
{
    double first = tokens_per_s[0] / nodes[0];
    int knee = 0;

    for (int i = 1; i < n; i++) {
        double gained =
            (tokens_per_s[i] - tokens_per_s[i - 1]) / (nodes[i] - nodes[i - 1]);

        if (gained < first / 2)
            break;
        knee = i;
    }
    return knee;
}
