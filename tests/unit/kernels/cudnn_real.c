/* SPDX-License-Identifier: Apache-2.0 */
/* cudnn_real.c - our declarations of cuDNN against its header, and our graphs
 * against the library, as far as it goes without a GPU
 *
 * An H200 is described to it; it then says which kernels it has and what they
 * work in.  It wants a driver's library to be there, of which the toolkit has a
 * stub.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/cudnn_tests.h"

#include "base/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* --- the header -------------------------------------------------------------
 */

#if __has_include(<cudnn_graph.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn_graph.h>

#define SAME(ours, theirs) assert_int_equal(MERAK_CUDNN_##ours, CUDNN_##theirs)

static void values_are_the_same(void)
{
    SAME(OK, STATUS_SUCCESS);
    SAME(NOT_SUPPORTED, STATUS_NOT_SUPPORTED);
    SAME(INTERNAL_ERROR, STATUS_INTERNAL_ERROR);
    SAME(FLOAT, DATA_FLOAT);
    SAME(INT32, DATA_INT32);
    SAME(BFLOAT16, DATA_BFLOAT16);
    SAME(BOOLEAN, DATA_BOOLEAN);
    SAME(ADD, POINTWISE_ADD);
    SAME(MUL, POINTWISE_MUL);
    SAME(DIV, POINTWISE_DIV);
    SAME(SUB, POINTWISE_SUB);
    SAME(EXP, POINTWISE_EXP);
    SAME(LOG, POINTWISE_LOG);
    SAME(CMP_GT, POINTWISE_CMP_GT);
    SAME(CMP_GE, POINTWISE_CMP_GE);
    SAME(GEN_INDEX, POINTWISE_GEN_INDEX);
    SAME(SELECT, POINTWISE_BINARY_SELECT);
    SAME(REDUCE_ADD, REDUCE_TENSOR_ADD);
    SAME(REDUCE_MAX, REDUCE_TENSOR_MAX);
    SAME(NOTE_DOWN_CONVERT, NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    SAME(NOTE_REDUCED_SUMS, NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
    SAME(NOTE_NONDETERMINISTIC, NUMERICAL_NOTE_NONDETERMINISTIC);
    SAME(HEUR_A, HEUR_MODE_A);
    /* later ones have more */
    assert_in_range(CUDNN_NUMERICAL_NOTE_TYPE_COUNT, 1, MERAK_CUDNN_NOTES);
    assert_in_range(CUDNN_KNOB_TYPE_COUNTS, 1, MERAK_CUDNN_KNOBS);
}

static void types_are_the_same(void)
{
    SAME(TYPE_HANDLE, TYPE_HANDLE);
    SAME(TYPE_DATA_TYPE, TYPE_DATA_TYPE);
    SAME(TYPE_BOOLEAN, TYPE_BOOLEAN);
    SAME(TYPE_INT64, TYPE_INT64);
    SAME(TYPE_VOID_PTR, TYPE_VOID_PTR);
    SAME(TYPE_HEUR_MODE, TYPE_HEUR_MODE);
    SAME(TYPE_KNOB_TYPE, TYPE_KNOB_TYPE);
    SAME(TYPE_NUMERICAL_NOTE, TYPE_NUMERICAL_NOTE);
    SAME(TYPE_POINTWISE_MODE, TYPE_POINTWISE_MODE);
    SAME(TYPE_DESCRIPTOR, TYPE_BACKEND_DESCRIPTOR);
    SAME(TYPE_REDUCTION, TYPE_REDUCTION_OPERATOR_TYPE);
    SAME(TYPE_CHAR, TYPE_CHAR);
    SAME(POINTWISE, BACKEND_POINTWISE_DESCRIPTOR);
    SAME(ENGINE, BACKEND_ENGINE_DESCRIPTOR);
    SAME(ENGINECFG, BACKEND_ENGINECFG_DESCRIPTOR);
    SAME(ENGINEHEUR, BACKEND_ENGINEHEUR_DESCRIPTOR);
    SAME(PLAN, BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    SAME(KNOB_CHOICE, BACKEND_KNOB_CHOICE_DESCRIPTOR);
    SAME(OP_POINTWISE, BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SAME(GRAPH, BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SAME(PACK, BACKEND_VARIANT_PACK_DESCRIPTOR);
    SAME(TENSOR, BACKEND_TENSOR_DESCRIPTOR);
    SAME(MATMUL, BACKEND_MATMUL_DESCRIPTOR);
    SAME(OP_MATMUL, BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    SAME(REDUCTION, BACKEND_REDUCTION_DESCRIPTOR);
    SAME(OP_REDUCTION, BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    SAME(OP_RESHAPE, BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    SAME(DEVICEPROP, BACKEND_DEVICEPROP_DESCRIPTOR);
}

static void attributes_are_the_same(void)
{
    SAME(POINTWISE_MODE, ATTR_POINTWISE_MODE);
    SAME(POINTWISE_PREC, ATTR_POINTWISE_MATH_PREC);
    SAME(POINTWISE_AXIS, ATTR_POINTWISE_AXIS);
    SAME(HEUR_MODE, ATTR_ENGINEHEUR_MODE);
    SAME(HEUR_GRAPH, ATTR_ENGINEHEUR_OPERATION_GRAPH);
    SAME(HEUR_RESULTS, ATTR_ENGINEHEUR_RESULTS);
    SAME(HEUR_DEVICEPROP, ATTR_ENGINEHEUR_DEVICEPROP);
    SAME(CFG_ENGINE, ATTR_ENGINECFG_ENGINE);
    SAME(CFG_KNOBS, ATTR_ENGINECFG_KNOB_CHOICES);
    SAME(CFG_WORKSPACE, ATTR_ENGINECFG_WORKSPACE_SIZE);
    SAME(PLAN_HANDLE, ATTR_EXECUTION_PLAN_HANDLE);
    SAME(PLAN_CFG, ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    SAME(PLAN_WORKSPACE, ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    SAME(KNOB_TYPE, ATTR_KNOB_CHOICE_KNOB_TYPE);
    SAME(KNOB_VALUE, ATTR_KNOB_CHOICE_KNOB_VALUE);
    SAME(OP_POINTWISE_DESC, ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    SAME(OP_POINTWISE_X, ATTR_OPERATION_POINTWISE_XDESC);
    SAME(OP_POINTWISE_B, ATTR_OPERATION_POINTWISE_BDESC);
    SAME(OP_POINTWISE_Y, ATTR_OPERATION_POINTWISE_YDESC);
    SAME(OP_POINTWISE_T, ATTR_OPERATION_POINTWISE_TDESC);
    SAME(GRAPH_HANDLE, ATTR_OPERATIONGRAPH_HANDLE);
    SAME(GRAPH_OPS, ATTR_OPERATIONGRAPH_OPS);
    SAME(TENSOR_ALIGNMENT, ATTR_TENSOR_BYTE_ALIGNMENT);
    SAME(TENSOR_TYPE, ATTR_TENSOR_DATA_TYPE);
    SAME(TENSOR_DIMS, ATTR_TENSOR_DIMENSIONS);
    SAME(TENSOR_STRIDES, ATTR_TENSOR_STRIDES);
    SAME(TENSOR_UID, ATTR_TENSOR_UNIQUE_ID);
    SAME(TENSOR_VIRTUAL, ATTR_TENSOR_IS_VIRTUAL);
    SAME(TENSOR_BY_VALUE, ATTR_TENSOR_IS_BY_VALUE);
    SAME(PACK_UIDS, ATTR_VARIANT_PACK_UNIQUE_IDS);
    SAME(PACK_POINTERS, ATTR_VARIANT_PACK_DATA_POINTERS);
    SAME(PACK_WORKSPACE, ATTR_VARIANT_PACK_WORKSPACE);
    SAME(ENGINE_GRAPH, ATTR_ENGINE_OPERATION_GRAPH);
    SAME(ENGINE_INDEX, ATTR_ENGINE_GLOBAL_INDEX);
    SAME(ENGINE_NOTES, ATTR_ENGINE_NUMERICAL_NOTE);
    SAME(ENGINE_DEVICEPROP, ATTR_ENGINE_DEVICEPROP);
    SAME(MATMUL_PREC, ATTR_MATMUL_COMP_TYPE);
    SAME(OP_MATMUL_A, ATTR_OPERATION_MATMUL_ADESC);
    SAME(OP_MATMUL_B, ATTR_OPERATION_MATMUL_BDESC);
    SAME(OP_MATMUL_C, ATTR_OPERATION_MATMUL_CDESC);
    SAME(OP_MATMUL_DESC, ATTR_OPERATION_MATMUL_DESC);
    SAME(REDUCTION_OPERATOR, ATTR_REDUCTION_OPERATOR);
    SAME(REDUCTION_PREC, ATTR_REDUCTION_COMP_TYPE);
    SAME(OP_REDUCTION_X, ATTR_OPERATION_REDUCTION_XDESC);
    SAME(OP_REDUCTION_Y, ATTR_OPERATION_REDUCTION_YDESC);
    SAME(OP_REDUCTION_DESC, ATTR_OPERATION_REDUCTION_DESC);
    SAME(OP_RESHAPE_X, ATTR_OPERATION_RESHAPE_XDESC);
    SAME(OP_RESHAPE_Y, ATTR_OPERATION_RESHAPE_YDESC);
    SAME(DEVICEPROP_JSON, ATTR_DEVICEPROP_JSON_REPRESENTATION);
}

/* Enums go through int, booleans through bool. */
void cudnn_numbers_are_the_headers(void **state)
{
    (void)state;
    assert_int_equal(sizeof(cudnnBackendAttributeName_t), sizeof(int));
    assert_int_equal(sizeof(cudnnDataType_t), sizeof(int));
    assert_int_equal(sizeof(cudnnStatus_t), sizeof(int));
    values_are_the_same();
    types_are_the_same();
    attributes_are_the_same();
}
#else
void cudnn_numbers_are_the_headers(void **state)
{
    (void)state;
    skip();
}
#endif

/* --- the library ------------------------------------------------------------
 */

/* As cuDNN 9 writes it. */
static const char h200[] =
    "{\"cudaDeviceId\": 0, \"deviceVer\": 900, \"driverVer\": 13000, "
    "\"deviceName\": \"NVIDIA H200\", \"maxGridSize\": [2147483647, 65535, "
    "65535], \"maxBlockSize\": [1024, 1024, 64], \"regsPerBlock\": 65536, "
    "\"multiProcessorCount\": 132, \"warpSize\": 32, "
    "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": "
    "232448, \"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": "
    "65536, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "
    "\"maxThreadsPerSM\": 2048, \"pciDeviceId\": 0, \"isTccDriver\": 0, "
    "\"supportCoopLaunch\": 1, \"totalGlobalMem\": 150000000000, "
    "\"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000, "
    "\"l2CacheSize\": 62914560}";

/* cuDNN with that device; NULL: it is not installed, or there is nothing that
 * plays the driver's library. */
static struct merak_cudnn *open_real(void)
{
    struct merak_cudnn *c = NULL;
    struct merak_error err;

#ifdef __SANITIZE_ADDRESS__
    return NULL; /* it keeps memory of each answer, and unloads what took it */
#endif
    if (dlopen("libcuda.so.1", RTLD_NOW) == NULL &&
        dlopen("libcuda.so", RTLD_NOW) == NULL &&
        dlopen(MERAK_TEST_CUDA "/lib64/stubs/libcuda.so", RTLD_NOW) == NULL &&
        dlopen(MERAK_TEST_CUDA "/lib/stubs/libcuda.so", RTLD_NOW) == NULL)
        return NULL;
    if (merak_cudnn_open(MERAK_CUDNN_SONAME, h200, &c, &err) != MERAK_OK)
        return NULL;
    return c;
}

static struct merak_cudnn_shape shape_of(const int64_t size[6], bool packed,
                                         bool backward)
{
    struct merak_cudnn_shape s = {
        .B = size[0], .T = size[1], .H = size[2], .G = size[3], .D = size[4]};

    s.window = size[5];
    s.scale = 0.125;
    s.q_row = s.H * s.D * (packed ? 3 : 1);
    s.k_row = s.v_row = s.G * s.D * (packed ? 3 : 1);
    s.o_row = s.H * s.D;
    if (backward) {
        s.backward = 1;
        s.d_o_row = s.o_row;
        s.dq_row = s.q_row;
        s.dk_row = s.dv_row = s.k_row;
    }
    return s;
}

/* There are ways within the memory that is planned, each of which can be asked
 * for again by what is written down of it. */
static void check_ways(struct merak_cudnn *c,
                       const struct merak_cudnn_shape *shape)
{
    struct merak_error err = {.text = ""};
    struct merak_cudnn_way way[8];
    enum merak_status rc;
    char text[160];
    int n = 0;

    merak_cudnn_name_shape(shape, text, sizeof(text));
    rc = merak_cudnn_ways(c, shape, merak_cudnn_most_bytes(shape, shape->B),
                          way, 8, &n, &err);
    if (rc != MERAK_OK || n == 0)
        print_error("%s: %s\n", text, err.text);
    assert_int_equal(rc, MERAK_OK);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        int64_t bytes = -1;

        rc = merak_cudnn_ask_bytes(c, shape, &way[i], &bytes, &err);
        if (rc != MERAK_OK)
            print_error("%s: %s\n", text, err.text);
        assert_int_equal(rc, MERAK_OK);
        assert_int_equal(bytes, way[i].workspace_bytes);
    }
}

void cudnn_takes_the_graphs(void **state)
{
    static const int64_t sizes[][6] = {
        {16, 1024, 25, 25, 64, 0}, {1, 1024, 12, 12, 64, 0},
        {1, 2048, 32, 8, 64, 0},   {1, 4096, 32, 8, 128, 1024},
        {2, 1000, 12, 12, 80, 0},  {1, 129, 3, 3, 24, 0},
        {1, 7, 3, 1, 8, 0},        {1, 200, 4, 2, 256, 0}};
    struct merak_cudnn *c = open_real();

    (void)state;
    if (c == NULL)
        skip();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int kind = 0; kind < 4; kind++) {
            bool packed = kind % 2 != 0 && sizes[i][2] == sizes[i][3];
            struct merak_cudnn_shape shape =
                shape_of(sizes[i], packed, kind / 2 != 0);

            check_ways(c, &shape);
        }
    }
    merak_cudnn_close(c);
}
