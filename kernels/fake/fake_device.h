/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/fake/fake_device.h - internal to the device made of threads */
#ifndef MERAK_KERNELS_FAKE_FAKE_DEVICE_H
#define MERAK_KERNELS_FAKE_FAKE_DEVICE_H

#include "kernels/accel.h"
#include "kernels/fake/fake_stream.h"
#include "kernels/kernels.h"

#include <pthread.h>

#define DEPTH 1024 /* operations a queue holds, as in CUDA */
#define MAX_BLOCKS 16
#define MAX_PINNED 64
#define DELAY_ONE_IN 8 /* fraction of operations that are delayed */
#define DELAY_MAX_US 100

enum kind {
    LAUNCH,
    TABLE,
    WRITE,
    READ,
    FILL,
    PACK,
    UNPACK,
    COMBINE,
    CALL,
    RECORD,
    WAIT
};

struct merak_event {
    uint64_t recorded;  /* records queued so far */
    uint64_t reached;   /* the last record that its queue reached */
    int64_t reached_ns; /* when, CLOCK_MONOTONIC */
    int users;          /* its creator and operations in queues; under lock */
};

/* What is left undefined by calls that are run as one. */
struct undefined {
    unsigned char *at; /* device address */
    size_t bytes;
};

struct op {
    enum kind kind;
    bool joined; /* the next one follows at once */
    int n_undefined;
    struct undefined undefined[MERAK_FUSED_MAX];
    void *to;
    const void *from;
    size_t bytes;
    unsigned char byte;
    struct merak_event *event;
    uint64_t record; /* number of the event's record for this operation */
    const struct merak_kernel *kernel;
    const struct merak_table *table;
    struct merak_kernel_call call;
    struct merak_step step;
    struct merak_accel_box box;
    size_t dims[3][MERAK_MAX_DIMS]; /* storage of box */
    struct merak_accel_terms terms;
    void (*fn)(void *arg); /* CALL */
    void *arg;
};

struct queue {
    struct merak_fake_stream stream;
    struct fake *owner;
    pthread_t thread;
    bool started;
    uint64_t put, taken; /* operations queued and finished, since open */
    pthread_cond_t given, taken_one; /* each has one thread that waits */
    bool joined;                     /* the last one to the next */
    uint64_t random;
    struct op *ring;
    struct merak_replay *capture; /* gets new operations; NULL: the ring */
};

/* Device memory: addresses that fault, and the bytes themselves. */
struct block {
    unsigned char *address, *bytes;
    size_t size;
};

/* Pinned host memory. */
struct pinned {
    const unsigned char *lo, *hi; /* NULL: free */
};

struct fake {
    struct merak_accel base;
    /* Held by a call that puts something into a queue, also while it waits for
     * room, and by queries. */
    pthread_mutex_t calls;
    pthread_mutex_t lock;   /* for all below, and for events */
    pthread_cond_t reached; /* an event was */
    bool closing;
    struct merak_error failure; /* the first one */
    struct block block[MAX_BLOCKS];
    struct pinned pinned[MAX_PINNED];
    int queues;
    struct queue *queue;
    pthread_mutex_t kernels; /* the thread pool runs one kernel at a time */
};

static inline struct fake *fake_of(struct merak_accel *accel)
{
    return (struct fake *)accel;
}

/* The next free operation of a queue, with both locks held; put_end() queues
 * it.  NULL after a failure. */
struct op *merak_fake_put_begin(struct fake *f, int queue, enum kind kind,
                                struct merak_error *err);
enum merak_status merak_fake_put_end(struct fake *f, int queue) MERAK_CHECKED;

/* --- fake_queue.c ----------------------------------------------------------
 */

/* The threads of all queues; the latter waits until all are empty, with the
 * device closing, and may follow a start that failed. */
enum merak_status
merak_fake_queues_start(struct fake *f, struct merak_error *err) MERAK_CHECKED;
void merak_fake_queues_close(struct fake *f);
/* The last user frees it.  Called with the lock held. */
void merak_fake_leave_event(struct merak_event *event);
/* Run a kernel on operands with device addresses, which get overwritten. */
enum merak_status merak_fake_kernel(struct fake *f,
                                    const struct merak_kernel *kernel,
                                    struct merak_kernel_call *call,
                                    const struct merak_step *step,
                                    struct merak_error *err) MERAK_CHECKED;

/* --- fake_memory.c: merak_accel_ops of these names, and helpers ------------
 */

enum merak_status merak_fake_alloc(struct merak_accel *accel, size_t bytes,
                                   void **address_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_fake_free(struct merak_accel *accel, void *address);
void merak_fake_free_all(struct fake *f);
/* The bytes of a device address.  NULL stays NULL; any other address is a
 * mistake of the caller, where a device would fault. */
void *merak_fake_bytes(struct fake *f, const void *address);
bool merak_fake_pin(struct merak_accel *accel, void *host, size_t bytes);
void merak_fake_unpin(struct merak_accel *accel, void *host);
/* As with CUDA, all or none of a copy's host memory has to be pinned. */
enum merak_status
merak_fake_check_pinned(struct fake *f, const void *host, size_t bytes,
                        struct merak_error *err) MERAK_CHECKED;

/* --- fake_repeat.c: merak_accel_ops of these names, and what they queue ----
 */

enum merak_status merak_fake_run_table(struct queue *q, const struct op *op,
                                       struct merak_error *err) MERAK_CHECKED;
/* Append an operation to a replay, with the lock held; NULL: out of memory. */
struct op *merak_fake_capture(struct merak_replay *replay);

enum merak_status merak_fake_elapsed(struct merak_accel *accel,
                                     struct merak_event *from,
                                     struct merak_event *to, int64_t *ns_p,
                                     struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_fake_tune(struct merak_accel *accel, int queue,
                                  const struct merak_kernel *kernel,
                                  const struct merak_kernel_call *call,
                                  void (*tell)(void *arg, const char *line),
                                  void *arg,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_fake_tuned_for(struct merak_accel *accel, char *text, size_t bytes);
enum merak_status merak_fake_use_tuned(struct merak_accel *accel,
                                       const char *line,
                                       struct merak_error *err) MERAK_CHECKED;
/* merak_backend.use_choices */
enum merak_status merak_fake_use_choices(const char *const *line, int n,
                                         struct merak_error *err) MERAK_CHECKED;
size_t merak_fake_table_bytes(const struct merak_kernel *kernel,
                              const struct merak_kernel_call *const *call,
                              int n);
enum merak_status merak_fake_table_create(
    struct merak_accel *accel, const struct merak_kernel *kernel,
    const struct merak_kernel_call *const *call, int n, void *memory,
    struct merak_table **table_p, struct merak_error *err) MERAK_CHECKED;
void merak_fake_table_destroy(struct merak_accel *accel,
                              struct merak_table *table);
enum merak_status merak_fake_table_launch(
    struct merak_accel *accel, int queue, struct merak_table *table,
    const struct merak_step *step, struct merak_error *err) MERAK_CHECKED;
int merak_fake_fusable(const struct merak_kernel *const *kernel,
                       const struct merak_kernel_call *const *call, int n);
enum merak_status
merak_fake_launch_fused(struct merak_accel *accel, int queue,
                        const struct merak_kernel *const *kernel,
                        const struct merak_kernel_call *const *call,
                        const unsigned *unread, int n,
                        struct merak_error *err) MERAK_CHECKED;
enum merak_status
merak_fake_capture_begin(struct merak_accel *accel, int queue,
                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_fake_capture_end(struct merak_accel *accel, int queue,
                                         struct merak_replay **replay_p,
                                         struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_fake_replay(struct merak_accel *accel, int queue,
                                    struct merak_replay *replay,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_fake_replay_destroy(struct merak_accel *accel,
                               struct merak_replay *replay);

#endif
