/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_cudnn.h - attention by cuDNN, where it is wanted and can
 *
 * The module's own kernels have all of attention; cuDNN has a part of it,
 * perhaps faster.  Which of the two has a shape follows from what all ranks
 * know, so that they agree: the shape, MERAK_CUDA_ATTENTION, and what a
 * calibration measured (struct merak_cudnn_choice).  Nothing is timed in a run.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_CUDNN_H
#define MERAK_KERNELS_CUDA_CUDA_CUDNN_H

#include "kernels/cuda/cuda_cudnn_graph.h"
#include "merak/op.h"
#include "merak/status.h"

#define MERAK_CUDNN_SONAME "libcudnn.so.9"
#define MERAK_CUDNN_VARIABLE "MERAK_CUDA_ATTENTION"
#define MERAK_CUDNN_DEFAULT "auto" /* its value where it is not set */
#define MERAK_CUDNN_ALIGN 256 /* of the workspace, bytes */

/* MERAK_CUDNN_VARIABLE: the same for all ranks, which compare it. */
enum merak_cudnn_mode {
    MERAK_CUDNN_MODE_AUTO, /* what was measured to be faster, or own */
    MERAK_CUDNN_MODE_OWN,
    MERAK_CUDNN_MODE_CUDNN /* wherever cuDNN can */
};

/* How to compute: a plan of cuDNN's for some samples at once. */
struct merak_cudnn_way {
    int64_t samples;         /* of a call's, at once; it divides them */
    int64_t workspace_bytes; /* of such a plan, at most */
    int64_t version;         /* of the cuDNN that it is for; 0: of any */
    int64_t engine;          /* cuDNN's number of it; -1: its first answer */
    int64_t n_knobs;
    struct {
        int64_t type, value;
    } knob[MERAK_CUDNN_KNOBS];
};

/* What a calibration found to be faster. */
struct merak_cudnn_choice {
    struct merak_cudnn_shape shape;
    bool own;                   /* the own kernel */
    struct merak_cudnn_way way; /* else */
};

/* Operands' addresses, of the first sample. */
struct merak_cudnn_memory {
    void *at[MERAK_CUDNN_UIDS]; /* by uid; NULL: it has none */
    void *workspace;
};

/* --- cuda_cudnn_choice.c: no device is needed ------------------------------
 */

/* MERAK_ERR_PARAM if MERAK_CUDA_ATTENTION is no mode. */
enum merak_status merak_cudnn_mode(enum merak_cudnn_mode *mode_p,
                                   struct merak_error *err) MERAK_CHECKED;
/* Is it one of attention? */
bool merak_cudnn_is_op(const char *op);
/* What cuDNN would be asked for a call.  false: it has no such graph, and
 * `why`, which may be NULL, is a phrase: "in f32". */
bool merak_cudnn_shape_of(const char *op, const struct merak_kernel_call *call,
                          struct merak_cudnn_shape *shape, const char **why);
/* What a shape is, for people. */
void merak_cudnn_name_shape(const struct merak_cudnn_shape *shape, char *text,
                            size_t bytes);
/* Is cuDNN to have this shape, and how? */
bool merak_cudnn_wants(const struct merak_cudnn_shape *shape,
                       struct merak_cudnn_way *way);
/* What a plan of so many samples of a shape works in, at most; of plans that
 * take more the own kernel takes the place. */
int64_t merak_cudnn_most_bytes(const struct merak_cudnn_shape *shape,
                               int64_t samples);
/* Scratch of a call in this way, and, in it, what cuDNN works in: behind delta.
 */
size_t merak_cudnn_way_bytes(const struct merak_cudnn_shape *shape,
                             const struct merak_cudnn_way *way);
size_t merak_cudnn_delta_bytes(const struct merak_cudnn_shape *shape,
                               const struct merak_cudnn_way *way);
/* Scratch that a call needs beyond the own kernel's: 0 where that has it.
 * `own` is the own kernel's. */
size_t merak_cudnn_scratch(const char *op, const struct merak_kernel_call *call,
                           size_t own);

/* Where a call's operands are; its scratch is merak_cudnn_way_bytes(). */
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
/* One more, instead of one of its shape. */
enum merak_status merak_cudnn_add(const struct merak_cudnn_choice *choice,
                                  struct merak_error *err) MERAK_CHECKED;
/* Until it is said again, choices are these: scratch is asked where there is no
 * device and no context, so they are the process's.  Lines of other ops are
 * left out; MERAK_ERR_FORMAT if one is no choice. */
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
 *   properties  NULL; or a device that is not there, as cuDNN writes it down:
 *               then there are ways, but no plans
 */
enum merak_status merak_cudnn_open(const char *soname, const char *properties,
                                   struct merak_cudnn **cudnn_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_cudnn_close(struct merak_cudnn *cudnn);
int64_t merak_cudnn_version(const struct merak_cudnn *cudnn);

/*
 * Ways to compute a shape, the best guess first, of those that need at most
 * `most` bytes of workspace, give the same bits in each run as far as cuDNN
 * says, and are as exact as their operands.
 *
 *   n_p  out  how many, at most `max`; 0 with MERAK_OK: it has other ones only
 *
 * MERAK_ERR_UNSUPPORTED says what cuDNN refused.  Calls about one cuDNN come
 * one after the other.
 */
enum merak_status merak_cudnn_ways(struct merak_cudnn *cudnn,
                                   const struct merak_cudnn_shape *shape,
                                   int64_t most, struct merak_cudnn_way *way,
                                   int max, int *n_p,
                                   struct merak_error *err) MERAK_CHECKED;

/* What a way works in; way->workspace_bytes is not looked at. */
enum merak_status merak_cudnn_ask_bytes(struct merak_cudnn *cudnn,
                                        const struct merak_cudnn_shape *shape,
                                        const struct merak_cudnn_way *way,
                                        int64_t *bytes_p,
                                        struct merak_error *err) MERAK_CHECKED;

/* A plan of way->samples of a shape, with the way's engine. */
enum merak_status merak_cudnn_plan_create(
    struct merak_cudnn *cudnn, const struct merak_cudnn_shape *shape,
    const struct merak_cudnn_way *way, struct merak_cudnn_plan **plan_p,
    struct merak_error *err) MERAK_CHECKED;
void merak_cudnn_plan_destroy(struct merak_cudnn_plan *plan);

/* Queue a plan for a call's samples, part after part. */
enum merak_status merak_cudnn_run(const struct merak_cudnn_plan *plan,
                                  void *stream,
                                  const struct merak_cudnn_memory *memory,
                                  struct merak_error *err) MERAK_CHECKED;

/* --- cuda_cudnn_measure.c: choosing -----------------------------------------
 */

/* What measuring needs of a device.  Work is queued in one stream. */
struct merak_cudnn_bench {
    void *arg, *stream;
    /* Queue the own kernel. */
    enum merak_status (*own)(void *arg, const struct merak_kernel_call *call,
                             struct merak_error *err);
    void *(*alloc)(void *arg, size_t bytes); /* NULL: there is not so much */
    void (*free)(void *arg, void *memory);
    /* To the host, behind what is queued. */
    enum merak_status (*read)(void *arg, void *to, const void *from,
                              size_t bytes, struct merak_error *err);
    /* Milliseconds from begin() to the end of what was queued since. */
    enum merak_status (*begin)(void *arg, struct merak_error *err);
    enum merak_status (*end)(void *arg, float *ms_p, struct merak_error *err);
};

/*
 * Time the own kernel and cuDNN's ways for a call, whose shape is
 * choice->shape, on its operands; the rest of the choice is out.  A way is
 * taken that is faster by a fiftieth at least, gives the same bits twice, and
 * the own kernel's numbers as far as bf16 has them; of two as fast the one with
 * less memory.
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

/* Nothing is opened before a call wants it.  major: of the device's compute
 * capability; soname as above. */
enum merak_status
merak_cudnn_attention_create(const char *soname, int major,
                             struct merak_cudnn_attention **attention_p,
                             struct merak_error *err) MERAK_CHECKED;
void merak_cudnn_attention_destroy(struct merak_cudnn_attention *attention);

/*
 * Queue a call if cuDNN is to have it and can; else *done_p is false and
 * nothing was queued.  The first call of a shape makes its plan, or says once
 * why there is none.
 */
enum merak_status merak_cudnn_attend(struct merak_cudnn_attention *attention,
                                     const char *op,
                                     const struct merak_kernel_call *call,
                                     void *stream, bool *done_p,
                                     struct merak_error *err) MERAK_CHECKED;

/* May cuDNN have this shape on a device of this kind?  `why`, if not. */
bool merak_cudnn_may(const struct merak_cudnn_shape *shape, int64_t version,
                     int major, const char **why);
/* Measure a call, and have it be as was found from now on; *is_choice_p is
 * false if there is nothing to choose, or MERAK_CUDA_ATTENTION=own. */
enum merak_status merak_cudnn_tune(struct merak_cudnn_attention *attention,
                                   const struct merak_cudnn_bench *bench,
                                   const char *op,
                                   const struct merak_kernel_call *call,
                                   struct merak_cudnn_choice *choice,
                                   bool *is_choice_p,
                                   struct merak_error *err) MERAK_CHECKED;

#endif
