/* SPDX-License-Identifier: Apache-2.0 */
/* one_word.c - the command line of a command with one word */
#include "config.h"

#include "cmd/cmd.h"

#include "base/error.h"

enum merak_status merak_cmd_one_word(const struct merak_option_table *table,
                                     int argc, char **argv, void *target,
                                     bool *help_p, struct merak_error *err)
{
    enum merak_status rc =
        merak_options_words(table, false, &argc, argv, target, help_p, err);

    if (rc == MERAK_OK && argc > 2)
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "one argument too many, \"%.60s\"", argv[2]);
    return rc;
}
