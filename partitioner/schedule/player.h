/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/schedule/player.h - a schedule's lists of actions, played
 *
 * An action starts when its stage is free and what it needs has come.  A
 * transfer starts when it was sent and its receive is posted, which programs do
 * one action ahead (emit.c): when the action before the one that reads it
 * starts.  Where parts of a boundary are gathered, that is when the stage is
 * free.  A sender goes on at once; only where send_lag says so it stops until
 * what it sent so many actions ago was taken.
 *
 * Of a block that all stages run together each does its share when its turn
 * comes; a head's kernels wait for one another's results, so that all begin
 * when the last stage has come.  What it makes is there when all have done
 * theirs.  Its input goes from stage to stage, on from each as soon as it is
 * there.
 *
 * Lists hold every action that there has to be, and after those of its own
 * stage that it needs: merak_timetable_run() checks that.  The play ends where
 * no stage gets any further; where one is then not through with its list,
 * stages wait for each other, whatever the durations.
 */
#ifndef MERAK_PARTITIONER_SCHEDULE_PLAYER_H
#define MERAK_PARTITIONER_SCHEDULE_PLAYER_H

#include "partitioner/schedule/action_lists.h"

/* In any unit of time, for one unit of the lists.  Arrays are by part where
 * nothing else is said. */
struct merak_play_cost {
    const double *f;
    const double *b, *b_recomputing; /* with W where that is not apart */
    const double *w, *r;
    /* Over a part's lower end, forwards and backwards.  Negative: nothing
     * crosses there that is waited for. */
    const double *up, *down;
    const double *up_gather, *down_gather; /* made whole behind it; or NULL */
    double recycled;   /* to the next pass, from the last part to the first */
    const double *hop; /* [block][stage]: a block's input, over the stage */
    /* By block: from when the last stage begins until what it makes of a unit
     * is there. */
    const double *f_latency, *b_latency;
    bool unposted; /* receives are posted from the start, not one ahead */
    bool all_meet; /* all that blocks do waits for all stages, not only a
                      head's forward */
    /* How much more than f a part's first forward on a stage takes that starts
     * at `at`; or NULL. */
    double (*first_more)(const void *arg, int stage, int part, double at);
    const void *arg;
};

/* What all stages do of a block for a unit. */
struct merak_meeting {
    double at; /* when the last of those that have come began */
    int n;     /* so many have */
};

/* Who receives what an action sends to another stage. */
struct merak_taker {
    int stage, at; /* the reader, in that stage's list; stage -1: nobody */
    double hop;
};

/* Sends that are waited for. */
struct merak_sends {
    int lag;                   /* what action i sends is taken before action
                                  i + lag starts; 0: nobody waits for that */
    struct merak_taker *taker; /* [stages][room] */
    int *n_taken;              /* by stage: actions whose sends are through */
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
    double *made;   /* by part: gradients of weights, of all units */
    /* Scratch: */
    double *f_end, *b_end; /* [part][unit][pass], [part][unit], or < 0 */
    struct merak_meeting *meeting; /* [block][unit], forward and backward */
    double *came;                  /* [block][unit][stage]: its input, or < 0 */
    bool *waits; /* by stage: for the others, as one that has come */
};

/* Room to play lists, or lists of the same stages with fewer units; the rest
 * is the caller's to fill in.  False when out of memory: fini() has to be
 * called all the same. */
bool merak_player_init(struct merak_player *player,
                       const struct merak_lists *lists);
void merak_player_fini(struct merak_player *player);
/* Play player->lists. */
void merak_play(struct merak_player *player);
/* Has every stage come to its list's end? */
bool merak_play_is_over(const struct merak_player *player);

#endif
