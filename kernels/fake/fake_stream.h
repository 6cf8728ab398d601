/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/fake/fake_stream.h - a queue of the fake device, for libraries
 *
 * The handle that merak_accel_ops.stream() returns if merak_accel_ops.streams
 * is MERAK_STREAMS_FAKE: it allows to emulate, without a GPU, a library that
 * puts its own work into queues.
 */
#ifndef MERAK_KERNELS_FAKE_FAKE_STREAM_H
#define MERAK_KERNELS_FAKE_FAKE_STREAM_H

struct merak_fake_stream {
    /* Call fn(arg) after all that is in the queue, on the queue's thread; not
     * 0: the device has failed, and fn is not called.  A queued fn is called
     * even if the device fails first, since it may own something. */
    int (*call)(struct merak_fake_stream *stream, void (*fn)(void *arg),
                void *arg);
    /* The bytes of a device address, for fn(). */
    void *(*bytes)(struct merak_fake_stream *stream, const void *address);
};

#endif
