/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/accel.h - a backend with its own memory, queues and events
 *
 * The engine's interface to an accelerator.  The host does not address its
 * memory; work is put into queues, each of which runs in order and concurrently
 * with the others; events order one queue after another and let the host see
 * what is over.
 *
 * The rules are those of CUDA streams:
 *   - a call returns when its work is queued, not when it is done;
 *   - host memory that write() reads or read() fills is borrowed until an
 *     event recorded after the call is over;
 *   - waiting for an event that was never recorded does not wait: the caller
 *     has to make sure that record() was called before;
 *   - after a failure in a queue, every later call and query fails with the
 *     first failure's text, and queued work may not have run.
 *
 * Functions may be called from several threads, but one queue is used by one
 * thread at a time.  Only open, alloc, the create and capture calls, tune, the
 * first launch of a shape and the first use of a queue allocate.
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

#define MERAK_FUSED_MAX 5 /* calls that are run as one */

/* `n` arrays of `count` elements, one from each member of a group, that are
 * reduced to one: element by element in member order, on any device.  The array
 * of member `me` is `mine`; those of the others are in `staged`, `stride` bytes
 * apart, in member order without `me`.  bf16 is summed in f32 and rounded once;
 * a maximum with a NaN is a NaN. */
struct merak_accel_terms {
    int n, me;
    const void *mine, *staged;
    size_t stride, count;
    enum merak_dtype dtype; /* f32, bf16, f64 or i32 */
    bool max;               /* else the sum */
};

/* A device that this process may open. */
struct merak_accel_device {
    int number;
    char name[64]; /* "NVIDIA H200" */
    char bus[16];  /* its PCI address, "0000:1b:00.0": the same for two tasks
                      that see one device under different numbers */
    char uuid[48]; /* the vendor's id, "GPU-5c2e..."; "" if there is none */
    int numa;      /* the nearest NUMA node, or -1 */
};

/* What a library is handed for a queue. */
enum merak_streams {
    MERAK_STREAMS_NONE,
    MERAK_STREAMS_CUDA, /* a cudaStream_t */
    MERAK_STREAMS_FAKE, /* struct merak_fake_stream */
};

/* The most that open() is asked for: what a process of CUDA has at most
 * (CUDA_DEVICE_MAX_CONNECTIONS) without sharing. */
enum { MERAK_ACCEL_QUEUES = 32 };

struct merak_accel_ops {
    /* List the devices that this process may open; n_p  out  their number, at
     * most max.  The error says why none can be used; on success its text says
     * why one is left out, or is empty.  NULL: there is one, private to this
     * process. */
    enum merak_status (*devices)(struct merak_accel_device *device, int max,
                                 int *n_p, struct merak_error *err);
    /* Describe one of these devices for users, and any problem that does not
     * prevent its use; "" for none.  NULL: nothing is known. */
    void (*facts)(int device, char *text, size_t bytes, char *warning,
                  size_t warning_bytes);
    /* Open a device with queues 0 .. queues-1, MERAK_ACCEL_QUEUES at most, for
     * a rank of `threads` host threads.  device: its number, 0 if devices is
     * NULL. */
    enum merak_status (*open)(int device, int queues, int threads,
                              struct merak_accel **accel_p,
                              struct merak_error *err);
    /* Wait for all queued work, then free everything; takes NULL. */
    void (*close)(struct merak_accel *accel);

    /* Allocate device memory, 256-byte aligned, not cleared.  MERAK_ERR_NOMEM
     * names the amount that was available. */
    enum merak_status (*alloc)(struct merak_accel *accel, size_t bytes,
                               void **address_p, struct merak_error *err);
    void (*free)(struct merak_accel *accel, void *address);
    /* Free and total bytes of its memory.  NULL: it uses the host's memory. */
    enum merak_status (*memory)(struct merak_accel *accel, size_t *left_p,
                                size_t *all_p, struct merak_error *err);
    /* Describe the device for users.  NULL: no description. */
    void (*describe)(struct merak_accel *accel, char *text, size_t bytes);
    /* Pin host memory that is often copied from or to: until unpin() or close()
     * such copies may run asynchronously.  false: not possible; copies still
     * work.  Memory is pinned at most once; unpin() takes the address given to
     * pin().  Both NULL: pinning has no effect. */
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
    /* Reduce terms to one; `to` may be terms->mine. */
    enum merak_status (*combine)(struct merak_accel *accel, int queue, void *to,
                                 const struct merak_accel_terms *terms,
                                 struct merak_error *err);

    /* For libraries that put their own work into queues: the kind of handle,
     * and a queue's.  stream() makes the device current in the calling thread.
     * NONE and NULL: there are none. */
    enum merak_streams streams;
    void *(*stream)(struct merak_accel *accel, int queue);

    /* Record in the event all that is in the queue now; recording again
     * replaces that. */
    enum merak_status (*record)(struct merak_accel *accel, int queue,
                                struct merak_event *event,
                                struct merak_error *err);
    /* Make later work in the queue run after the event's last record. */
    enum merak_status (*wait)(struct merak_accel *accel, int queue,
                              struct merak_event *event,
                              struct merak_error *err);
    /* MERAK_OK: the recorded work is over; MERAK_IN_PROGRESS; or the device's
     * failure. */
    enum merak_status (*query)(struct merak_accel *accel,
                               struct merak_event *event,
                               struct merak_error *err);

    /* --- times: both NULL if the device has none -------------------------- */

    /* Create an event, like event_create(), whose records have a time. */
    enum merak_status (*timer_create)(struct merak_accel *accel,
                                      struct merak_event **event_p,
                                      struct merak_error *err);
    /* Time from one timer's record to another's; both have to be over. */
    enum merak_status (*elapsed)(struct merak_accel *accel,
                                 struct merak_event *from,
                                 struct merak_event *to, int64_t *ns_p,
                                 struct merak_error *err);

    /* --- choices made by timing: all NULL if there are none --------------- */

    /* Time the available algorithms for a call, on its operands, and keep the
     * fastest; tell() gets a line of text for each choice. */
    enum merak_status (*tune)(struct merak_accel *accel, int queue,
                              const struct merak_kernel *kernel,
                              const struct merak_kernel_call *call,
                              void (*tell)(void *arg, const char *line),
                              void *arg, struct merak_error *err);
    /* The device and libraries that such lines are valid for. */
    void (*tuned_for)(struct merak_accel *accel, char *text, size_t bytes);
    /* Apply a line, before the first launch; MERAK_ERR_FORMAT if it is not such
     * a line. */
    enum merak_status (*use_tuned)(struct merak_accel *accel, const char *line,
                                   struct merak_error *err);

    /* --- several calls of one kernel as one: all NULL if not supported ---- */

    /* Device memory for a table of these calls, which have no addresses yet;
     * 0: calls of this kernel are not batched.  Needs no device. */
    size_t (*table_bytes)(const struct merak_kernel *kernel,
                          const struct merak_kernel_call *const *call, int n);
    /* Create the table in that much device memory, 256-byte aligned.  The
     * calls, now with addresses and independent of one another, are copied;
     * attrs are borrowed.  Returns when the device has the table. */
    enum merak_status (*table_create)(
        struct merak_accel *accel, const struct merak_kernel *kernel,
        const struct merak_kernel_call *const *call, int n, void *memory,
        struct merak_table **table_p, struct merak_error *err);
    void (*table_destroy)(struct merak_accel *accel, struct merak_table *table);
    /* Run the calls in any order, all with this step, which is copied; results
     * are bit for bit those of single calls. */
    enum merak_status (*table_launch)(struct merak_accel *accel, int queue,
                                      struct merak_table *table,
                                      const struct merak_step *step,
                                      struct merak_error *err);

    /* --- consecutive calls as one: both NULL if not supported ------------- */

    /* How many of these calls, from the first on, are run as one; less than 2:
     * they are not.  n is at most MERAK_FUSED_MAX.  The calls have addresses
     * and read nothing of their step; what one of them writes is disjoint from
     * what the others read and write, or is exactly one of these operands, of
     * equal type and rows (merak_calls_do_not_alias()).  Needs no device. */
    int (*fusable)(const struct merak_kernel *const *kernel,
                   const struct merak_kernel_call *const *call, int n);
    /* Run as many calls as fusable() said, in this order or row by row; results
     * are bit for bit those of single calls.  Bit o of unread[i]: output o of
     * call i is read by no one but these calls, and need not be stored. */
    enum merak_status (*launch_fused)(
        struct merak_accel *accel, int queue,
        const struct merak_kernel *const *kernel,
        const struct merak_kernel_call *const *call, const unsigned *unread,
        int n, struct merak_error *err);

    /* --- repeated work: all NULL if not supported ------------------------- */

    /* Until capture_end() work given to the queue is not run but recorded:
     * launches, tables, fill and pack, with their present arguments. */
    enum merak_status (*capture_begin)(struct merak_accel *accel, int queue,
                                       struct merak_error *err);
    /* replay_p  out  what was recorded; nothing after a failure. */
    enum merak_status (*capture_end)(struct merak_accel *accel, int queue,
                                     struct merak_replay **replay_p,
                                     struct merak_error *err);
    /* Run what was recorded, in its order. */
    enum merak_status (*replay)(struct merak_accel *accel, int queue,
                                struct merak_replay *replay,
                                struct merak_error *err);
    void (*replay_destroy)(struct merak_accel *accel,
                           struct merak_replay *replay);
};

struct merak_accel {
    const struct merak_accel_ops *ops;
    size_t allocated; /* bytes that alloc() has returned so far, freed or not */
    /* About how many operations a queue holds.  A call that finds it full
     * blocks until one is over, and calls of other threads may, too.  0: any
     * number. */
    int depth;
};

/*
 * Copy a box of a row-major tensor into contiguous memory, both in host memory,
 * as pack() does on a device.
 */
void merak_pack_box(void *to, const void *from,
                    const struct merak_accel_box *box);
/* The reverse, as unpack() does. */
void merak_unpack_box(void *to, const struct merak_accel_box *box,
                      const void *from);
/* The same as combine(), in host memory. */
void merak_combine_terms(void *to, const struct merak_accel_terms *terms);
/*
 * May these calls be run row by row, each row through all of them, instead of
 * one after the other?  Is all that one of them writes, scratch included,
 * disjoint from what the others read and write, or exactly the place of one of
 * their operands, with rows of equal type, length and distance?
 */
bool merak_calls_do_not_alias(const struct merak_kernel_call *const *call,
                              int n);

#endif
