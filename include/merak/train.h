/* SPDX-License-Identifier: Apache-2.0 */
/* merak/train.h - train a described model: the whole of a program's main() */
#ifndef MERAK_TRAIN_H
#define MERAK_TRAIN_H

#include "merak/model.h"

/*
 * Describe the model into m; arg is the program's own.  Called on every rank,
 * possibly several times (once for training, once for evaluation, or while
 * planning); must describe the same model each time.
 */
typedef void (*merak_describe_fn)(struct merak_model *m, void *arg);

/*
 * Parse the command line, join the launcher's ranks, plan, train, and return
 * the process's exit code: 0 finished; 75 saved and wants another run; 66-69
 * configuration; anything else a crash.  `--help` lists the options.
 *
 * Where the first argument is `plan`, nothing is joined or trained: the others
 * are options of `merak plan`, merak-plan(1), and describe's model is planned
 * as that plans a config.json.  No weight is made, so that any machine can plan
 * for any other.  Returns 0, 66 or 69.  No option is a bare word: a program
 * that takes arguments of its own away before the call loses none by this.
 *
 *   describe  the model, as for one device
 *   arg       passed to describe
 *
 * Reports its own errors on standard error, one line.
 */
int merak_train(int argc, char **argv, merak_describe_fn describe, void *arg);

#endif
