/* SPDX-License-Identifier: Apache-2.0 */
/* merak/train.h - train a described model: a program's whole main() */
#ifndef MERAK_TRAIN_H
#define MERAK_TRAIN_H

#include "merak/model.h"

/*
 * Describe the model into m; arg is the program's own.  It is called on every
 * rank, possibly several times (once for training, once for evaluation, or
 * while planning), and must describe the same model each time.
 */
typedef void (*merak_describe_fn)(struct merak_model *m, void *arg);

/*
 * Parse the command line, join the launcher's ranks, plan, train, and return
 * the process's exit code: 0 finished; 75 stopped early: resubmit to continue;
 * 66 configuration; 67 data or checkpoint; 68 launcher; 69 memory or disk;
 * anything else a crash.  `--help` lists the options.
 *
 * If the first argument is `plan`, nothing is joined or trained: the others
 * are options of `merak plan`, merak-plan(1), which plans describe's model in
 * place of a config.json.  No weights are created, so any machine can plan for
 * any other.  Returns 0, 66 or 69.  No option is a bare word, so `plan` clashes
 * with none; a program removes arguments of its own before the call.
 *
 *   describe  the model, as for one device
 *   arg       passed to describe
 *
 * Errors are reported on standard error, in one line.
 */
int merak_train(int argc, char **argv, merak_describe_fn describe, void *arg);

#endif
