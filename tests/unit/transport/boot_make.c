/* SPDX-License-Identifier: Apache-2.0 */
/* boot_make.c - two tasks and one collective of the boot, for
 * t/0012-launch.bats and t/0510-bad-input.bats
 *
 *   srun -n2 boot_make late DIR       rank 1 makes DIR/late and comes to a
 *                                     barrier late; rank 0 fails if it is out
 *                                     of the barrier and does not see it
 *   srun -n2 boot_make absent SECONDS rank 1 comes to the fence and puts no
 *                                     card; rank 0 prints how its exchange of
 *                                     cards ended, with that deadline
 */
#include "config.h"

#include "merak/merak.h"
#include "runtime/boot/boot.h"

#include <errno.h>
#include <limits.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *why)
{
    fprintf(stderr, "boot_make: %s\n", why);
    return 1;
}

/* Rank 1 takes its time: a barrier that is none lets rank 0 out before. */
static int come_late(struct merak_boot *boot, const char *dir)
{
    char path[PATH_MAX];
    struct merak_error err;
    struct stat st;

    snprintf(path, sizeof(path), "%s/late", dir);
    if (boot->rank == 1) {
        usleep(700000);
        if (mkdir(path, 0700) != 0)
            return fail(strerror(errno));
    }
    if (boot->ops->barrier(boot, &err) != MERAK_OK)
        return fail(err.text);
    if (stat(path, &st) != 0)
        return fail("left the barrier before the other task had come to it");
    return 0;
}

static int bring_nothing(struct merak_boot *boot, const char *seconds)
{
    struct merak_error err = {0};
    enum merak_status rc;
    int mine = 7, all[2];

    boot->deadline_s = atof(seconds);
    if (boot->rank == 1) {
        bool collect = true;
        pmix_info_t info;

        PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
        (void)PMIx_Fence(NULL, 0, &info, 1);
        sleep(3000);
        return 3;
    }
    rc = boot->ops->allgather(boot, &mine, sizeof(mine), all, &err);
    return rc == MERAK_OK ? 0 : fail(err.text);
}

int main(int argc, char **argv)
{
    struct merak_error err = {0};
    struct merak_boot *boot;
    int rc = 2;

    if (argc != 3)
        return fail("expected late DIR or absent SECONDS");
    if (merak_boot_open(&boot, &err) != MERAK_OK)
        return fail(err.text);
    if (boot->size != 2)
        rc = fail("expected two tasks");
    else if (strcmp(argv[1], "late") == 0)
        rc = come_late(boot, argv[2]);
    else if (strcmp(argv[1], "absent") == 0)
        rc = bring_nothing(boot, argv[2]);
    merak_boot_close(boot);
    return rc;
}
