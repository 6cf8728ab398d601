/* SPDX-License-Identifier: Apache-2.0 */
/* event_order.h - are events of transfers asked for in the order of their
 * queues? */
#ifndef MERAK_TESTS_EVENT_ORDER_H
#define MERAK_TESTS_EVENT_ORDER_H

#include "kernels/accel.h"

/* Watch a device's records and queries from now on. */
void event_order_watch(struct merak_accel *a);
/* Queries, so far, of an event behind one of its queue that was known not to be
 * over; prints how many of how many. */
int event_order_early(void);

#endif
