/* SPDX-License-Identifier: Apache-2.0 */
/* test_nccl_api.c - our declarations of NCCL against its header, if there is
 * one
 */
#include "config.h"

#include "runtime/nccl/nccl_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

#define SAME_FIELD(ours, theirs)                         \
    assert_int_equal(offsetof(struct nccl_config, ours), \
                     offsetof(ncclConfig_t, theirs))

static void structs_are_laid_out_alike(void **state)
{
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

    (void)state;
    assert_int_equal(sizeof(struct nccl_id), sizeof(ncclUniqueId));
    assert_true(sizeof(struct nccl_config) <= sizeof(ncclConfig_t));
    SAME_FIELD(size, size);
    SAME_FIELD(magic, magic);
    SAME_FIELD(version, version);
    SAME_FIELD(blocking, blocking);
    SAME_FIELD(cga_cluster_size, cgaClusterSize);
    SAME_FIELD(min_ctas, minCTAs);
    SAME_FIELD(max_ctas, maxCTAs);
    SAME_FIELD(net_name, netName);
    SAME_FIELD(split_share, splitShare);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 25, 0)
    SAME_FIELD(traffic_class, trafficClass);
#endif
    assert_int_equal(theirs.magic, NCCL_CONFIG_MAGIC);
    assert_int_equal(theirs.maxCTAs, NCCL_CONFIG_UNDEFINED);
    assert_null(theirs.netName);
}

static void numbers_are_the_same(void **state)
{
    (void)state;
    assert_int_equal(NCCL_SUCCESS, ncclSuccess);
    assert_int_equal(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
    assert_int_equal(NCCL_SYSTEM_ERROR, ncclSystemError);
    assert_int_equal(NCCL_INTERNAL_ERROR, ncclInternalError);
    assert_int_equal(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
    assert_int_equal(NCCL_INVALID_USAGE, ncclInvalidUsage);
    assert_int_equal(NCCL_REMOTE_ERROR, ncclRemoteError);
    assert_int_equal(NCCL_IN_PROGRESS, ncclInProgress);
    assert_int_equal(NCCL_INT8, ncclInt8);
    assert_int_equal(NCCL_INT32, ncclInt32);
    assert_int_equal(NCCL_FLOAT32, ncclFloat32);
    assert_int_equal(NCCL_FLOAT64, ncclFloat64);
    assert_int_equal(NCCL_BFLOAT16, ncclBfloat16);
    assert_int_equal(NCCL_SUM, ncclSum);
    assert_int_equal(NCCL_MAX, ncclMax);
}
#else
static void structs_are_laid_out_alike(void **state)
{
    (void)state;
    skip();
}

static void numbers_are_the_same(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_are_laid_out_alike),
        cmocka_unit_test(numbers_are_the_same),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("nccl's interface", tests, NULL, NULL);
}
