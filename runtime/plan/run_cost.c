/* SPDX-License-Identifier: Apache-2.0 */
/* run_cost.c - what a run costs, and how many nodes are worth it */
#include "config.h"

#include "runtime/plan/plan_emit.h"

#include "runtime/plan/plan_options.h"

#include "base/error.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum merak_status plan_cost_check(const struct plan_cost *cost,
                                  struct merak_error *err)
{
    if (cost->price <= 0 || cost->tokens > 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--price needs the tokens of a run: give --tokens, too");
}

/* "1T", "300G", "2.5e12" */
enum merak_status plan_tokens_set(void *target, const char *text,
                                  struct merak_error *err)
{
    static const char unit[] = "kMGT";
    struct plan_options *opt = target;
    char *end;
    double value = strtod(text, &end);
    const char *at =
        *end != '\0' ? strchr(unit, *end == 'B' ? 'G' : *end) : NULL;

    for (const char *u = unit; at != NULL && u <= at; u++)
        value *= 1e3;
    if (end == text || (*end != '\0' && (at == NULL || end[1] != '\0')) ||
        !(value >= 1 && value <= 1e18))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--tokens: expected a number, with suffix k, M, G "
                          "(or B) or T, as 1T; got \"%.60s\"",
                          text);
    opt->run.tokens = value;
    return MERAK_OK;
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
