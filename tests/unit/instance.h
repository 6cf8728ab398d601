/* SPDX-License-Identifier: Apache-2.0 */
/* instance.h - small models on small machines, drawn for the planner */
#ifndef MERAK_TESTS_INSTANCE_H
#define MERAK_TESTS_INSTANCE_H

#include "unit/near.h"

#include "partitioner/search/search_impl.h"

struct instance {
    int layers;
    size_t hidden, vocab, wide; /* wide: width of every second layer */
    bool tied, skip;
    struct merak_device device;
    struct merak_search_input in;
};

/* What is searched beside degrees, micro-batch size and cuts. */
enum free_choice {
    FREE_SCHEDULE, /* now and then */
    FREE_RECOMPUTE,
    FREE_CHUNKS, /* and schedule */
    FREE_SUB_PIPELINE,
    FREE_CHOICES
};

void instance_describe(struct merak_model *m, void *arg);

/* The same for the same seed; one of the free choices in turn. */
void instance_draw(struct instance *it, int seed);

/* Seconds of a step of the plan that is found, DBL_MAX if none is. */
double instance_step(const struct instance *it);

#endif
