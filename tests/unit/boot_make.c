/* SPDX-License-Identifier: Apache-2.0 */
/* boot_make.c - a task that comes to the fence and brings nothing, for
 * t/0510-bad-input.bats
 *
 *   srun -n2 boot_make SECONDS     rank 1 puts no card; rank 0 prints how its
 *                                  exchange of cards ended, with that deadline
 */
#include "config.h"

#include "merak/merak.h"
#include "runtime/boot/boot.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct merak_error err = {0};
    struct merak_boot *boot;
    enum merak_status rc;
    int mine = 7, all[2];

    if (argc != 2 || merak_boot_open(&boot, &err) != MERAK_OK ||
        boot->size != 2) {
        fprintf(stderr, "boot_make: expected SECONDS and two tasks %s\n",
                err.text);
        return 2;
    }
    boot->deadline_s = atof(argv[1]);
    if (boot->rank == 1) {
        bool collect = true;
        pmix_info_t info;

        PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
        (void)PMIx_Fence(NULL, 0, &info, 1);
        sleep(3000);
        return 3;
    }
    rc = boot->ops->allgather(boot, &mine, sizeof(mine), all, &err);
    printf("%d: %s\n", (int)rc, rc == MERAK_OK ? "" : err.text);
    fflush(stdout);
    merak_boot_close(boot);
    return rc == MERAK_OK ? 0 : 1;
}
