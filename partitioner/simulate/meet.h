/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/meet.h - which instructions of several programs are one
 * event: the two ends of a transfer, or the members of a collective
 */
#ifndef MERAK_PARTITIONER_SIMULATE_MEET_H
#define MERAK_PARTITIONER_SIMULATE_MEET_H

#include "partitioner/program/program.h"

struct merak_match {
    uint64_t tag;
    int first, second; /* sender and receiver, or the group's first rank and
                          minus its size; with the tag, this is the key */
    int n_all;         /* members among the programs */
    int n_here;        /* members that have arrived so far */
    double latest_s;
    struct merak_member {
        int program, instr;
    } * at; /* [n_all] */
    struct merak_match *next;
};

struct merak_meet;

enum merak_status merak_meet_create(struct merak_program *const *programs,
                                    int n, struct merak_meet **meet_p,
                                    struct merak_error *err) MERAK_CHECKED;
void merak_meet_destroy(struct merak_meet *meet);
/* Index of the program of a rank, or -1 if it is not among them. */
int merak_meet_program(const struct merak_meet *meet, int rank);
/* The event an instruction is a part of; NULL if it has no peers among the
 * programs. */
struct merak_match *merak_meet_find(struct merak_meet *meet, int program,
                                    const struct merak_instr *instr);
/* Nobody has arrived. */
void merak_meet_restart(struct merak_meet *meet);
/* Arrive as its next member; NULL if all have arrived or there is no event. */
const struct merak_match *merak_meet_arrive(struct merak_meet *meet,
                                            int program,
                                            const struct merak_instr *instr,
                                            double at_s);

#endif
