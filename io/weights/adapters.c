/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.c - the adapters of parameters, and merging them */
#include "config.h"

#include "io/weights/adapters.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT ".weight"

static const struct merak_named *find(const struct merak_named *list, int n,
                                      const char *layer, size_t length,
                                      const char *end)
{
    for (int i = 0; i < n; i++) {
        if (strncmp(list[i].name, layer, length) == 0 &&
            strcmp(list[i].name + length, end) == 0)
            return &list[i];
    }
    return NULL;
}

struct merak_adapter merak_adapter_of(const struct merak_named *list, int n,
                                      const char *weight)
{
    size_t length = strlen(weight), end = strlen(WEIGHT);

    if (length > end && strcmp(weight + length - end, WEIGHT) == 0)
        length -= end;
    return (struct merak_adapter){
        .a = find(list, n, weight, length, ".lora_A" WEIGHT),
        .b = find(list, n, weight, length, ".lora_B" WEIGHT)};
}

enum merak_status merak_adapter_merge(const struct merak_lora *lora,
                                      size_t rows, size_t cols, const float *a,
                                      const float *b, float *w,
                                      struct merak_error *err)
{
    double scale = merak_lora_factor(lora);
    double *sum = malloc((cols + 1) * sizeof(*sum));

    if (sum == NULL)
        return merak_fail_nomem(err, cols * sizeof(*sum));
    for (size_t i = 0; i < rows; i++, w += cols, b += lora->rank) {
        memset(sum, 0, cols * sizeof(*sum));
        for (size_t k = 0; k < lora->rank; k++) {
            const float *row = a + k * cols;

            for (size_t j = 0; j < cols; j++)
                sum[j] += (double)b[k] * (double)row[j];
        }
        for (size_t j = 0; j < cols; j++)
            w[j] = (float)((double)w[j] + scale * sum[j]);
    }
    free(sum);
    return MERAK_OK;
}

/* --- names of layers --------------------------------------------------------
 */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0 &&
           (n == m || name[n - m - 1] == '.');
}

static bool is_of_another(const struct merak_adaptable *layer, int n,
                          const char *end)
{
    for (int i = 0; i < n; i++) {
        if (!layer[i].chosen && ends_with(layer[i].name, end))
            return true;
    }
    return false;
}

/* The shortest end that only chosen layers have. */
static const char *shortest_end(const struct merak_adaptable *layer, int n,
                                const char *name)
{
    const char *end = name + strlen(name);

    do {
        while (end > name && end[-1] != '.')
            end--;
        if (!is_of_another(layer, n, end))
            return end;
        end -= end > name;
    } while (end > name);
    return name;
}

size_t merak_adaptable_print(const struct merak_adaptable *layer, int n,
                             char *text, size_t bytes)
{
    size_t at = 0;

    if (bytes > 0)
        text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *end;
        int before = 0;

        if (!layer[i].chosen)
            continue;
        end = shortest_end(layer, n, layer[i].name);
        while (!layer[before].chosen || !ends_with(layer[before].name, end))
            before++;
        if (before < i) /* it is in the text */
            continue;
        at += (size_t)snprintf(at < bytes ? text + at : NULL,
                               at < bytes ? bytes - at : 0, "%s%s",
                               at > 0 ? "," : "", end);
    }
    return at;
}
