/* SPDX-License-Identifier: Apache-2.0 */
/* link_comms.c - which communicators a rank needs, and how their members meet
 *
 * Each rank knows only its own communicators.  The first member of each makes
 * its id; ids are allgathered with a key for what they are for, and the other
 * members look theirs up in the first member's card.
 */
#include "config.h"

#include "runtime/link/link_impl.h"

#include "base/error.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

/* What NCCL allocates for a communicator of all its channels: 544 MiB with two
 * ranks and 688 MiB with more on four A100s (NCCL's issue 964).  It grows with
 * the channels, and messages of a pair have few (PAIR_CTAS). */
const struct merak_comms_cost merak_link_comms_cost = {.group = 640 * 0x1p20,
                                                       .pair = 160 * 0x1p20};

/* --- which ------------------------------------------------------------------
 */

/* The order is the same on all ranks, so joining in it cannot deadlock. */
static int compare(const void *a, const void *b)
{
    const struct link_comm *x = a, *y = b;

    if (x->pair != y->pair)
        return x->pair ? 1 : -1;
    if (x->flow != y->flow)
        return x->flow < y->flow ? -1 : 1;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    for (int i = 0; i < x->n; i++) {
        if (x->rank[i] != y->rank[i])
            return x->rank[i] < y->rank[i] ? -1 : 1;
    }
    return 0;
}

/* Add a communicator unless it is there; rank is copied. */
static enum merak_status add(struct merak_link *link,
                             const struct link_comm *like,
                             struct merak_error *err)
{
    size_t ranks = (size_t)like->n * sizeof(*like->rank);
    struct link_comm *grown;

    for (int i = 0; i < link->n_comms; i++) {
        if (compare(&link->comm[i], like) == 0)
            return MERAK_OK;
    }
    grown =
        realloc(link->comm, ((size_t)link->n_comms + 1) * sizeof(*link->comm));
    if (grown == NULL)
        return merak_fail_nomem(err, sizeof(*grown));
    link->comm = grown;
    grown = &grown[link->n_comms];
    *grown = *like;
    grown->rank = malloc(ranks);
    if (grown->rank == NULL)
        return merak_fail_nomem(err, ranks);
    memcpy(grown->rank, like->rank, ranks);
    link->n_comms++;
    return MERAK_OK;
}

static enum merak_status add_team(struct merak_link *link,
                                  const struct merak_group *group,
                                  const int *transport_rank,
                                  struct merak_error *err)
{
    struct link_comm like = {.n = group->n, .me = group->me};
    enum merak_status rc;

    if (group->n < 2)
        return MERAK_OK;
    like.rank = malloc((size_t)group->n * sizeof(*like.rank));
    if (like.rank == NULL)
        return merak_fail_nomem(err, (size_t)group->n * sizeof(*like.rank));
    for (int i = 0; i < group->n; i++)
        like.rank[i] = transport_rank[group->rank[i]];
    rc = add(link, &like, err);
    free(like.rank);
    return rc;
}

static enum merak_status add_pair(struct merak_link *link, int me, int peer,
                                  const struct merak_instr *message,
                                  struct merak_error *err)
{
    bool sends = message->kind == MERAK_INSTR_SEND;
    int rank[2] = {sends ? me : peer, sends ? peer : me};
    const struct link_comm like = {.pair = true,
                                   .flow = (int)merak_message_flow(message),
                                   .n = 2,
                                   .me = sends ? 0 : 1,
                                   .rank = rank};

    return add(link, &like, err);
}

static enum merak_status find_in(struct merak_link *link,
                                 const struct merak_program *p,
                                 const int *transport_rank,
                                 struct merak_error *err)
{
    int me = transport_rank[p->rank];
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < p->n_instrs && rc == MERAK_OK; i++) {
        const struct merak_instr *in = &p->instr[i];

        if (in->kind == MERAK_INSTR_EXCHANGE)
            rc = add_team(link, &p->group[in->group], transport_rank, err);
        else if (in->kind == MERAK_INSTR_SEND || in->kind == MERAK_INSTR_RECV)
            rc = add_pair(link, me, transport_rank[in->peer], in, err);
    }
    return rc;
}

enum merak_status merak_link_find_comms(struct merak_link *link,
                                        const struct merak_link_options *opt,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    for (int p = 0; p < opt->n_programs && rc == MERAK_OK; p++)
        rc = find_in(link, opt->program[p], opt->transport_rank, err);
    if (rc == MERAK_OK && link->n_comms > 0)
        qsort(link->comm, (size_t)link->n_comms, sizeof(*link->comm), compare);
    return rc;
}

enum merak_status merak_link_memory(const struct merak_link_options *opt,
                                    int *comms_p, size_t *bytes_p,
                                    struct merak_error *err)
{
    struct merak_link link = {.n_comms = 0};
    enum merak_status rc = merak_link_find_comms(&link, opt, err);
    struct merak_comms comms = {0};

    for (int i = 0; i < link.n_comms; i++)
        *(link.comm[i].pair ? &comms.pairs : &comms.groups) += 1;
    if (rc == MERAK_OK) {
        *comms_p = link.n_comms;
        *bytes_p = (size_t)merak_comms_bytes(comms, &merak_link_comms_cost);
    }
    merak_link_free_comms(&link);
    return rc;
}

void merak_link_free_comms(struct merak_link *link)
{
    for (int i = 0; i < link->n_comms; i++) {
        if (link->comm[i].comm != NULL)
            link->ops->leave(link->comm[i].comm);
        free(link->comm[i].rank);
    }
    free(link->comm);
}

/* --- ids --------------------------------------------------------------------
 */

/* As many as fit in a card of the boot. */
#define IDS_AT_ONCE 30

struct card {
    int n; /* that this rank made, in all rounds */
    struct {
        uint64_t key;
        struct merak_link_id id;
    } made[IDS_AT_ONCE];
};
_Static_assert(sizeof(struct card) <= 4096, "a boot's card has 4096 bytes");

/* A key that identifies a communicator among those of one first member. */
static uint64_t key_of(const struct link_comm *c)
{
    uint64_t key =
        merak_rng_mix((uint64_t)(c->pair ? 1 + c->flow : 0), (uint64_t)c->n);

    for (int i = 0; i < c->n; i++)
        key = merak_rng_mix(key, (uint64_t)c->rank[i]);
    return key;
}

/* A failure is returned after the last round, since all ranks take part in all
 * rounds. */
static enum merak_status make_ids(struct merak_link *link, int *n_p,
                                  struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    *n_p = 0;
    for (int i = 0; i < link->n_comms; i++) {
        if (link->comm[i].me != 0)
            continue;
        (*n_p)++;
        if (rc == MERAK_OK)
            rc = link->ops->make_id(link->library, &link->comm[i].id, err);
    }
    return rc;
}

/* The ids that this rank made, from number `first` of a round on. */
static void fill_card(const struct merak_link *link, int first, int made,
                      struct card *card)
{
    int at = 0;

    memset(card, 0, sizeof(*card));
    card->n = made;
    for (int i = 0; i < link->n_comms; i++) {
        const struct link_comm *c = &link->comm[i];

        if (c->me != 0)
            continue;
        if (at >= first && at < first + IDS_AT_ONCE) {
            card->made[at - first].key = key_of(c);
            card->made[at - first].id = c->id;
        }
        at++;
    }
}

/* Take the ids that others made, of this round; returns how many were
 * found. */
static int read_cards(struct merak_link *link, const struct card *cards,
                      int first)
{
    int found = 0;

    for (int i = 0; i < link->n_comms; i++) {
        struct link_comm *c = &link->comm[i];
        const struct card *card = &cards[c->rank[0]];
        int left = card->n - first;

        for (int k = 0; c->me != 0 && k < left && k < IDS_AT_ONCE; k++) {
            if (card->made[k].key != key_of(c))
                continue;
            c->id = card->made[k].id;
            found++;
        }
    }
    return found;
}

static int most_made(const struct card *cards, int size)
{
    int most = 0;

    for (int r = 0; r < size; r++)
        most = cards[r].n > most ? cards[r].n : most;
    return most;
}

static enum merak_status share(struct merak_link *link, struct merak_boot *boot,
                               int made, struct card *cards,
                               struct merak_error *err)
{
    struct card *mine = &cards[boot->size];
    int missing = link->n_comms - made, most = 1;
    enum merak_status rc = MERAK_OK;

    for (int first = 0; first < most && rc == MERAK_OK; first += IDS_AT_ONCE) {
        fill_card(link, first, made, mine);
        rc = boot->ops->allgather(boot, mine, sizeof(*mine), cards, err);
        if (rc != MERAK_OK)
            break;
        most = most_made(cards, boot->size);
        missing -= read_cards(link, cards, first);
    }
    if (rc == MERAK_OK && missing != 0)
        rc = merak_fail(err, MERAK_ERR_CORRUPT,
                        "%d of %d communicators are not known to their first "
                        "members: the ranks' programs do not fit together",
                        missing, link->n_comms);
    return rc;
}

enum merak_status merak_link_share_ids(struct merak_link *link,
                                       struct merak_boot *boot,
                                       struct merak_error *err)
{
    size_t n = (size_t)boot->size + 1;
    struct card *cards = calloc(n, sizeof(*cards));
    int made = 0;
    enum merak_status rc = make_ids(link, &made, err);

    if (rc == MERAK_OK && cards == NULL)
        rc = merak_fail_nomem(err, n * sizeof(*cards));
    rc = merak_boot_agree(boot, rc, err);
    if (rc == MERAK_OK)
        rc = share(link, boot, made, cards, err);
    free(cards);
    return merak_boot_agree(boot, rc, err);
}
