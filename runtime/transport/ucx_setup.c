/* SPDX-License-Identifier: Apache-2.0 */
/* ucx_setup.c - the transport over UCX: its worker, and its peers' addresses
 *
 * There are two allgathers over the boot: first of a card with each rank's
 * status, so that all learn of a rank that could not make a worker, then of
 * the workers' addresses.
 */
#include "config.h"

#include "runtime/transport/ucx.h"

#include "base/error.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define CARD_MAX 4096
#define FIFO_ELEM_BYTES "4608" /* 4 KiB and headers */

/* The first card.  A rank that could not make a worker still sends one, so
 * that its peers fail instead of waiting. */
struct card {
    struct ucx_arena_card arena;
    struct merak_watch_card watch;
    uint32_t address_bytes;
    int32_t status;
};

static enum merak_status make_context(struct ucx *tr, struct merak_error *err)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES |
                      UCP_PARAM_FIELD_TAG_SENDER_MASK |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_PPN | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .tag_sender_mask = ((uint64_t)UCX_MAX_RANKS - 1) << 41,
        .estimated_num_eps = (size_t)tr->base.size,
        .estimated_num_ppn = (size_t)tr->boot->local_size,
        .name = "merak",
    };
    ucp_config_t *config = NULL;
    ucs_status_t st = ucp_config_read(NULL, NULL, &config);

    if (st != UCS_OK)
        return merak_ucx_fail(err, "ucp_config_read", st);
    st = ucp_init(&params, config, &tr->context);
    ucp_config_release(config);
    return st == UCS_OK ? MERAK_OK : merak_ucx_fail(err, "ucp_init", st);
}

static ucs_status_t set_am_handlers(struct ucx *tr)
{
    static const struct {
        unsigned id;
        ucp_am_recv_callback_t cb;
    } rows[] = {{UCX_AM_ABORT, merak_ucx_on_abort},
                {UCX_AM_ASK, merak_ucx_on_ask},
                {UCX_AM_TELL, merak_ucx_on_tell}};
    ucs_status_t st = UCS_OK;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && st == UCS_OK; i++) {
        ucp_am_handler_param_t handler = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                          UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG,
            .id = rows[i].id,
            .cb = rows[i].cb,
            .arg = tr,
        };

        st = ucp_worker_set_am_recv_handler(tr->worker, &handler);
    }
    return st;
}

static enum merak_status make_worker(struct ucx *tr, struct merak_error *err)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
    };
    ucs_status_t st = ucp_worker_create(tr->context, &params, &tr->worker);

    if (st != UCS_OK)
        return merak_ucx_fail(err, "ucp_worker_create", st);
    st = ucp_worker_get_efd(tr->worker, &tr->fd);
    if (st != UCS_OK)
        return merak_ucx_fail(err, "ucp_worker_get_efd", st);
    st = set_am_handlers(tr);
    if (st != UCS_OK)
        return merak_ucx_fail(err, "ucp_worker_set_am_recv_handler", st);
    return MERAK_OK;
}

/*
 * Messages this short go inside an element of the queue that UCX has in shared
 * memory: the receiver finds header and data in one place, which saves
 * fetching a buffer's cache lines from the other core.  UCX 1.13 takes the
 * size only from the environment, when the worker is made; a user's setting is
 * kept.
 */
static enum merak_status make_worker_with_wide_queues(struct ucx *tr,
                                                      struct merak_error *err)
{
    static const char *const name[] = {"UCX_POSIX_FIFO_ELEM_SIZE",
                                       "UCX_SYSV_FIFO_ELEM_SIZE"};
    bool ours[sizeof(name) / sizeof(*name)];
    enum merak_status rc;

    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++)
        ours[i] =
            getenv(name[i]) == NULL && setenv(name[i], FIFO_ELEM_BYTES, 0) == 0;
    rc = make_worker(tr, err);
    for (size_t i = 0; i < sizeof(name) / sizeof(*name); i++) {
        if (ours[i])
            unsetenv(name[i]);
    }
    return rc;
}

/* Addresses differ in length: all cards get the longest one's. */
static size_t longest_address(const struct card *cards, int n)
{
    size_t longest = 0;

    for (int r = 0; r < n; r++) {
        if (cards[r].address_bytes > longest)
            longest = cards[r].address_bytes;
    }
    return longest;
}

/*
 * The second card: one byte for whether this rank could map its node peers'
 * arenas, then the worker's address.
 */
static enum merak_status exchange_addresses(struct ucx *tr, const void *address,
                                            size_t bytes, bool mapped,
                                            struct merak_error *err)
{
    size_t stride = tr->address_bytes + 1, n = (size_t)tr->base.size;
    const int *node_of = tr->boot->node_of;
    char *mine = calloc(1, stride), *all = malloc(stride * n);
    bool usable = true;
    enum merak_status rc;

    if (mine == NULL || all == NULL) {
        rc = merak_fail_nomem(err, stride * n);
        goto out;
    }
    mine[0] = mapped;
    memcpy(mine + 1, address, bytes);
    rc = tr->boot->ops->allgather(tr->boot, mine, stride, all, err);
    if (rc != MERAK_OK)
        goto out;
    for (size_t r = 0; r < n; r++) {
        memcpy(tr->address + r * tr->address_bytes, all + r * stride + 1,
               tr->address_bytes);
        if (node_of[r] == node_of[tr->base.rank] && all[r * stride] == 0)
            usable = false;
    }
    if (!usable) /* the whole node must agree, or the two ends would differ */
        merak_ucx_unmap_arenas(tr);
out:
    free(mine);
    free(all);
    return rc;
}

static enum merak_status check_cards(const struct card *cards, int n,
                                     struct merak_error *err)
{
    for (int r = 0; r < n; r++) {
        if (cards[r].status != MERAK_OK)
            return merak_fail(err, MERAK_ERR_PEER,
                              "rank %d could not set up UCX: %s", r,
                              merak_status_name(cards[r].status));
    }
    return MERAK_OK;
}

/* The two allgathers of cards; address NULL: this rank failed with *err. */
static enum merak_status
allgather_cards(struct ucx *tr, struct card *cards,
                const struct merak_transport_options *opt, const void *address,
                size_t bytes, enum merak_status mine, struct merak_error *err)
{
    struct merak_error why;
    struct card card = {.address_bytes = (uint32_t)bytes};
    enum merak_status rc;
    bool mapped;

    if (mine == MERAK_OK)
        mine = merak_watch_open(tr->boot, &tr->watch, &card.watch, err);
    card.status = mine;
    merak_ucx_arena_card(opt, &card.arena);
    rc = tr->boot->ops->allgather(tr->boot, &card, sizeof(card), cards,
                                  mine == MERAK_OK ? err : NULL);
    if (mine != MERAK_OK)
        return mine;
    if (rc == MERAK_OK)
        rc = check_cards(cards, tr->base.size, err);
    if (rc != MERAK_OK)
        return rc;
    tr->address_bytes = longest_address(cards, tr->base.size);
    if (tr->address_bytes + 1 > CARD_MAX)
        return merak_fail(err, MERAK_ERR_FABRIC,
                          "a UCX address of %zu bytes, at most %d fit; choose "
                          "fewer devices with UCX_NET_DEVICES or UCX_TLS",
                          tr->address_bytes, CARD_MAX - 1);
    tr->address = malloc((size_t)tr->base.size * tr->address_bytes);
    if (tr->address == NULL)
        return merak_fail_nomem(err, tr->address_bytes);
    if (opt->arena_fd >= 0) {
        tr->arena[tr->base.rank].base = opt->arena;
        tr->arena[tr->base.rank].bytes = opt->arena_bytes;
    }
    mapped = merak_ucx_map_arenas(tr, &cards->arena, sizeof(*cards), &why) ==
             MERAK_OK;
    if (!mapped)
        merak_warn("ucx", "%s; node peers copy through UCX instead", why.text);
    merak_watch_connect(tr->watch, &cards->watch, sizeof(*cards));
    rc = exchange_addresses(tr, address, bytes, mapped, err);
    if (rc == MERAK_OK) /* all have connected */
        merak_watch_accept(tr->watch);
    return rc;
}

static enum merak_status exchange_cards(struct ucx *tr,
                                        const struct merak_transport_options *o,
                                        enum merak_status mine,
                                        struct merak_error *err)
{
    size_t n = (size_t)tr->base.size, bytes = 0;
    struct card *cards = calloc(n, sizeof(*cards));
    ucp_address_t *address = NULL;
    enum merak_status rc;
    ucs_status_t st;

    if (cards == NULL)
        return merak_fail_nomem(err, n * sizeof(*cards));
    if (mine == MERAK_OK) {
        st = ucp_worker_get_address(tr->worker, &address, &bytes);
        if (st != UCS_OK)
            mine = merak_ucx_fail(err, "ucp_worker_get_address", st);
    }
    rc = allgather_cards(tr, cards, o, address, bytes, mine, err);
    if (address != NULL)
        ucp_worker_release_address(tr->worker, address);
    free(cards);
    return rc;
}

enum merak_status merak_ucx_set_up(struct ucx *tr,
                                   const struct merak_transport_options *opt,
                                   struct merak_error *err)
{
    size_t n = (size_t)tr->base.size;
    enum merak_status rc;

    tr->first_asker = -1;
    merak_ucx_list_init(&tr->copying);
    merak_ucx_list_init(&tr->exchanging);
    tr->ep = calloc(n, sizeof(*tr->ep));
    tr->answer = calloc(n, sizeof(*tr->answer));
    tr->arena = calloc(n, sizeof(*tr->arena));
    tr->asked = calloc(n, sizeof(*tr->asked));
    tr->told = calloc(n, sizeof(*tr->told));
    rc = tr->ep == NULL || tr->answer == NULL || tr->arena == NULL ||
                 tr->asked == NULL || tr->told == NULL
             ? merak_fail_nomem(err, n * sizeof(*tr->arena))
             : make_context(tr, err);
    if (rc == MERAK_OK)
        rc = make_worker_with_wide_queues(tr, err);
    rc = exchange_cards(tr, opt, rc, err);
    return rc;
}
