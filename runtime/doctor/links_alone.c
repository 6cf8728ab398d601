/* SPDX-License-Identifier: Apache-2.0 */
/* links_alone.c - UCX's transports on one machine, and their rate
 *
 * Two workers of one process act as two tasks.  UCX first chooses the
 * transport; then it is limited to TCP, which nodes without a better network
 * use.
 */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/clock.h"
#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define MESSAGE_BYTES ((size_t)4 << 20)
#define PROBE_NS INT64_C(150000000)
#define PATIENCE_NS INT64_C(500000000)

struct pair {
    ucp_context_h context;
    ucp_worker_h from, to;
    ucp_ep_h ep;
    char *data; /* [2][MESSAGE_BYTES] */
};

static ucs_status_t open_context(const char *tls, struct pair *pair)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_TAG};
    ucp_config_t *config = NULL;
    ucs_status_t st = ucp_config_read(NULL, NULL, &config);

    if (st != UCS_OK)
        return st;
    if (tls != NULL)
        st = ucp_config_modify(config, "TLS", tls);
    if (st == UCS_OK)
        st = ucp_init(&params, config, &pair->context);
    ucp_config_release(config);
    return st;
}

static ucs_status_t open_pair(const char *tls, struct pair *pair)
{
    ucp_worker_params_t single = {.field_mask =
                                      UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_address_t *address = NULL;
    size_t bytes;
    ucs_status_t st = open_context(tls, pair);

    if (st == UCS_OK)
        st = ucp_worker_create(pair->context, &single, &pair->from);
    if (st == UCS_OK)
        st = ucp_worker_create(pair->context, &single, &pair->to);
    if (st == UCS_OK)
        st = ucp_worker_get_address(pair->to, &address, &bytes);
    if (st != UCS_OK)
        return st;
    params.address = address;
    st = ucp_ep_create(pair->from, &params, &pair->ep);
    ucp_worker_release_address(pair->to, address);
    return st;
}

static bool is_over(ucs_status_ptr_t request)
{
    return request == NULL || UCS_PTR_IS_ERR(request) ||
           ucp_request_check_status(request) != UCS_INPROGRESS;
}

static ucs_status_t end_of(ucs_status_ptr_t request)
{
    ucs_status_t st;

    if (request == NULL)
        return UCS_OK;
    if (UCS_PTR_IS_ERR(request))
        return UCS_PTR_STATUS(request);
    st = ucp_request_check_status(request);
    ucp_request_free(request);
    return st == UCS_INPROGRESS ? UCS_ERR_TIMED_OUT : st;
}

static ucs_status_t pass_one(struct pair *pair)
{
    int64_t until_ns = merak_clock_ns() + PATIENCE_NS;
    ucp_request_param_t none = {0};
    ucs_status_ptr_t in, out;
    ucs_status_t got, sent;

    in = ucp_tag_recv_nbx(pair->to, pair->data + MESSAGE_BYTES, MESSAGE_BYTES,
                          1, UINT64_MAX, &none);
    out = ucp_tag_send_nbx(pair->ep, pair->data, MESSAGE_BYTES, 1, &none);
    while ((!is_over(in) || !is_over(out)) && merak_clock_ns() < until_ns) {
        ucp_worker_progress(pair->from);
        ucp_worker_progress(pair->to);
    }
    got = end_of(in);
    sent = end_of(out);
    return got != UCS_OK ? got : sent;
}

/* The first message, not timed, connects and touches the memory. */
static ucs_status_t measure(struct pair *pair, double *bytes_per_s)
{
    ucs_status_t st = pass_one(pair);
    int64_t start = merak_clock_ns(), ns = 0;
    double bytes = 0;

    while (st == UCS_OK && ns < PROBE_NS) {
        st = pass_one(pair);
        bytes += (double)MESSAGE_BYTES;
        ns = merak_clock_ns() - start;
    }
    *bytes_per_s = bytes / ((double)ns * 1e-9);
    return st;
}

/* "posix/memory, cma/memory" of the lines "#  lane[0]: 5:posix/memory.0 ..",
 * with which UCX lists what an endpoint uses. */
static void name_lanes(ucp_ep_h ep, char *text, size_t size)
{
    char *page = NULL, name[64];
    size_t bytes = 0, n = 0;
    FILE *out = open_memstream(&page, &bytes);

    text[0] = '\0';
    if (out == NULL)
        return;
    ucp_ep_print_info(ep, out);
    if (fclose(out) == 0) {
        for (const char *at = strstr(page, "lane["); at != NULL;
             at = strstr(at + 1, "lane[")) {
            if (sscanf(at, "lane[%*d]: %*d:%63[^. \n]", name) == 1 &&
                strstr(text, name) == NULL && n < size)
                n += (size_t)snprintf(text + n, size - n, "%s%s",
                                      n > 0 ? ", " : "", name);
        }
    }
    free(page);
}

static void close_pair(struct pair *pair, bool sound)
{
    ucp_request_param_t none = {0};
    int64_t until_ns = merak_clock_ns() + PATIENCE_NS;
    ucs_status_ptr_t end =
        pair->ep != NULL && sound ? ucp_ep_close_nbx(pair->ep, &none) : NULL;

    while (!is_over(end) && merak_clock_ns() < until_ns) {
        ucp_worker_progress(pair->from);
        ucp_worker_progress(pair->to);
    }
    (void)end_of(end);
    if (pair->from != NULL)
        ucp_worker_destroy(pair->from);
    if (pair->to != NULL)
        ucp_worker_destroy(pair->to);
    if (pair->context != NULL)
        ucp_cleanup(pair->context);
}

static void probe(const char *tls, const char *what, char *data,
                  struct merak_findings *found)
{
    struct pair pair = {.data = data};
    char lanes[128] = "", text[MERAK_BYTES_TEXT];
    double rate = 0;
    struct merak_finding *f;
    ucs_status_t st = open_pair(tls, &pair);

    if (st == UCS_OK)
        st = measure(&pair, &rate);
    if (st == UCS_OK)
        name_lanes(pair.ep, lanes, sizeof(lanes));
    close_pair(&pair, st == UCS_OK);
    if (st != UCS_OK) {
        f = merak_find(found, MERAK_FINDING_WARNING, "links", "UCX %s, %s: %s",
                       ucp_get_version_string(), what, ucs_status_string(st));
        merak_find_fix(f, "ucx_info -d lists devices and transports; "
                          "UCX_LOG_LEVEL=info shows why one is left out");
        return;
    }
    merak_bytes_text(rate, text);
    merak_find(found, MERAK_FINDING_OK, "links",
               "UCX %s, %s: %s/s one way by %s", ucp_get_version_string(), what,
               text, lanes);
}

void merak_links_alone(struct merak_findings *found)
{
    char *data = calloc(2, MESSAGE_BYTES);

    if (data == NULL)
        return;
    memset(data, 1, MESSAGE_BYTES);
    probe(NULL, "within the node", data, found);
    if (getenv("UCX_TLS") == NULL)
        probe("tcp,self", "limited to TCP", data, found);
    free(data);
}
