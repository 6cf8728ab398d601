/* SPDX-License-Identifier: Apache-2.0 */
/* emu.c - an emulated accelerator: kernels that compute nothing
 *
 * One kernel is used for every op.  The time of an instruction is that of the
 * cost model; the engine computes when each would be over in an accelerator's
 * stream.  Only transfers and the end of a step wait for that, so that the
 * delays of wake-ups do not add up.
 */
#include "config.h"

#include "kernels/backends.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "kernels/geometry.h"

/* Timers are up to 50 us late by default, as long as a message takes. */
void merak_emu_thread(void)
{
    prctl(PR_SET_TIMERSLACK, 1UL);
}

void merak_emu_wait(int64_t deadline_ns)
{
    struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / 1000000000),
        .tv_nsec = (long)(deadline_ns % 1000000000),
    };
    int rc;

    merak_emu_thread();
    do {
        rc = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    } while (rc == EINTR);
}

/* Scalars (a loss, a norm) are zeroed, so that logged values are defined; no
 * other memory is touched. */
static enum merak_status compute_nothing(const struct merak_kernel_call *call,
                                         struct merak_error *err)
{
    (void)err;
    for (int o = 0; o < call->n_out; o++) {
        const struct merak_operand *out = merak_call_out(call, o);
        size_t n = merak_local_count(out);

        if (n <= 2 && out->data != NULL)
            memset(out->data, 0, n * merak_dtype_bytes(out->dtype));
    }
    return MERAK_OK;
}

static const struct merak_kernel table[] = {
    {.name = MERAK_ANY_OP, .fn = compute_nothing},
    {0},
};

const struct merak_backend merak_backend_emu = {
    .name = "emu",
    .kernel = table,
    .kernels_of = merak_backend_cpu,
    .emulated = true,
};
