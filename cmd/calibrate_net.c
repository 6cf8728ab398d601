/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_net.c - time communication between nodes, and by a link inside
 *
 * One rank of each node, then all ranks at once, communicate as in steps with
 * the ranks of the same local number on other nodes: transfers around a ring
 * of all nodes, and all-reduces over all of them.  So the result is that of an
 * exchange over all nodes, far or near, and links carry bytes in both
 * directions.  The thread that waits for messages is woken by another one
 * before and wakes it afterwards, like the communication and compute threads
 * in a step.
 *
 * A link between accelerators moves the same sizes from device memory to device
 * memory.  As in a step the host queues ahead: each exchange or transfer waits
 * for the one before on the device, the host for the last one only.  Inside a
 * node all of its ranks are in one ring, and links get what is fitted.
 *
 * For each message size the median of several rounds is taken, each by its
 * slowest rank.  These are fitted with
 *
 *   seconds = rounds latency + bytes / rate
 *
 * with rounds and bytes as in level.c: one latency, the rate of
 * a rank that is alone on its node, and the total rate of a node's ranks.  The
 * latency minimizes the squares of relative errors, so that small messages
 * count as much as large ones; rates are such that the total time of all
 * sizes, dominated by the largest, is exact.
 */
#include "config.h"

#include "cmd/calibrate.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/progress.h"
#include "partitioner/refine/line.h"
#include "runtime/engine/engine.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* From the smallest all-reduce that uses two rounds. */
static const size_t sizes[] = {8 << 10, 32 << 10, 128 << 10, 512 << 10,
                               2 << 20, 8 << 20,  32 << 20};
#define SIZES ((int)(sizeof(sizes) / sizeof(*sizes)))
#define MOST_BYTES ((size_t)32 << 20)

#define TEST_S 0.03   /* spent on a size in each round */
#define LONGEST_S 0.5 /* no larger sizes are tested after this */
#define MOST_REPEATS 200.0
#define DEADLINE_S 60
/* The queues of a link's messages: one that waits holds up its queue. */
#define RECV_QUEUE MERAK_QUEUE_P2P
#define SEND_QUEUE MERAK_QUEUE_COPY

enum kind { TRANSFER, ALL_REDUCE, KINDS };
enum crowd { ALONE, TOGETHER, CROWDS };

/* One size of one kind, by one or all ranks of each node. */
struct test {
    enum kind kind;
    enum crowd crowd;
    size_t bytes;
    int repeats;     /* per round */
    double *seconds; /* [n] by round */
    int n;
    double least, median;
};

/* Sums over one crowd's tests. */
struct sums {
    struct merak_line line;
    double rounds, bytes, seconds;
};

struct net {
    struct calibrate_world *world;
    int rounds;
    bool inside;            /* a node, by a link */
    int crowds;             /* that are tested */
    struct merak_team team; /* ranks with this local number, one per node; or
                               the node's */
    int *member;            /* storage of it */
    double *of_rank;        /* [size] */
    double *seconds;        /* storage for all tests */
    struct test test[CROWDS * KINDS * SIZES];
    int n_tests;
    pthread_t waker; /* the other thread */
    int wake_fd[2];
    struct merak_exchange ex; /* of the test under way */
    /* with a link: the last one of each in its queue */
    struct merak_event *received, *sent;
    struct merak_error *err;
};

/* --- one exchange or transfer --------------------------------------------- */

/* Room for what is sent or reduced, and for what is received, or an
 * all-reduce's scratch: all members' cuts, each rounded up. */
static size_t arena_bytes(const struct net *net)
{
    return 2 * MOST_BYTES + (size_t)net->team.n * 128;
}

static enum merak_status make_exchange(struct net *net, size_t bytes)
{
    const struct merak_mesh mesh = {
        .n_axes = 1, .axis = {{.name = "dp", .size = net->team.n}}};
    const struct merak_layout from = {.at = {{MERAK_PARTIAL_SUM, -1}}};
    const struct merak_hop hop = {.kind = MERAK_CONVERT_ALL_REDUCE,
                                  .to = {.at = {{MERAK_REPLICATED, -1}}}};
    const struct merak_shape shape = {1, {bytes / sizeof(float)}};

    return merak_exchange_init(&net->ex, &mesh, &hop, &from, &shape, MERAK_F32,
                               &net->team.me, net->err);
}

static enum merak_status all_reduce(const struct net *net)
{
    const struct calibrate_world *w = net->world;
    char *data = w->arena.base;
    struct merak_request *req;
    enum merak_status rc =
        merak_exchange(w->tr, &net->team, &net->ex, data, data,
                       data + MOST_BYTES, 0, &req, net->err);

    return rc == MERAK_OK ? merak_request_wait(w->tr, req, net->err) : rc;
}

/* Send to the next node, receive from the one before. */
static enum merak_status transfer(const struct net *net, size_t bytes)
{
    struct merak_transport *tr = net->world->tr;
    char *data = net->world->arena.base;
    int to = calibrate_neighbour(&net->team, 1);
    int from = calibrate_neighbour(&net->team, -1);
    struct merak_request *send, *recv;
    enum merak_status rc;

    rc = merak_recv(tr, data + MOST_BYTES, bytes, from, 0, &recv, net->err);
    if (rc == MERAK_OK)
        rc = merak_send(tr, data, bytes, to, 0, &send, net->err);
    if (rc == MERAK_OK)
        rc = merak_request_wait(tr, recv, net->err);
    return rc == MERAK_OK ? merak_request_wait(tr, send, net->err) : rc;
}

/* --- the same by a link --------------------------------------------------- */

static enum merak_status queue_all_reduce(const struct net *net)
{
    const struct calibrate_world *w = net->world;
    char *data = w->device;
    const struct merak_link_call call = {.ex = &net->ex,
                                         .in = data,
                                         .out = data,
                                         .scratch = data + MOST_BYTES,
                                         .queue = MERAK_QUEUE_COLLECTIVE};
    enum merak_status rc = merak_link_exchange(
        w->link, merak_link_team(w->link, &net->team), &call, 1, net->err);

    return rc == MERAK_OK
               ? w->accel->ops->record(w->accel, MERAK_QUEUE_COLLECTIVE,
                                       net->received, net->err)
               : rc;
}

/* Queue a message behind the event; the next record of it is the message's. */
static enum merak_status queue_message(const struct net *net, int queue,
                                       const struct merak_link_message *message,
                                       struct merak_event *event)
{
    const struct calibrate_world *w = net->world;
    int me = w->boot->rank;
    int from = message->send ? me : calibrate_neighbour(&net->team, -1);
    int to = message->send ? calibrate_neighbour(&net->team, 1) : me;
    int comm = merak_link_pair(w->link, from, to, MERAK_FLOW_FORWARD);
    enum merak_status rc =
        merak_link_message(w->link, comm, queue, message, net->err);

    return rc == MERAK_OK
               ? w->accel->ops->record(w->accel, queue, event, net->err)
               : rc;
}

static enum merak_status queue_transfer(const struct net *net, size_t bytes)
{
    struct merak_accel *a = net->world->accel;
    char *data = net->world->device;
    const struct merak_link_message recv = {.at = data + MOST_BYTES,
                                          .bytes = bytes};
    const struct merak_link_message send = {
        .send = true, .at = data, .bytes = bytes};
    enum merak_status rc = a->ops->wait(a, RECV_QUEUE, net->sent, net->err);

    if (rc == MERAK_OK)
        rc = a->ops->wait(a, SEND_QUEUE, net->received, net->err);
    if (rc == MERAK_OK)
        rc = queue_message(net, RECV_QUEUE, &recv, net->received);
    return rc == MERAK_OK ? queue_message(net, SEND_QUEUE, &send, net->sent)
                          : rc;
}

/* Wait for what is queued. */
static enum merak_status finish(const struct net *net)
{
    struct merak_accel *a = net->world->accel;
    enum merak_status rc;

    if (net->world->link == NULL)
        return MERAK_OK;
    rc = merak_accel_wait(a, net->received, DEADLINE_S, NULL, net->err);
    return rc == MERAK_OK
               ? merak_accel_wait(a, net->sent, DEADLINE_S, NULL, net->err)
               : rc;
}

/* --- tests ---------------------------------------------------------------- */

static enum merak_status move(const struct net *net, const struct test *t)
{
    if (net->world->link != NULL)
        return t->kind == TRANSFER ? queue_transfer(net, t->bytes)
                                   : queue_all_reduce(net);
    return t->kind == TRANSFER ? transfer(net, t->bytes) : all_reduce(net);
}

/* A transport's thread is woken for each; a link's queues go on. */
static enum merak_status wake(const struct net *net)
{
    double seconds;

    if (net->world->link != NULL || calibrate_ping(net->wake_fd[0], &seconds))
        return MERAK_OK;
    return merak_fail(net->err, MERAK_ERR_SYSTEM,
                      "no answer from a thread: %m");
}

static enum merak_status repeat(struct net *net, const struct test *t, int n,
                                double *seconds_p)
{
    enum merak_status rc = make_exchange(net, t->bytes);
    int64_t start = merak_clock_ns();

    for (int i = 0; i < n && rc == MERAK_OK; i++) {
        rc = wake(net);
        if (rc == MERAK_OK)
            rc = move(net, t);
    }
    if (rc == MERAK_OK)
        rc = finish(net);
    *seconds_p = merak_clock_since_s(start) / n;
    merak_exchange_fini(&net->ex);
    return rc;
}

/* The maximum over all ranks; ranks that do not take part contribute 0 and
 * wait here. */
static enum merak_status longest(struct net *net, double *seconds_p)
{
    const struct merak_team *all = &net->world->all;
    enum merak_status rc;

    memset(net->of_rank, 0, (size_t)all->n * sizeof(*net->of_rank));
    net->of_rank[all->me] = *seconds_p;
    rc = merak_all_reduce_sum(net->world->tr, all, net->of_rank, (size_t)all->n,
                              net->err);
    for (int r = 0; r < all->n && rc == MERAK_OK; r++)
        *seconds_p = fmax(*seconds_p, net->of_rank[r]);
    return rc;
}

static enum merak_status time_test(struct net *net, const struct test *t,
                                   int repeats, double *seconds_p)
{
    enum merak_status rc = MERAK_OK;

    *seconds_p = 0;
    if (t->crowd == TOGETHER || net->inside || net->world->node.me == 0)
        rc = repeat(net, t, repeats, seconds_p);
    return rc == MERAK_OK ? longest(net, seconds_p) : rc;
}

/* The first run warms up and determines how many fit in a test. */
static enum merak_status run_test(struct net *net, struct test *t)
{
    double *seconds = &t->seconds[t->n];
    enum merak_status rc = MERAK_OK;

    if (t->n == 0) {
        rc = time_test(net, t, 1, seconds);
        t->repeats = 1 + (int)fmin(TEST_S / *seconds, MOST_REPEATS);
    }
    if (rc == MERAK_OK)
        rc = time_test(net, t, t->repeats, seconds);
    t->least = fmin(t->least, *seconds);
    t->n++;
    return rc;
}

/* Run all sizes of one kind, larger ones only if they do not take too long. */
static enum merak_status run_sizes(struct net *net, struct test *first)
{
    double growth = (double)sizes[1] / (double)sizes[0];
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < SIZES && rc == MERAK_OK; i++) {
        if (i > 0 && first[i - 1].least * growth > LONGEST_S)
            break;
        rc = run_test(net, &first[i]);
    }
    return rc;
}

static enum merak_status run_tests(struct net *net)
{
    struct merak_progress progress;
    enum merak_status rc = MERAK_OK;

    merak_progress_init(&progress, net->world->boot->rank == 0 ? stderr : NULL,
                        "links", "tests",
                        (double)net->rounds * net->n_tests / SIZES);
    for (int round = 0; round < net->rounds; round++) {
        for (int i = 0; i < net->n_tests && rc == MERAK_OK; i += SIZES) {
            rc = run_sizes(net, &net->test[i]);
            merak_progress_add(&progress, 1);
        }
    }
    merak_progress_clear(&progress);
    return rc;
}

static void add_tests(struct net *net)
{
    net->crowds = !net->inside && net->world->node.n > 1 ? CROWDS : TOGETHER;
    for (int i = 0; i < net->crowds * KINDS * SIZES; i++)
        net->test[net->n_tests++] =
            (struct test){.crowd = (enum crowd)(i / SIZES / KINDS),
                          .kind = (enum kind)(i / SIZES % KINDS),
                          .bytes = sizes[i % SIZES],
                          .least = INFINITY,
                          .seconds = net->seconds + i * net->rounds};
}

/* --- results -------------------------------------------------------- */

static void sum_up(struct net *net)
{
    static const char *const kinds[] = {"transfer", "all-reduce"};

    for (int i = 0; i < net->n_tests; i++) {
        struct test *t = &net->test[i];
        bool all = net->inside || t->crowd == TOGETHER;

        if (t->n == 0)
            continue;
        t->median = calibrate_median(t->seconds, (size_t)t->n);
        printf("  %-10s %5zu KiB, %4d a node %9.3f ms\n", kinds[t->kind],
               t->bytes >> 10, all ? net->world->node.n : 1, t->median * 1e3);
    }
}

/* Returns the seconds of a round if bytes took none. */
static double add_test(const struct net *net, const struct test *t,
                       struct sums *l)
{
    double far = net->team.n - 1;
    double rounds = t->kind == TRANSFER ? 1 : 2 * far;
    double bytes = (double)t->bytes;

    if (t->kind == ALL_REDUCE)
        bytes *= 2 * far / net->team.n;
    if (t->crowd == TOGETHER)
        bytes *= net->world->node.n;
    merak_line_add(&l->line, 1 / (t->median * t->median), rounds, bytes,
                   t->median);
    l->rounds += rounds;
    l->bytes += bytes;
    l->seconds += t->median;
    return t->median / rounds;
}

static void fit(const struct net *net, struct merak_device *device)
{
    struct sums sums[CROWDS] = {{.rounds = 0}};
    double most = INFINITY, top = 0, bottom = 0, latency, rate[CROWDS] = {0};

    for (int i = 0; i < net->n_tests; i++) {
        if (net->test[i].n > 0)
            most = fmin(
                most, add_test(net, &net->test[i], &sums[net->test[i].crowd]));
    }
    for (int i = 0; i < net->crowds; i++)
        merak_line_share_latency(&sums[i].line, &top, &bottom);
    /* limited so that each test has some time left for its bytes */
    latency = fmin(fmax(top / bottom, 0), 0.99 * most);
    for (int i = 0; i < net->crowds; i++)
        rate[i] = sums[i].bytes / (sums[i].seconds - sums[i].rounds * latency);
    if (net->inside) {
        device->links.level[0].latency_s = latency;
        device->links.level[0].bytes_per_s = rate[0];
        return;
    }
    device->links.level[1].latency_s = latency;
    device->links.level[1].bytes_per_s = rate[ALONE];
    device->links.level[0].way_bytes_per_s =
        rate[TOGETHER]; /* 0: only one rank per node */
}

static void print_fit(const struct net *net, const struct merak_device *device)
{
    int ranks = net->world->node.n;

    if (net->inside)
        printf("  between %d ranks of a node: %.1f us a round, %.4f GB/s",
               ranks, device->links.level[0].latency_s * 1e6,
               device->links.level[0].bytes_per_s / 1e9);
    else
        printf("  between %d nodes: %.1f us a round, %.4f GB/s per rank",
               net->team.n, device->links.level[1].latency_s * 1e6,
               device->links.level[1].bytes_per_s / 1e9);
    if (net->crowds == CROWDS)
        printf(", %.4f GB/s for %d together",
               device->links.level[0].way_bytes_per_s / 1e9, ranks);
    printf(", by %s\n", calibrate_world_mover(net->world));
}

/* --- set-up --------------------------------------------------------------- */

/* The ranks with this rank's local number, in the order of nodes, or those of
 * its node. */
static enum merak_status make_team(struct net *net)
{
    const struct merak_boot *boot = net->world->boot;
    int n = net->inside ? boot->local_size : boot->n_nodes, here = 0;
    int *seen = calloc((size_t)boot->n_nodes, sizeof(*seen));

    net->member = calloc((size_t)n, sizeof(*net->member));
    if (seen == NULL || net->member == NULL) {
        free(seen);
        return merak_fail_nomem(net->err, (size_t)n * sizeof(*seen));
    }
    for (int r = 0; r < boot->size; r++) {
        int node = boot->node_of[r];

        if (net->inside && node == boot->node_of[boot->rank])
            net->member[here++] = r;
        else if (!net->inside && seen[node]++ == boot->local_rank)
            net->member[node] = r;
    }
    free(seen);
    net->team = (struct merak_team){
        n, net->inside ? boot->local_rank : boot->node_of[boot->rank],
        net->member};
    return MERAK_OK;
}

static void *answer(void *arg)
{
    calibrate_echo(((struct net *)arg)->wake_fd[1]);
    return NULL;
}

static enum merak_status start_waker(struct net *net)
{
    int why;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, net->wake_fd) != 0)
        return merak_fail(net->err, MERAK_ERR_SYSTEM, "socketpair: %m");
    why = pthread_create(&net->waker, NULL, answer, net);
    if (why == 0)
        return MERAK_OK;
    close(net->wake_fd[0]);
    close(net->wake_fd[1]);
    net->wake_fd[0] = -1;
    return merak_fail(net->err, MERAK_ERR_SYSTEM, "cannot start a thread: %s",
                      strerror(why));
}

static void stop_waker(struct net *net)
{
    if (net->wake_fd[0] < 0)
        return;
    close(net->wake_fd[0]);
    pthread_join(net->waker, NULL);
    close(net->wake_fd[1]);
}

static enum merak_status set_up(struct net *net)
{
    size_t n = (size_t)net->rounds * CROWDS * KINDS * SIZES;
    size_t size = (size_t)net->world->boot->size;
    enum merak_status rc;

    net->seconds = calloc(n, sizeof(*net->seconds));
    net->of_rank = calloc(size, sizeof(*net->of_rank));
    if (net->seconds == NULL || net->of_rank == NULL)
        return merak_fail_nomem(net->err, (n + size) * sizeof(double));
    rc = make_team(net);
    return rc == MERAK_OK ? start_waker(net) : rc;
}

/* Recorded at once: nothing waits for an event that never was. */
static enum merak_status make_event(const struct net *net, int queue,
                                    struct merak_event **event_p)
{
    struct merak_accel *a = net->world->accel;
    enum merak_status rc = a->ops->event_create(a, event_p, net->err);

    return rc == MERAK_OK ? a->ops->record(a, queue, *event_p, net->err) : rc;
}

static enum merak_status make_events(struct net *net)
{
    enum merak_status rc;

    if (net->world->link == NULL)
        return MERAK_OK;
    rc = make_event(net, RECV_QUEUE, &net->received);
    return rc == MERAK_OK ? make_event(net, SEND_QUEUE, &net->sent) : rc;
}

static void destroy_events(struct net *net)
{
    struct merak_accel *a = net->world->accel;

    if (net->received != NULL)
        a->ops->event_destroy(a, net->received);
    if (net->sent != NULL)
        a->ops->event_destroy(a, net->sent);
}

static enum merak_status run(struct net *net)
{
    enum merak_status rc = make_events(net);

    add_tests(net);
    rc = merak_boot_agree(net->world->boot, rc, net->err);
    if (rc == MERAK_OK)
        rc = run_tests(net);
    rc = calibrate_world_tell(net->world, rc, net->err);
    destroy_events(net);
    return rc;
}

enum merak_status calibrate_net(struct calibrate_world *world, bool inside,
                                int rounds, struct merak_device *device,
                                struct merak_error *err)
{
    struct net net = {.world = world,
                      .rounds = 2 * rounds + 1,
                      .inside = inside,
                      .wake_fd = {-1, -1},
                      .err = err};
    enum merak_status rc;

    if (inside && (world->link_ops == NULL || world->boot->local_size == 1))
        return MERAK_OK;
    rc = merak_boot_agree(world->boot, set_up(&net), err);
    if (rc == MERAK_OK)
        rc = calibrate_world_open(world, arena_bytes(&net), &net.team, err);
    /* inside a node, a link that could not be opened is not measured */
    if (rc == MERAK_OK && (!inside || world->link != NULL)) {
        rc = run(&net);
        if (rc == MERAK_OK) {
            sum_up(&net);
            fit(&net, device);
            print_fit(&net, device);
        }
    }
    calibrate_world_close(world);
    stop_waker(&net);
    free(net.member);
    free(net.seconds);
    free(net.of_rank);
    return rc;
}
