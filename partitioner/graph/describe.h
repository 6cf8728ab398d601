/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - a model that is being described */
#ifndef MERAK_PARTITIONER_DESCRIBE_H
#define MERAK_PARTITIONER_DESCRIBE_H

#include "merak/model.h"

#include "partitioner/graph/graph.h"

/* A loss that was described; merak_loss() names it. */
struct merak_made_loss {
    struct merak_value *value;
    struct merak_loss loss;
};

struct merak_model {
    struct merak_graph *graph;
    enum merak_status status; /* of the first mistake */
    struct merak_error error;
    struct merak_value *input[MERAK_MAX_INPUTS]; /* as in graph->input */
    int64_t n_dropouts;                          /* streams given out */
    struct merak_lora lora; /* rank 0: the model itself is trained */
    double expert_room;     /* as in the options */
    bool expert_exchange;
    double expert_capacity;               /* merak_expert_capacity() */
    struct merak_balance_options balance; /* merak_balance_as(); below 0: as
                                             merak_balance() has it */
    bool adapting;   /* the next parameters are an adapter's */
    float pair_beta; /* merak_preferences(); 0: the loss is the targets' */
    struct merak_made_loss made[MERAK_MAX_LOSSES]; /* in their order */
    int n_made;
    bool complete;   /* differentiated: nothing may be added */
};

/* merak_apply(), and the op's first output: the others are there for its
 * gradient; NULL if it fails. */
struct merak_value *merak_model_apply(struct merak_model *m, const char *op,
                                      const struct merak_attrs *attrs, int n_in,
                                      struct merak_value *const *in);
/* Record the failure of a call that was given &m->error. */
void merak_model_keep(struct merak_model *m, enum merak_status rc);
/* Names become paths in checkpoints and words in reports. */
#define MERAK_NAME_MOST 200
bool merak_is_name(const char *name);
/* If sequences hold several documents, ops that depend on positions take one
 * more input after their n: where these start.  Returns how many it makes. */
int merak_model_add_starts(struct merak_model *m, struct merak_value **in,
                           int n);
/* Is its loss one of pairs?  Then these are the inputs that describe them. */
bool merak_model_add_pairs(struct merak_model *m, struct merak_value *in[2]);

/* A bias is f32, and counts as a vector: it has no weight decay.  Unless an
 * earlier op has read it. */
void merak_model_make_bias(struct merak_model *m, struct merak_value *bias);

/* describe_losses.c: make the graph's loss of those that were described. */
void merak_model_settle_loss(struct merak_model *m);

/* lora.c: y = W x of a layer, plus its adapter's if it has one. */
struct merak_value *merak_lora_add(struct merak_model *m, struct merak_value *x,
                                   struct merak_value *w, int n_contract,
                                   struct merak_value *y);
/* There must be an adapter if they are asked for. */
void merak_lora_check(struct merak_model *m);

#endif
