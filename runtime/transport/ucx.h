/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/transport/ucx.h - the parts of the ucx transport
 *
 * A UCX tag is, from the top: 3 bits of kind, 20 of the sender's rank, 41 of
 * the user's tag (with the library's own, see transport_impl.h).
 */
#ifndef MERAK_RUNTIME_TRANSPORT_UCX_H
#define MERAK_RUNTIME_TRANSPORT_UCX_H

#include <ucp/api/ucp.h>

#include "runtime/boot/watch.h"
#include "runtime/transport/transport_impl.h"

#define UCX_MAX_RANKS (1 << 20)

/* Ids of active messages. */
#define UCX_AM_ABORT 1
#define UCX_AM_ASK 2
#define UCX_AM_TELL 3

enum ucx_kind {
    UCX_DATA,     /* the data, or a struct ucx_offer */
    UCX_ACK,      /* nothing: the offered data has been read */
    UCX_ANNOUNCE, /* see ucx_inplace.c */
    UCX_DONE,     /* nothing; likewise */
};

/* Where the receiver can read the data. */
struct ucx_offer {
    uint64_t magic;
    uint64_t offset, bytes; /* in the sender's arena */
};

/* A mapping of a rank's arena; base NULL: none. */
struct ucx_arena {
    char *base;
    size_t bytes;
};

enum ucx_state {
    UCX_POSTED,  /* posted to UCX */
    UCX_COPYING, /* recv of an offer: the data is being read */
};

struct ucx_request {
    struct merak_request base;
    struct ucx *tr;
    struct ucx_request *next;  /* in its list */
    struct ucx_request *older; /* in tr->all */
    enum ucx_state state;
    void *send, *recv; /* UCX's requests under way */
    char *buf;        /* of the receive posted */
    size_t expected;  /* its bytes */
    size_t copied;    /* recv of an offer */
    struct ucx_offer offer; /* sent or received */
    /* exchange; both are kept for reuse */
    struct merak_exchange_run *run;
    struct ucx_inplace *inplace;
    bool in_place; /* `inplace` is under way, else `run` */
    struct merak_exchange_args args;
};

struct ucx_list {
    struct ucx_request *first, **last;
};

struct ucx {
    struct merak_transport base;
    struct merak_boot *boot; /* borrowed */
    ucp_context_h context;
    ucp_worker_h worker;
    int fd;
    ucp_ep_h *ep;       /* [size], made on first use */
    ucp_ep_h *answer;   /* [size], likewise: to lower ranks of other nodes, for
                           answers to their messages */
    char *address;      /* [size * address_bytes] */
    size_t address_bytes;
    struct ucx_arena *arena; /* [size]: this rank's, and those of node peers
                                that all tasks of the node could map */
    struct ucx_request *all;      /* for close */
    /* Free requests; those of exchanges apart, since they keep what exchanges
     * allocated. */
    struct ucx_request *spare, *spare_exchange;
    struct ucx_list copying;      /* offers being read, oldest first */
    struct ucx_list exchanging;
    bool failed;        /* a peer is gone or a request was given up */
    bool closing;       /* endpoint errors are expected */
    struct merak_watch *watch;  /* of node peers' processes */
    ucs_status_ptr_t *told; /* [size]: failure notifications being sent, */
    char why[128]; /* with this text; fits any active message header */
    /* ucx_survey.c */
    bool *asked; /* [size] ranks that wait for an answer; n_asked of them */
    int n_asked;
    int first_asker; /* the lowest rank that ever asked, or -1 */
    int64_t answers_until_ns; /* when the last survey is over */
    int32_t own_rank;
    struct merak_told *survey; /* [size] under way, or NULL */
    char answer_text[MERAK_TELL_BYTES];
    struct merak_error aborted; /* the first; status MERAK_OK: none */
};

/* ucx.c */
/* Does UCX say by this that the connection to a peer is lost? */
bool merak_ucx_is_lost(ucs_status_t status);
/* Record that a peer is gone, since an operation with it ended with this. */
void merak_ucx_note_lost(struct ucx *tr, int peer, ucs_status_t status);
enum merak_status merak_ucx_fail(struct merak_error *err, const char *call,
                                 ucs_status_t status);
/* The endpoint to a rank, made on first use. */
enum merak_status merak_ucx_ep(struct ucx *tr, int peer, ucp_ep_h *ep_p,
                               struct merak_error *err) MERAK_CHECKED;

/* ucx_p2p.c */
enum merak_status merak_ucx_send(struct merak_transport *tr, const void *buf,
                                 size_t bytes, int peer, uint64_t tag,
                                 struct merak_request **req_p,
                                 struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_ucx_recv(struct merak_transport *tr, void *buf,
                                 size_t bytes, int peer, uint64_t tag,
                                 struct merak_request **req_p,
                                 struct merak_error *err) MERAK_CHECKED;
/* The same for short messages of another kind, which are always sent as
 * data. */
enum merak_status merak_ucx_send_kind(struct merak_transport *tr,
                                      const void *buf, size_t bytes, int peer,
                                      uint64_t tag, enum ucx_kind kind,
                                      struct merak_request **req_p,
                                      struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_ucx_recv_kind(struct merak_transport *tr, void *buf,
                                      size_t bytes, int peer, uint64_t tag,
                                      enum ucx_kind kind,
                                      struct merak_request **req_p,
                                      struct merak_error *err) MERAK_CHECKED;
/* A spare request of this kind, or a new one; NULL: no memory. */
struct ucx_request *merak_ucx_request_new(struct ucx *tr, const char *what,
                                          int peer, size_t bytes,
                                          uint64_t tag);
struct ucx_request *merak_ucx_request_exchange(struct ucx *tr, size_t bytes,
                                               uint64_t tag);
void merak_ucx_request_free(struct ucx_request *r);
void merak_ucx_list_init(struct ucx_list *list);
void merak_ucx_list_add(struct ucx_list *list, struct ucx_request *r);
/* Read a slice of the data that peers offered; tr->copying is not empty. */
void merak_ucx_copy_slice(struct ucx *tr);

/* ucx_inplace.c; as merak_exchange_run_*() of transport_impl.h */
struct ucx_inplace;

/* The answer is the same on all members. */
bool merak_ucx_inplace_suits(const struct merak_exchange_args *a);
struct ucx_inplace *merak_ucx_inplace_create(void);
/* Allocate all that runs in teams of n members need. */
enum merak_status merak_ucx_inplace_reserve(struct ucx_inplace *run, int n,
                                            struct merak_error *err)
    MERAK_CHECKED;
void merak_ucx_inplace_destroy(struct ucx_inplace *run);
enum merak_status merak_ucx_inplace_start(struct ucx_inplace *run,
                                          const struct merak_exchange_args *a,
                                          struct merak_error *err)
    MERAK_CHECKED;
/* MERAK_ERR_UNSUPPORTED: impossible with these operands; the same on all
 * members. */
enum merak_status merak_ucx_inplace_advance(struct ucx_inplace *run,
                                            struct merak_error *err)
    MERAK_CHECKED;
bool merak_ucx_inplace_is_busy(const struct ucx_inplace *run);

/* ucx_exchange.c */
enum merak_status merak_ucx_exchange(struct merak_transport *base,
                                     const struct merak_team *team,
                                     const struct merak_exchange *ex,
                                     const void *in, void *out, void *scratch,
                                     uint64_t tag, struct merak_request **req_p,
                                     struct merak_error *err) MERAK_CHECKED;
enum merak_status merak_ucx_reserve(struct merak_transport *base, int messages,
                                    int exchanges, int members,
                                    struct merak_error *err) MERAK_CHECKED;
/* Advance all exchanges; returns the number of events. */
unsigned merak_ucx_advance_exchanges(struct ucx *tr);
/* Has one of them work that does not wait for an event? */
bool merak_ucx_exchanges_busy(const struct ucx *tr);

/* ucx_setup.c: make context and worker and exchange addresses; base and boot
 * are set already.  If a rank fails, all do. */
enum merak_status merak_ucx_set_up(struct ucx *tr,
                                   const struct merak_transport_options *opt,
                                   struct merak_error *err) MERAK_CHECKED;

/* ucx.c: a peer has aborted */
ucs_status_t merak_ucx_on_abort(void *arg, const void *header,
                                size_t header_bytes, void *data, size_t bytes,
                                const ucp_am_recv_param_t *param);

/* ucx_survey.c */
ucs_status_t merak_ucx_on_ask(void *arg, const void *header,
                              size_t header_bytes, void *data, size_t bytes,
                              const ucp_am_recv_param_t *param);
ucs_status_t merak_ucx_on_tell(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param);
/* Answer the ranks that have asked; tr->n_asked > 0. */
void merak_ucx_answer(struct ucx *tr);
bool merak_ucx_survey(struct merak_transport *base, struct merak_told *told);

/* ucx_node.c: what peers need to map a rank's arena, and mapping theirs */
struct ucx_arena_card {
    uint64_t bytes; /* 0: none */
    uint64_t device, inode; /* to check that the right file was mapped */
    int64_t pid;
    int32_t fd;
};

void merak_ucx_arena_card(const struct merak_transport_options *opt,
                          struct ucx_arena_card *card);
/* Map what node peers offer; card[size] is `stride` bytes apart. */
enum merak_status merak_ucx_map_arenas(struct ucx *tr, const void *card,
                                       size_t stride,
                                       struct merak_error *err) MERAK_CHECKED;
void merak_ucx_unmap_arenas(struct ucx *tr);

#endif
