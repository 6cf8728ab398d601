/* SPDX-License-Identifier: Apache-2.0 */
/* base/hub.h - models in the local cache of the Hugging Face hub
 *
 * What `hf download ORG/NAME` has stored; nothing is ever downloaded here.
 */
#ifndef MERAK_BASE_HUB_H
#define MERAK_BASE_HUB_H

#include <limits.h>
#include <stddef.h>

#include "merak/status.h"

/*
 * The folder of the model `name`: `name` itself if there is such a file or
 * folder, or if the cache has no such model; else its snapshot in the cache,
 * of the branch main, in `room`.
 */
const char *merak_hub_path(const char *name, char room[PATH_MAX]);
/* The command that downloads what is missing in a model's folder, of the cache
 * or another one, in room[bytes].  Returns room. */
const char *merak_hub_download(const char *dir, char *room, size_t bytes);
/* MERAK_ERR_CONFIG for a path that should be `expected` and is not there, and
 * is no name in the cache either. */
enum merak_status merak_fail_no_path(struct merak_error *err, const char *what,
                                     const char *path,
                                     const char *expected) MERAK_CHECKED;
/* The same for weights: MERAK_ERR_NOT_FOUND. */
enum merak_status merak_fail_no_weights(struct merak_error *err,
                                        const char *what, const char *path,
                                        const char *expected) MERAK_CHECKED;

#endif
