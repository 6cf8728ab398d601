/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/player.h - a schedule's lists of actions, played
 *
 * An action starts when its stage is free and its inputs have arrived.  A
 * transfer starts when it was sent and its receive is posted, which programs do
 * one action ahead (emit.c): when the action before the one that reads it
 * starts.  Boundaries sent in parts are gathered when the stage is free.  A
 * sender continues at once; only with a lag (struct merak_sends) does it stop
 * until what it sent that many actions ago was taken.
 *
 * A block is a vocabulary-parallel layer of all stages.  Each stage runs its
 * share when its turn comes; a head's kernels wait for each other's results, so
 * that all begin when the last stage is ready.  A block's result is ready when
 * all have finished.  Its input is passed from stage to stage, on from each as
 * soon as it arrives.
 *
 * Lists hold every required action, after those of its own stage that it needs:
 * merak_timetable_run() checks that.  The play ends when no stage can continue;
 * if one has not finished its list by then, stages wait for each other,
 * whatever the durations.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_PLAYER_H
#define MERAK_PARTITIONER_SCHEDULE_PLAYER_H

#include "partitioner/schedule/action_lists.h"

/* Of a part, in any unit of time, for one unit of the lists. */
struct merak_part_cost {
    double f;
    double b, b_recomputing; /* with W unless that is separate */
    double w, r;
    /* Transfers across its lower end, of forwards and backwards.  Negative:
     * nothing crosses there that is waited for. */
    double up, down;
    double up_gather, down_gather; /* gathers after them */
    /* Of a block: from when the last stage begins until the result for a unit
     * is ready. */
    double f_latency, b_latency;
};

struct merak_play_cost {
    const struct merak_part_cost *part;
    double recycled;   /* to the next pass, from the last part to the first */
    const double *hop; /* [block][stage]: passing a block's input to a stage */
    bool unposted; /* receives are posted from the start, not one ahead */
    bool all_meet; /* every action of a block waits for all stages, not only
                      a head's forward */
    /* How much longer than f a part's first forward on a stage takes if it
     * starts at `at`; or NULL. */
    double (*first_more)(const void *arg, int stage, int part, double at);
    const void *arg;
};

/* The same action of a block on a unit, on all stages. */
struct merak_meeting {
    double at; /* when the last stage that has reached it could start */
    int n;     /* stages that have reached it */
};

/* Who receives what an action sends to another stage. */
struct merak_taker {
    int stage, at; /* the reader, in that stage's list; stage -1: nobody */
    double hop;
};

/* Sends that the sender waits for. */
struct merak_sends {
    int lag;                   /* what action i sends is taken before action
                                  i + lag starts; 0: nobody waits for that */
    struct merak_taker *taker; /* [stages][room] */
    int *n_taken;              /* by stage: actions whose sends are complete */
    double *taken;             /* by stage: when the last of them was */
};

struct merak_player {
    const struct merak_lists *lists;
    struct merak_play_cost cost;
    struct merak_sends *sends; /* or NULL */
    double *start, *finish;    /* [stages][room]: of actions; or NULL */
    /* Of the latest play: */
    int *next;      /* by stage: how many actions were played */
    double *end;    /* by stage: of the last action */
    double *before; /* by stage: when the next one's receive is posted */
    double *made;   /* by part: when its last weight gradient was made */
    /* Scratch: */
    double *f_end, *b_end; /* [part][unit][pass], [part][unit], or < 0 */
    struct merak_meeting *meeting; /* [block][unit], forward and backward */
    double *came;                  /* [block][unit][stage]: its input, or < 0 */
    bool *waits; /* by stage: it has reached a block and waits for others */
};

/* Room to play lists, or lists of the same stages with fewer units; the caller
 * fills in the rest.  False when out of memory; call fini() even then. */
bool merak_player_init(struct merak_player *player,
                       const struct merak_lists *lists);
void merak_player_fini(struct merak_player *player);
/* Play player->lists. */
void merak_play(struct merak_player *player);
/* Has every stage finished its list? */
bool merak_play_is_over(const struct merak_player *player);

#endif
