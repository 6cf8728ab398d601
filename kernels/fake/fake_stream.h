/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/fake/fake_stream.h - a queue of the fake device, for libraries
 *
 * What merak_accel_ops.stream() gives where merak_accel_ops.streams is
 * MERAK_FAKE_STREAMS: a library that puts work of its own into queues can be
 * played without a GPU.
 */
#ifndef MERAK_KERNELS_FAKE_FAKE_STREAM_H
#define MERAK_KERNELS_FAKE_FAKE_STREAM_H

#define MERAK_FAKE_STREAMS "fake"

struct merak_fake_stream {
    /* Call fn(arg) behind what is in the queue, on the queue's thread; not 0:
     * the device has failed, and it will not be called.  What is queued is
     * called also if the device fails first: it may own something. */
    int (*call)(struct merak_fake_stream *stream, void (*fn)(void *arg),
                void *arg);
    /* Where the bytes of a device address are, for fn(). */
    void *(*bytes)(struct merak_fake_stream *stream, const void *address);
};

#endif
