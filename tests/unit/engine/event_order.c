/* SPDX-License-Identifier: Apache-2.0 */
/* event_order.c - are events of transfers asked for in the order of their
 * queues?  For one device of a process. */
#include "config.h"

#include "unit/engine/event_order.h"
#include "unit/test_ranks.h"

#include "partitioner/program/streams.h"

#include <pthread.h>
#include <string.h>

#define MOST_EVENTS 4096

static struct {
    pthread_mutex_t lock;
    const struct merak_accel_ops *ops;
    struct {
        const struct merak_event *event;
        int queue, number; /* of its last record, in its queue */
    } known[MOST_EVENTS];
    int n, records[MERAK_STREAMS];
    int pending[MERAK_STREAMS]; /* number that was found not over; 0: none */
    int asked, early;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int find_seen(const struct merak_event *event)
{
    for (int i = 0; i < seen.n; i++) {
        if (seen.known[i].event == event)
            return i;
    }
    CHECK(seen.n < MOST_EVENTS);
    seen.known[seen.n].event = event;
    return seen.n++;
}

static enum merak_status see_record(struct merak_accel *a, int queue,
                                    struct merak_event *event,
                                    struct merak_error *err)
{
    int i;

    pthread_mutex_lock(&seen.lock);
    i = find_seen(event);
    seen.known[i].queue = queue;
    seen.known[i].number = ++seen.records[queue];
    pthread_mutex_unlock(&seen.lock);
    return seen.ops->record(a, queue, event, err);
}

static enum merak_status see_query(struct merak_accel *a,
                                   struct merak_event *event,
                                   struct merak_error *err)
{
    enum merak_status rc = seen.ops->query(a, event, err);
    int i, queue, number, *pending;

    pthread_mutex_lock(&seen.lock);
    i = find_seen(event);
    queue = seen.known[i].queue;
    number = seen.known[i].number;
    pending = &seen.pending[queue];
    if (merak_queue_exchanges((enum merak_queue)queue) ||
        queue >= MERAK_QUEUE_COUNT) {
        seen.asked++;
        seen.early += *pending > 0 && number > *pending;
        if (rc == MERAK_IN_PROGRESS && (*pending == 0 || number < *pending))
            *pending = number;
        else if (rc == MERAK_OK && number >= *pending)
            *pending = 0;
    }
    pthread_mutex_unlock(&seen.lock);
    return rc;
}

void event_order_watch(struct merak_accel *a)
{
    static struct merak_accel_ops ops;

    seen.ops = a->ops;
    ops = *a->ops;
    ops.record = see_record;
    ops.query = see_query;
    a->ops = &ops;
    seen.n = seen.asked = seen.early = 0;
    memset(seen.records, 0, sizeof(seen.records));
    memset(seen.pending, 0, sizeof(seen.pending));
}

int event_order_early(void)
{
    if (seen.early > 0)
        fprintf(stderr, "%d of %d queries are early\n", seen.early, seen.asked);
    return seen.early;
}
