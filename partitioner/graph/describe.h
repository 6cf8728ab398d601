/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - a model that is being described */
#ifndef MERAK_PARTITIONER_DESCRIBE_H
#define MERAK_PARTITIONER_DESCRIBE_H

#include "merak/model.h"

#include "partitioner/graph/graph.h"

struct merak_model {
    struct merak_graph *graph;
    enum merak_status status; /* of the first mistake */
    struct merak_error error;
    struct merak_value *input[MERAK_INPUT_COUNT]; /* by its kind */
    int64_t n_dropouts;                           /* streams given out */
    bool complete; /* differentiated: nothing may be added */
};

/* What depends on positions takes one input more where sequences hold several
 * documents, behind its own n: where they start.  How many there are then. */
int merak_model_add_starts(struct merak_model *m, struct merak_value **in,
                           int n);

#endif
