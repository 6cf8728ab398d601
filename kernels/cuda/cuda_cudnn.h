/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn.h - attention by cuDNN, if requested and supported
 *
 * The module's own kernels support all of attention; cuDNN supports a part of
 * it, perhaps faster.  Which of the two runs a shape follows from what all
 * ranks know, so that they agree: the shape, MERAK_CUDA_ATTENTION, and what a
 * calibration measured (struct merak_cudnn_choice).  Nothing is timed in a run.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_H

#include "kernels/cuda/cuda_cudnn_graph.h"
#include "merak/op.h"
#include "merak/status.h"

#define MERAK_CUDNN_SONAME "libcudnn.so.9"
#define MERAK_CUDNN_VARIABLE "MERAK_CUDA_ATTENTION"
#define MERAK_CUDNN_DEFAULT "auto" /* its value if it is not set */
#define MERAK_CUDNN_ALIGN 256 /* of the workspace, bytes */

/* MERAK_CUDNN_VARIABLE: has to be the same for all ranks, which compare it. */
enum merak_cudnn_mode {
    MERAK_CUDNN_MODE_AUTO, /* the one that was measured to be faster, or own */
    MERAK_CUDNN_MODE_OWN,
    MERAK_CUDNN_MODE_CUDNN /* wherever cuDNN supports it */
};

/* A way to compute: an engine of cuDNN with knobs, for some samples at once. */
struct merak_cudnn_way {
    int64_t samples;         /* at once; divides the samples of a call */
    int64_t workspace_bytes; /* most that such a plan takes */
    int64_t version;         /* of cuDNN that it is for; 0: any */
    int64_t engine;          /* cuDNN's number; -1: its first answer */
    int64_t n_knobs;
    struct {
        int64_t type, value;
    } knob[MERAK_CUDNN_KNOBS];
};

/* What a calibration found to be faster. */
struct merak_cudnn_choice {
    struct merak_cudnn_shape shape;
    bool own;                   /* Merak's own kernel */
    struct merak_cudnn_way way; /* otherwise */
};

/* Addresses of operands, at the first sample. */
struct merak_cudnn_memory {
    void *at[MERAK_CUDNN_UIDS]; /* by uid; NULL: none */
    void *workspace;
};

/* --- cuda_cudnn_choice.c: no device is needed ------------------------------
 */

/* MERAK_ERR_PARAM if MERAK_CUDA_ATTENTION is not a mode. */
enum merak_status merak_cudnn_mode(enum merak_cudnn_mode *mode_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* Is it an op of attention? */
bool merak_cudnn_is_op(const char *op);
/* The shape of a call for cuDNN.  false: it has no graph for that, and `why`,
 * which may be NULL, is set to a phrase: "in f32". */
bool merak_cudnn_shape_of(const char *op, const struct merak_kernel_call *call,
                          struct merak_cudnn_shape *shape, const char **why);
/* Describe a shape for users. */
void merak_cudnn_name_shape(const struct merak_cudnn_shape *shape, char *text,
                            size_t bytes);
/* Is cuDNN to run this shape, and in which way? */
bool merak_cudnn_wants(const struct merak_cudnn_shape *shape,
                       struct merak_cudnn_way *way);
/* Upper bound of the workspace of a plan for `samples` samples; plans that take
 * more are replaced by the own kernel. */
int64_t merak_cudnn_most_bytes(const struct merak_cudnn_shape *shape,
                               int64_t samples);
/* Scratch bytes of a call in this way, and the bytes of delta in it, which the
 * workspace follows. */
size_t merak_cudnn_way_bytes(const struct merak_cudnn_shape *shape,
                             const struct merak_cudnn_way *way);
size_t merak_cudnn_delta_bytes(const struct merak_cudnn_shape *shape,
                               const struct merak_cudnn_way *way);
/* Scratch bytes of a call: at least `own`, those of the own kernel, and more if
 * cuDNN is to run it and needs more. */
size_t merak_cudnn_scratch(const char *op, const struct merak_kernel_call *call,
                           size_t own);

/* Addresses of a call's operands; its scratch has merak_cudnn_way_bytes(). */
void merak_cudnn_memory_of(const char *op, const struct merak_kernel_call *call,
                           const struct merak_cudnn_shape *shape,
                           const struct merak_cudnn_way *way,
                           struct merak_cudnn_memory *memory);
/* The same for the samples from `first` on. */
void merak_cudnn_memory_from(const struct merak_cudnn_shape *shape,
                             const struct merak_cudnn_memory *whole,
                             int64_t first, struct merak_cudnn_memory *part);

/* Choices as lines: "attention ..". */
bool merak_cudnn_is_line(const char *line);
void merak_cudnn_write(const struct merak_cudnn_choice *choice, char *line,
                       size_t bytes);
bool merak_cudnn_read(const char *line, struct merak_cudnn_choice *choice);
/* Add a choice, or replace the one of its shape. */
enum merak_status merak_cudnn_add(const struct merak_cudnn_choice *choice,
                                  struct merak_error *err) MERAK_CHECKED;
/* Replace all choices by these.  They are global, since scratch is planned
 * without a device or context.  Lines of other ops are ignored;
 * MERAK_ERR_FORMAT if a line is not a choice. */
enum merak_status merak_cudnn_use(const char *const *line, int n,
                                  struct merak_error *err) MERAK_CHECKED;

/* --- cuda_cudnn.c, cuda_cudnn_ways.c: the library, and its plans
 * -------------------------------
 */

struct merak_cudnn;
struct merak_cudnn_plan;

/*
 * Open cuDNN for the current device.
 *
 *   soname      MERAK_CUDNN_SONAME, or a path
 *   properties  NULL, or cuDNN's description of a device that is not present:
 *               ways are then available, but no plans
 */
enum merak_status merak_cudnn_open(const char *soname, const char *properties,
                                   struct merak_cudnn **cudnn_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_cudnn_close(struct merak_cudnn *cudnn);
int64_t merak_cudnn_version(const struct merak_cudnn *cudnn);

/*
 * Ways to compute a shape, the best guess first, that need at most `most` bytes
 * of workspace, are deterministic according to cuDNN, and are as exact as their
 * operands.
 *
 *   n_p  out  their number, at most `max`; 0 with MERAK_OK: it only has others
 *
 * MERAK_ERR_UNSUPPORTED says what cuDNN refused.  Not thread-safe for one
 * cuDNN.
 */
enum merak_status merak_cudnn_ways(struct merak_cudnn *cudnn,
                                   const struct merak_cudnn_shape *shape,
                                   int64_t most, struct merak_cudnn_way *way,
                                   int max, int *n_p,
                                   struct merak_error *err) MERAK_CHECKED;

/* Workspace bytes of a way; way->workspace_bytes is not read. */
enum merak_status merak_cudnn_ask_bytes(struct merak_cudnn *cudnn,
                                        const struct merak_cudnn_shape *shape,
                                        const struct merak_cudnn_way *way,
                                        int64_t *bytes_p,
                                        struct merak_error *err) MERAK_CHECKED;

/* Make a plan for way->samples samples of a shape, with the way's engine. */
enum merak_status merak_cudnn_plan_create(
    struct merak_cudnn *cudnn, const struct merak_cudnn_shape *shape,
    const struct merak_cudnn_way *way, struct merak_cudnn_plan **plan_p,
    struct merak_error *err) MERAK_CHECKED;
void merak_cudnn_plan_destroy(struct merak_cudnn_plan *plan);

/* Queue a plan for all samples of a call, part by part. */
enum merak_status merak_cudnn_run(const struct merak_cudnn_plan *plan,
                                  void *stream,
                                  const struct merak_cudnn_memory *memory,
                                  struct merak_error *err) MERAK_CHECKED;

/* --- cuda_cudnn_measure.c: choosing -----------------------------------------
 */

/* What measuring needs from a device.  Work is queued in one stream. */
struct merak_cudnn_bench {
    void *arg, *stream;
    /* Queue the own kernel. */
    enum merak_status (*own)(void *arg, const struct merak_kernel_call *call,
                             struct merak_error *err);
    void *(*alloc)(void *arg, size_t bytes); /* NULL: not enough memory */
    void (*free)(void *arg, void *memory);
    /* Read to the host, after all that is queued. */
    enum merak_status (*read)(void *arg, void *to, const void *from,
                              size_t bytes, struct merak_error *err);
    /* Milliseconds from begin() to the end of the work queued since. */
    enum merak_status (*begin)(void *arg, struct merak_error *err);
    enum merak_status (*end)(void *arg, float *ms_p, struct merak_error *err);
};

/*
 * Time the own kernel and cuDNN's ways for a call, whose shape is
 * choice->shape, on its operands; the rest of the choice is output.  A way is
 * chosen if it is at least 2 % faster, gives the same bits twice, and matches
 * the own kernel's results within bf16 precision; of two equally fast ones, the
 * one with less memory.
 */
enum merak_status merak_cudnn_measure(struct merak_cudnn *cudnn,
                                      const struct merak_cudnn_bench *bench,
                                      const char *op,
                                      const struct merak_kernel_call *call,
                                      struct merak_cudnn_choice *choice,
                                      struct merak_error *err) MERAK_CHECKED;

/* --- cuda_cudnn_attend.c: calls of kernels ---------------------------------
 */

struct merak_cudnn_attention;

/* cuDNN is only opened when a call needs it.  major: of the device's compute
 * capability; soname as above. */
enum merak_status
merak_cudnn_attention_create(const char *soname, int major,
                             struct merak_cudnn_attention **attention_p,
                             struct merak_error *err) MERAK_CHECKED;
void merak_cudnn_attention_destroy(struct merak_cudnn_attention *attention);

/*
 * Queue a call if cuDNN is to run it and can; otherwise *done_p is false and
 * nothing is queued.  The first call of a shape makes its plan, or logs why
 * there is none.
 */
enum merak_status merak_cudnn_attend(struct merak_cudnn_attention *attention,
                                     const char *op,
                                     const struct merak_kernel_call *call,
                                     void *stream, bool *done_p,
                                     struct merak_error *err) MERAK_CHECKED;

/* May cuDNN run this shape on such a device?  If not, *why is the reason. */
bool merak_cudnn_may(const struct merak_cudnn_shape *shape, int64_t version,
                     int major, const char **why);
/* Measure a call and use the result from now on; *is_choice_p is false if there
 * is nothing to choose, or with MERAK_CUDA_ATTENTION=own. */
enum merak_status merak_cudnn_tune(struct merak_cudnn_attention *attention,
                                   const struct merak_cudnn_bench *bench,
                                   const char *op,
                                   const struct merak_kernel_call *call,
                                   struct merak_cudnn_choice *choice,
                                   bool *is_choice_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
