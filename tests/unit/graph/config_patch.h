/* SPDX-License-Identifier: Apache-2.0 */
/* config_patch.h - config.json files with other fields */
#ifndef MERAK_UNIT_CONFIG_PATCH_H
#define MERAK_UNIT_CONFIG_PATCH_H

#include "unit/config_files.h"

#include <jansson.h>

/* `base` with the fields of `patch` put in or replaced. */
static inline enum merak_status load_patched(const char *base,
                                             const char *patch,
                                             struct merak_hf_config *config,
                                             struct merak_error *err)
{
    json_t *root = json_loads(base, 0, NULL),
           *more = json_loads(patch, 0, NULL);
    enum merak_status rc;
    char *text;

    assert_non_null(root);
    assert_non_null(more);
    json_object_update(root, more);
    text = json_dumps(root, 0);
    rc = config_load(text, config, err);
    free(text);
    json_decref(root);
    json_decref(more);
    return rc;
}

#endif
