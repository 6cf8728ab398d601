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
    struct merak_value *input[2]; /* by enum merak_input_kind */
    int64_t n_dropouts;           /* streams given out */
    bool complete;                /* differentiated: nothing may be added */
};

#endif
