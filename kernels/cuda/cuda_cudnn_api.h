/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn_api.h - the part of cuDNN's interface that is used
 *
 * cuDNN is opened at run time, so its headers are not needed to build Merak:
 * these are Merak's own declarations of the interface of libcudnn.so.9.
 * tests/unit/kernels/test_cudnn.c compares them with cudnn_graph.h if that is
 * installed.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_API_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

/* cudnnStatus_t; thousands are its category. */
enum {
    MERAK_CUDNN_OK = 0,
    MERAK_CUDNN_NOT_SUPPORTED = 3000,
    MERAK_CUDNN_INTERNAL_ERROR = 4000
};

/* cudnnDataType_t */
enum {
    MERAK_CUDNN_FLOAT = 0,
    MERAK_CUDNN_HALF = 2,
    MERAK_CUDNN_INT32 = 4,
    MERAK_CUDNN_BFLOAT16 = 9,
    MERAK_CUDNN_BOOLEAN = 11
};

/* cudnnBackendAttributeType_t: the type of an attribute's elements */
enum {
    MERAK_CUDNN_TYPE_HANDLE = 0,
    MERAK_CUDNN_TYPE_DATA_TYPE = 1,
    MERAK_CUDNN_TYPE_BOOLEAN = 2,
    MERAK_CUDNN_TYPE_INT64 = 3,
    MERAK_CUDNN_TYPE_VOID_PTR = 6,
    MERAK_CUDNN_TYPE_HEUR_MODE = 8,
    MERAK_CUDNN_TYPE_KNOB_TYPE = 9,
    MERAK_CUDNN_TYPE_NUMERICAL_NOTE = 11,
    MERAK_CUDNN_TYPE_POINTWISE_MODE = 14,
    MERAK_CUDNN_TYPE_DESCRIPTOR = 15,
    MERAK_CUDNN_TYPE_REDUCTION = 18,
    MERAK_CUDNN_TYPE_CHAR = 24
};

/* cudnnBackendDescriptorType_t */
enum {
    MERAK_CUDNN_POINTWISE = 0,
    MERAK_CUDNN_ENGINE = 2,
    MERAK_CUDNN_ENGINECFG = 3,
    MERAK_CUDNN_ENGINEHEUR = 4,
    MERAK_CUDNN_PLAN = 5,
    MERAK_CUDNN_KNOB_CHOICE = 7,
    MERAK_CUDNN_OP_POINTWISE = 13,
    MERAK_CUDNN_GRAPH = 15,
    MERAK_CUDNN_PACK = 16,
    MERAK_CUDNN_TENSOR = 17,
    MERAK_CUDNN_MATMUL = 18,
    MERAK_CUDNN_OP_MATMUL = 19,
    MERAK_CUDNN_REDUCTION = 21,
    MERAK_CUDNN_OP_REDUCTION = 22,
    MERAK_CUDNN_OP_RESHAPE = 31,
    MERAK_CUDNN_DEVICEPROP = 38
};

/* cudnnBackendAttributeName_t */
enum {
    MERAK_CUDNN_POINTWISE_MODE = 0,
    MERAK_CUDNN_POINTWISE_PREC = 1,
    MERAK_CUDNN_POINTWISE_AXIS = 9,
    MERAK_CUDNN_HEUR_MODE = 200,
    MERAK_CUDNN_HEUR_GRAPH = 201,
    MERAK_CUDNN_HEUR_RESULTS = 202,
    MERAK_CUDNN_HEUR_DEVICEPROP = 204,
    MERAK_CUDNN_CFG_ENGINE = 300,
    MERAK_CUDNN_CFG_KNOBS = 302,
    MERAK_CUDNN_CFG_WORKSPACE = 303,
    MERAK_CUDNN_PLAN_HANDLE = 400,
    MERAK_CUDNN_PLAN_CFG = 401,
    MERAK_CUDNN_PLAN_WORKSPACE = 402,
    MERAK_CUDNN_PLAN_DEVICEPROP = 407,
    MERAK_CUDNN_KNOB_TYPE = 600,
    MERAK_CUDNN_KNOB_VALUE = 601,
    MERAK_CUDNN_OP_POINTWISE_DESC = 750,
    MERAK_CUDNN_OP_POINTWISE_X = 751,
    MERAK_CUDNN_OP_POINTWISE_B = 752,
    MERAK_CUDNN_OP_POINTWISE_Y = 753,
    MERAK_CUDNN_OP_POINTWISE_T = 758,
    MERAK_CUDNN_GRAPH_HANDLE = 800,
    MERAK_CUDNN_GRAPH_OPS = 801,
    MERAK_CUDNN_TENSOR_ALIGNMENT = 900,
    MERAK_CUDNN_TENSOR_TYPE = 901,
    MERAK_CUDNN_TENSOR_DIMS = 902,
    MERAK_CUDNN_TENSOR_STRIDES = 903,
    MERAK_CUDNN_TENSOR_UID = 906,
    MERAK_CUDNN_TENSOR_VIRTUAL = 907,
    MERAK_CUDNN_TENSOR_BY_VALUE = 908,
    MERAK_CUDNN_PACK_UIDS = 1000,
    MERAK_CUDNN_PACK_POINTERS = 1001,
    MERAK_CUDNN_PACK_WORKSPACE = 1003,
    MERAK_CUDNN_ENGINE_GRAPH = 1300,
    MERAK_CUDNN_ENGINE_INDEX = 1301,
    MERAK_CUDNN_ENGINE_NOTES = 1303,
    MERAK_CUDNN_ENGINE_DEVICEPROP = 1307,
    MERAK_CUDNN_MATMUL_PREC = 1500,
    MERAK_CUDNN_OP_MATMUL_A = 1520,
    MERAK_CUDNN_OP_MATMUL_B = 1521,
    MERAK_CUDNN_OP_MATMUL_C = 1522,
    MERAK_CUDNN_OP_MATMUL_DESC = 1523,
    MERAK_CUDNN_REDUCTION_OPERATOR = 1600,
    MERAK_CUDNN_REDUCTION_PREC = 1601,
    MERAK_CUDNN_OP_REDUCTION_X = 1610,
    MERAK_CUDNN_OP_REDUCTION_Y = 1611,
    MERAK_CUDNN_OP_REDUCTION_DESC = 1612,
    MERAK_CUDNN_OP_RESHAPE_X = 2200,
    MERAK_CUDNN_OP_RESHAPE_Y = 2201,
    MERAK_CUDNN_DEVICEPROP_JSON = 2702
};

/* cudnnPointwiseMode_t */
enum {
    MERAK_CUDNN_ADD = 0,
    MERAK_CUDNN_MUL = 1,
    MERAK_CUDNN_DIV = 6,
    MERAK_CUDNN_SUB = 9,
    MERAK_CUDNN_EXP = 13,
    MERAK_CUDNN_LOG = 15,
    MERAK_CUDNN_CMP_GT = 302,
    MERAK_CUDNN_CMP_GE = 303,
    MERAK_CUDNN_GEN_INDEX = 501,
    MERAK_CUDNN_SELECT = 601
};

/* cudnnReduceTensorOp_t */
enum { MERAK_CUDNN_REDUCE_ADD = 0, MERAK_CUDNN_REDUCE_MAX = 3 };

/* cudnnBackendNumericalNote_t */
enum {
    MERAK_CUDNN_NOTE_DOWN_CONVERT = 1,
    MERAK_CUDNN_NOTE_REDUCED_SUMS = 2,
    MERAK_CUDNN_NOTE_NONDETERMINISTIC = 4,
    MERAK_CUDNN_NOTES = 32 /* more than exist */
};

/* cudnnBackendHeurMode_t: the best guess, which is fast */
enum { MERAK_CUDNN_HEUR_A = 3 };

/* more than exist in cudnnBackendKnobType_t */
enum { MERAK_CUDNN_KNOBS = 64 };

/* A descriptor is a void *, and so are a handle and a stream. */
struct merak_cudnn_calls {
    size_t (*version)(void); /* 91900 is 9.19.0 */
    const char *(*error_string)(int status);
    void (*last_error)(char *text, size_t bytes); /* of this thread */
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*desc_create)(int type, void **desc);
    int (*desc_destroy)(void *desc);
    int (*desc_set)(void *desc, int name, int type, int64_t n,
                    const void *element);
    /* n  out  number of elements; at most `asked` are written */
    int (*desc_get)(const void *desc, int name, int type, int64_t asked,
                    int64_t *n, void *element);
    int (*desc_finalize)(void *desc);
    int (*execute)(void *handle, void *plan, void *pack);
};

#endif
