/* SPDX-License-Identifier: Apache-2.0 */
/* changes.h - the changes that a refused search names */
#ifndef MERAK_UNIT_CHANGES_H
#define MERAK_UNIT_CHANGES_H

#include "partitioner/search/search.h"

/* The first change that a refusal names, or NULL. */
const char *changes_first(const char *refusal);
/* *changed: *in with one of them; returns the next one, or NULL.  A change that
 * cannot be read fails the test. */
const char *changes_make(const char *change,
                         const struct merak_search_input *in,
                         struct merak_search_input *changed);

#endif
