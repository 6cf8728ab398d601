/* SPDX-License-Identifier: Apache-2.0 */
/* hello.c - the least that a task of a PMIx step does: init, fence, finalize */
#include <pmix.h>
#include <stdio.h>

int main(void)
{
    pmix_proc_t me;

    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return 1;
    if (PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS)
        return 1;
    if (me.rank == 0)
        puts("all are here");
    fflush(stdout);
    return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
