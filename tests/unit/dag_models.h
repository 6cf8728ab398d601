/* SPDX-License-Identifier: Apache-2.0 */
/* dag_models.h - small models that are no chains, for tests
 *
 * Two towers that meet, described one after the other or in turns, a short
 * branch described long before it is read, a U with skips over several stages
 * and layers of unlike width, layers one of which is as long as all others.
 */
#ifndef MERAK_TESTS_DAG_MODELS_H
#define MERAK_TESTS_DAG_MODELS_H

#include "merak/merak.h"

enum {
    DAG_TOWERS,
    DAG_U_NET,
    DAG_UNEVEN,
    DAG_IN_TURNS,
    DAG_EARLY_BRANCH,
    DAG_INCEPTION,
    N_DAG_MODELS
};

struct dag_model {
    const char *name;
    merak_describe_fn describe;
};

extern const struct dag_model dag_models[N_DAG_MODELS];

#endif
