/* SPDX-License-Identifier: Apache-2.0 */
/* merak/status.h - the status every call returns, and the text that goes
 * with a failure
 *
 * A function that can fail returns enum merak_status: 0 is success, 1 means
 * a posted operation is still running, and negative values are failures,
 * grouped by who has to act.  The reason is in a struct merak_error that the
 * caller owns and may omit (NULL).  Outputs change only on success.
 */
#ifndef MERAK_STATUS_H
#define MERAK_STATUS_H

enum merak_status {
    MERAK_OK = 0,
    MERAK_IN_PROGRESS = 1,

    /* the caller's mistake */
    MERAK_ERR_PARAM = -1,       /* an argument out of its range */
    MERAK_ERR_UNSUPPORTED = -2, /* the request is not supported */
    MERAK_ERR_CONFIG = -3,      /* options or files that do not fit together */
    MERAK_ERR_NOT_FOUND = -4,   /* a name that does not exist */

    /* this rank's resources */
    MERAK_ERR_NOMEM = -20,
    MERAK_ERR_IO = -21,
    MERAK_ERR_NOSPACE = -22, /* the file system is full */
    MERAK_ERR_SYSTEM = -23,

    /* a peer or the fabric */
    MERAK_ERR_PEER = -40,
    MERAK_ERR_TIMEOUT = -41,
    MERAK_ERR_FABRIC = -42,
    MERAK_ERR_LOST = -43, /* a peer's process has ended or its node is lost */

    /* damaged or foreign data */
    MERAK_ERR_CORRUPT = -60,  /* a checksum or a size is wrong */
    MERAK_ERR_MISMATCH = -61, /* intact, but of another model or run */
    MERAK_ERR_FORMAT = -62,   /* not in the expected format */
};

struct merak_error {
    enum merak_status status;
    char text[508];
    int fix; /* offset in text of the fix, with which the
                text ends; 0: it names none */
};

#define MERAK_CHECKED __attribute__((warn_unused_result))

/* A short lower-case name, "out of memory"; never NULL; any thread. */
const char *merak_status_name(enum merak_status status);

#endif
