/* SPDX-License-Identifier: Apache-2.0 */
/* agenda.c - a heap of events */
#include "config.h"

#include "partitioner/simulate/agenda.h"

#include <stdlib.h>

enum merak_status merak_agenda_init(struct merak_agenda *agenda, size_t most,
                                    struct merak_error *err)
{
    agenda->n = 0;
    agenda->event = calloc(most + 1, sizeof(*agenda->event));
    if (agenda->event == NULL)
        return merak_fail_nomem(err, (most + 1) * sizeof(*agenda->event));
    return MERAK_OK;
}

void merak_agenda_fini(struct merak_agenda *agenda)
{
    free(agenda->event);
    *agenda = (struct merak_agenda){0};
}

void merak_agenda_add(struct merak_agenda *agenda, struct merak_event event)
{
    size_t at = agenda->n++;

    while (at > 0 && event.at_s < agenda->event[(at - 1) / 2].at_s) {
        agenda->event[at] = agenda->event[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    agenda->event[at] = event;
}

bool merak_agenda_first(const struct merak_agenda *agenda,
                        struct merak_event *event_p)
{
    if (agenda->n == 0)
        return false;
    *event_p = agenda->event[0];
    return true;
}

/* The last event is put on top and sifted down. */
void merak_agenda_drop(struct merak_agenda *agenda)
{
    struct merak_event last = agenda->event[--agenda->n];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < agenda->n) {
        if (child + 1 < agenda->n &&
            agenda->event[child + 1].at_s < agenda->event[child].at_s)
            child++;
        if (last.at_s <= agenda->event[child].at_s)
            break;
        agenda->event[at] = agenda->event[child];
        at = child;
    }
    agenda->event[at] = last;
}
