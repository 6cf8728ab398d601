/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/accel.h - a backend with memory, queues and events of its own
 *
 * What an accelerator is to the engine.  The host does not address its
 * memory; work is put into queues, each of which runs what it was given in
 * order and beside the others; events order one queue behind another and
 * tell the host what is over.
 *
 * The rules are those of CUDA streams:
 *   - a call returns when its work is queued, not when it is done;
 *   - host memory that write() reads or read() fills is borrowed until an
 *     event recorded behind the call is over;
 *   - waiting for an event that was never recorded is no wait at all: whoever
 *     waits has to know that record() was called;
 *   - after a failure in a queue, every later call and query fails with the
 *     first failure's text, and queued work may not have run.
 *
 * Functions may be called from several threads, but one queue is used by one
 * thread at a time.  Nothing but open, alloc and event_create allocates.
 */
#ifndef MERAK_KERNELS_ACCEL_H
#define MERAK_KERNELS_ACCEL_H

#include "merak/op.h"
#include "merak/status.h"

struct merak_kernel;
struct merak_accel;
struct merak_event;
struct merak_table;
struct merak_replay;

/* A part of a row-major tensor: element (lo[0]+i0, ..) of `full`, 0 <= i < len.
 */
struct merak_accel_box {
    int ndim;
    const size_t *full, *lo, *len; /* [ndim], borrowed for the call */
    size_t elem_bytes;
};

/* `n` arrays of `count` elements, one of each member of a group, that become
 * one: element by element in member order, whatever the device.  The piece of
 * member `me` is `mine`, the others' stand in `staged`, `stride` bytes apart,
 * in member order with `me` left out.  bf16 is summed in f32 and rounded once;
 * a maximum with a NaN is a NaN. */
struct merak_accel_pieces {
    int n, me;
    const void *mine, *staged;
    size_t stride, count;
    enum merak_dtype dtype; /* f32, bf16, f64 or i32 */
    bool max;               /* else the sum */
};

/* A device that this process may open, by its number. */
struct merak_accel_device {
    int number;
    char name[64]; /* "NVIDIA H200" */
    char bus[16];  /* where it is in the node, "0000:1b:00.0": two tasks that
                      see one device by two numbers see the same bus */
    char uuid[48]; /* what its maker calls it, "GPU-5c2e..."; "" if nothing */
    int numa;      /* the memory that it is next to, or -1 */
};

struct merak_accel_ops {
    /* The devices that this process may open; n_p  out  how many, at most
     * max.  Or why none can be used, in a sentence.  NULL: there is one, of
     * this process alone. */
    enum merak_status (*devices)(struct merak_accel_device *device, int max,
                                 int *n_p, struct merak_error *err);
    /* What a device of these is, for people to read, and what is wrong with it
     * that is no reason to refuse it; "" where there is nothing to say.  NULL:
     * nothing is known. */
    void (*facts)(int device, char *text, size_t bytes, char *warning,
                  size_t warning_bytes);
    /* A device with queues 0 .. queues-1, for a rank of `threads` host
     * threads.  device: its number, 0 where devices is NULL. */
    enum merak_status (*open)(int device, int queues, int threads,
                              struct merak_accel **accel_p,
                              struct merak_error *err);
    /* Wait for what is queued, then free all; NULL is fine. */
    void (*close)(struct merak_accel *accel);

    /* Device memory, 256-byte aligned, not cleared.  MERAK_ERR_NOMEM says how
     * much there was. */
    enum merak_status (*alloc)(struct merak_accel *accel, size_t bytes,
                               void **address_p, struct merak_error *err);
    void (*free)(struct merak_accel *accel, void *address);
    /* How much of its memory is left, and all of it.  NULL: it has none of its
     * own, and takes the host's. */
    enum merak_status (*memory)(struct merak_accel *accel, size_t *left_p,
                                size_t *all_p, struct merak_error *err);
    /* What it is, for people to read.  NULL: nothing to say. */
    void (*describe)(struct merak_accel *accel, char *text, size_t bytes);
    /* Copies from and to this memory of the host will be many: until unpin()
     * or close() they may run beside the host.  false: that cannot be; they
     * still work.  Memory is pinned once at most; unpin() is given what pin()
     * was.  Both NULL: nothing would change. */
    bool (*pin)(struct merak_accel *accel, void *host, size_t bytes);
    void (*unpin)(struct merak_accel *accel, void *host);

    enum merak_status (*event_create)(struct merak_accel *accel,
                                      struct merak_event **event_p,
                                      struct merak_error *err);
    void (*event_destroy)(struct merak_accel *accel, struct merak_event *event);

    /* Run a kernel.  The call and its step are copied; operands and scratch
     * are device addresses. */
    enum merak_status (*launch)(struct merak_accel *accel, int queue,
                                const struct merak_kernel *kernel,
                                const struct merak_kernel_call *call,
                                struct merak_error *err);
    /* Host to device, and back. */
    enum merak_status (*write)(struct merak_accel *accel, int queue, void *to,
                               const void *from, size_t bytes,
                               struct merak_error *err);
    enum merak_status (*read)(struct merak_accel *accel, int queue, void *to,
                              const void *from, size_t bytes,
                              struct merak_error *err);
    /* Set every byte. */
    enum merak_status (*fill)(struct merak_accel *accel, int queue, void *to,
                              unsigned char byte, size_t bytes,
                              struct merak_error *err);
    /* Pack the box of `from` contiguously into `to`. */
    enum merak_status (*pack)(struct merak_accel *accel, int queue, void *to,
                              const void *from,
                              const struct merak_accel_box *box,
                              struct merak_error *err);

    /* Put contiguous `from` into the box of `to`. */
    enum merak_status (*unpack)(struct merak_accel *accel, int queue, void *to,
                                const struct merak_accel_box *box,
                                const void *from, struct merak_error *err);
    /* Make one of pieces; `to` may be pieces->mine. */
    enum merak_status (*combine)(struct merak_accel *accel, int queue, void *to,
                                 const struct merak_accel_pieces *pieces,
                                 struct merak_error *err);

    /* For libraries that put work of their own into queues: what kind of
     * handles stream() gives, "cuda" for a cudaStream_t, and a queue's.  The
     * calling thread is set to the device.  Both NULL: there are none. */
    const char *streams;
    void *(*stream)(struct merak_accel *accel, int queue);

    /* The event stands for all that is in the queue now; recorded again, it
     * stands for that alone. */
    enum merak_status (*record)(struct merak_accel *accel, int queue,
                                struct merak_event *event,
                                struct merak_error *err);
    /* What comes next in the queue runs after the event's last record. */
    enum merak_status (*wait)(struct merak_accel *accel, int queue,
                              struct merak_event *event,
                              struct merak_error *err);
    /* MERAK_OK: what the event stands for is over; MERAK_IN_PROGRESS; or the
     * device's failure. */
    enum merak_status (*query)(struct merak_accel *accel,
                               struct merak_event *event,
                               struct merak_error *err);

    /* --- times: both NULL, the device has none ---------------------------- */

    /* An event, as event_create() makes, whose records have a time. */
    enum merak_status (*timer_create)(struct merak_accel *accel,
                                      struct merak_event **event_p,
                                      struct merak_error *err);
    /* From one timer's record to another's, both over. */
    enum merak_status (*elapsed)(struct merak_accel *accel,
                                 struct merak_event *from,
                                 struct merak_event *to, int64_t *ns_p,
                                 struct merak_error *err);

    /* --- choices that are made by time: all NULL, there are none ---------- */

    /* Time the ways there are to do a call, on the operands it has, and keep
     * the fastest; tell() is given a line of text for each choice. */
    enum merak_status (*tune)(struct merak_accel *accel, int queue,
                              const struct merak_kernel *kernel,
                              const struct merak_kernel_call *call,
                              void (*tell)(void *arg, const char *line),
                              void *arg, struct merak_error *err);
    /* What such lines are good for: a device and its libraries. */
    void (*tuned_for)(struct merak_accel *accel, char *text, size_t bytes);
    /* Do as a line says, before the first launch; MERAK_ERR_FORMAT if it is no
     * such line. */
    enum merak_status (*use_tuned)(struct merak_accel *accel, const char *line,
                                   struct merak_error *err);

    /* --- several calls of one kernel as one: all NULL, there is no such --- */

    /* Device memory for a table of these calls, which have no addresses yet;
     * 0: calls of this kernel are not put together.  Needs no device. */
    size_t (*table_bytes)(const struct merak_kernel *kernel,
                          const struct merak_kernel_call *const *call, int n);
    /* The table, in so much device memory, 256-byte aligned.  The calls, whose
     * addresses are known and none of which needs another's results, are
     * copied; attrs are borrowed.  Returns when the device has it. */
    enum merak_status (*table_create)(
        struct merak_accel *accel, const struct merak_kernel *kernel,
        const struct merak_kernel_call *const *call, int n, void *memory,
        struct merak_table **table_p, struct merak_error *err);
    void (*table_destroy)(struct merak_accel *accel, struct merak_table *table);
    /* Run the calls in any order, all with this step, which is copied; the
     * bits are those of single calls. */
    enum merak_status (*table_launch)(struct merak_accel *accel, int queue,
                                      struct merak_table *table,
                                      const struct merak_step *step,
                                      struct merak_error *err);

    /* --- work that is repeated: all NULL, there is no such ---------------- */

    /* Until capture_end() what is given to the queue is not run but kept:
     * launches, tables, fill and pack, with their arguments as they are. */
    enum merak_status (*capture_begin)(struct merak_accel *accel, int queue,
                                       struct merak_error *err);
    /* replay_p  out  what was kept; after a failure nothing is. */
    enum merak_status (*capture_end)(struct merak_accel *accel, int queue,
                                     struct merak_replay **replay_p,
                                     struct merak_error *err);
    /* Run what was kept, in its order. */
    enum merak_status (*replay)(struct merak_accel *accel, int queue,
                                struct merak_replay *replay,
                                struct merak_error *err);
    void (*replay_destroy)(struct merak_accel *accel,
                           struct merak_replay *replay);
};

struct merak_accel {
    const struct merak_accel_ops *ops;
    size_t allocated; /* bytes that alloc() has given so far, freed or not */
};

/*
 * Copy a box of a row-major tensor into contiguous memory; both are host
 * memory.  What pack() of a device does.
 */
void merak_pack_box(void *to, const void *from,
                    const struct merak_accel_box *box);
/* The other way: what unpack() does. */
void merak_unpack_box(void *to, const struct merak_accel_box *box,
                      const void *from);
/* What combine() does, in host memory. */
void merak_combine_pieces(void *to, const struct merak_accel_pieces *pieces);

#endif
