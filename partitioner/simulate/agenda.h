/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/agenda.h - queue of events, the earliest first */
#ifndef MERAK_PARTITIONER_SIMULATE_AGENDA_H
#define MERAK_PARTITIONER_SIMULATE_AGENDA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct merak_event {
    double at_s;
    int program, instr;
};

/* A binary heap. */
struct merak_agenda {
    struct merak_event *event; /* [n] */
    size_t n;
};

/* Room for `most` events at a time. */
enum merak_status merak_agenda_init(struct merak_agenda *agenda, size_t most,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_agenda_fini(struct merak_agenda *agenda);
void merak_agenda_add(struct merak_agenda *agenda, struct merak_event event);
/* False if there is none. */
bool merak_agenda_first(const struct merak_agenda *agenda,
                        struct merak_event *event_p);
/* Remove the first one. */
void merak_agenda_drop(struct merak_agenda *agenda);

#endif
