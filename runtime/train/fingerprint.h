/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/train/fingerprint.h - may this run go on from that checkpoint?
 *
 * A checkpoint records what determines its run, as "KEY=VALUE; KEY=VALUE ..":
 * options that begin with --, "data", and the model's numbers
 * (merak_graph_numbers()).  A run that resumes compares them with its
 * own: what would make another model of the weights, or cut, order or hold out
 * the data otherwise, is refused unless the user says that it is meant; what
 * only changes how fast weights move is said.
 */
#ifndef MERAK_RUNTIME_TRAIN_FINGERPRINT_H
#define MERAK_RUNTIME_TRAIN_FINGERPRINT_H

#include <stdbool.h>
#include <stddef.h>

#include "merak/status.h"

struct merak_train_options;
struct merak_trainer;

enum merak_difference_kind {
    MERAK_DIFFERENCE_MODEL, /* refused without --model-changed yes */
    MERAK_DIFFERENCE_DATA,  /* refused without --data-changed yes */
    MERAK_DIFFERENCE_SAID,
};

struct merak_difference {
    enum merak_difference_kind kind;
    char key[64];
    char then[160], now[160]; /* values in the checkpoint and here */
};

/* The fingerprint of this run; t->lineage.numbers and t->data are there. */
enum merak_status merak_fingerprint_make(struct merak_trainer *t,
                                         struct merak_error *err) MERAK_CHECKED;
/*
 * The difference number i, from 0, in the order of `now`; false if there are
 * not so many.  A number of the model that only one has is 0 in the other;
 * options and data that only one records do not differ, nor does anything from
 * what an earlier Merak did not record.
 */
bool merak_fingerprint_difference(const char *then, const char *now, int i,
                                  struct merak_difference *d);

#endif
