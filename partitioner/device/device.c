/* SPDX-License-Identifier: Apache-2.0 */
/* device.c - built-in devices and their cost models
 *
 * Peaks are the vendors' (dense, no sparsity).  Memory bandwidth is 80 % of the
 * data sheet's, link bandwidth 80 to 90 % of one direction.  5 % of the memory
 * stays free for the context and libraries.  Net is one 200 (a100) or 400 Gb/s
 * (h100 and later) adapter for each GPU; rtx3090 is Merak's own cluster: PCIe
 * inside, one 100 Gb/s adapter shared by 8 GPUs.  NVLink joins the 18 nodes of
 * a gb200's rack, of 4 GPUs each.
 *
 * A device is a GPU and a generation of its software: NAME is today's,
 * NAME-YEAR what was in use in that year.  For GPUs, in bf16:
 *
 * Products: the only fitted number, two published runs each
 * (tests/unit/search/throughput_rows.h), so that it includes what a step loses
 * between kernels and to clocks that fall under load.  a100, h100-2023: MPT of
 * 7 B and 3 B (2023), 79 and 65 % of the best product of any shape, 271 and
 * 795 TFLOP/s (S. Bekman, ml-engineering, MAMF).  h100: Llama 3.1 of 8 B and
 * 70 B (NVIDIA, 2025), 93 % of it.  An H200 has an H100's rate, as in that
 * list; an rtx3090 reaches the same fraction of its peak as an a100.  gb200:
 * Llama 3.1 of 405 B and Nemotron-4 of 340 B (NVIDIA, 2025); a b200 reaches the
 * same fraction of its peak.
 *
 * The time of bytes is added: a kernel's first tiles are loaded before its
 * products begin, and its last ones are stored after them, which makes small
 * products less efficient than large ones.
 *
 * Attention: FlashAttention-2 reaches 50 to 73 % of an A100's peak (arXiv
 * 2307.08691); causal, short or backward kernels are at the lower end.  35 % on
 * Hopper (h100-2023), where FlashAttention-3 and cuDNN 9 reach 500 TFLOP/s in
 * causal and backward kernels (arXiv 2407.08608, figures 5 and 6).  cuDNN 9.22
 * on a GB200, causal, 4096 tokens, forward and backward together: 1213 TFLOP/s
 * (cudnn-frontend, benchmark/sdpa_benchmark_training, 2026).  a100-2021
 * is not fused: the score of a query and a key is written and read by the
 * product, scale and mask with softmax, dropout with its mask, and the second
 * product, 13 bytes in two-byte elements.  For heads of 128 channels that are
 * 512 FLOPs, so 6.3e13 FLOP/s at 1.6e12 bytes/s; half of it counts, as a causal
 * mask saves such kernels nothing.
 *
 * Host: 80 % of one direction of PCIe 4 (a100) or 5 (h100, h200, b200) with 16
 * lanes, and of a DGX's 2 TB of memory an eighth less what the system needs; of
 * a gb200's, NVLink-C2C and half of what a Grace CPU has; rtx3090's is not known.
 *
 * During an exchange kernels take 18.9 % longer (arXiv 2507.03114, the mean
 * over A100, H100 and two other GPUs).  It lasts as long as its bytes are on
 * the link, so a kernel loses time at the link's rate divided by 0.189.
 */
#include "config.h"

#include "partitioner/device/device.h"

#include "base/error.h"
#include "partitioner/device/device_file.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What GPUs of a kind have in common, whatever their memory and software; with
 * bf16 products and attention in FLOP/s. */
#define AMPERE(products, attention)                                      \
    .memory_bytes = 81600000000,                                         \
    .peak_flops_per_s = {[MERAK_F32] = 1.95e13, [MERAK_BF16] = 3.12e14}, \
    .flops_per_s = {[MERAK_F32] = 1.6e13, [MERAK_BF16] = (products)},    \
    .bytes_per_s = 1.6e12, .kernel_s = 5e-6,                             \
    .attention_flops_per_s =                                             \
        {[MERAK_F32] = 1.6e13, [MERAK_BF16] = (attention)},              \
    .sums_roofline = true, .direct = true,                               \
    .interference_bytes_per_s = 1.27e12,                                 \
    .host = {240000000000, 2.5e10, 1e-5},                                \
    .links.level = {                                                     \
        {"link", 8, 8e-6, 2.4e11, 0},                                    \
        {"net", 0, 1.5e-5, 2.2e10, 0},                                   \
    }
#define HOPPER(products, attention)                                     \
    .peak_flops_per_s = {[MERAK_F32] = 6.7e13, [MERAK_BF16] = 9.89e14}, \
    .flops_per_s = {[MERAK_F32] = 4.5e13, [MERAK_BF16] = (products)},   \
    .kernel_s = 5e-6,                                                   \
    .attention_flops_per_s =                                            \
        {[MERAK_F32] = 4.5e13, [MERAK_BF16] = (attention)},             \
    .sums_roofline = true, .direct = true,                              \
    .interference_bytes_per_s = 1.905e12,                               \
    .host = {240000000000, 5e10, 1e-5},                                 \
    .links.level = {                                                    \
        {"link", 8, 8e-6, 3.6e11, 0},                                   \
        {"net", 0, 1.5e-5, 4.5e10, 0},                                  \
    }
#define BLACKWELL(peak, products)                                     \
    .peak_flops_per_s = {[MERAK_F32] = 8e13, [MERAK_BF16] = (peak)},  \
    .flops_per_s = {[MERAK_F32] = 5.4e13, [MERAK_BF16] = (products)}, \
    .bytes_per_s = 6.4e12, .kernel_s = 5e-6,                          \
    .attention_flops_per_s =                                          \
        {[MERAK_F32] = 5.4e13, [MERAK_BF16] = 1.2e15},                \
    .sums_roofline = true, .direct = true,                            \
    .interference_bytes_per_s = 3.81e12
#define NVLINK5(name, ranks) {name, ranks, 8e-6, 7.2e11, 0}
#define NDR {"net", 0, 1.5e-5, 4.5e10, 0}

static const struct merak_device built_in[] = {
    {.name = "a100", AMPERE(2.15e14, 1.56e14)},
    {.name = "a100-2021", AMPERE(2.15e14, 3.1e13)},
    {.name = "h100",
     .memory_bytes = 81200000000,
     .bytes_per_s = 2.7e12,
     HOPPER(7.4e14, 5e14)},
    {.name = "h100-2023",
     .memory_bytes = 81200000000,
     .bytes_per_s = 2.7e12,
     HOPPER(5.2e14, 3.46e14)},
    {.name = "h200",
     .memory_bytes = 143000000000,
     .bytes_per_s = 3.8e12,
     HOPPER(7.4e14, 5e14)},
    {.name = "b200",
     .memory_bytes = 182000000000,
     BLACKWELL(2.25e15, 1.37e15),
     .host = {240000000000, 5e10, 1e-5},
     .links.level = {NVLINK5("link", 8), NDR}},
    {.name = "gb200",
     .memory_bytes = 187000000000,
     BLACKWELL(2.45e15, 1.49e15),
     .host = {220000000000, 3.6e11, 1e-5},
     .links.level = {NVLINK5("link", 4), NVLINK5("rack", 18 * 4), NDR}},
    {.name = "rtx3090",
     .memory_bytes = 24400000000,
     .peak_flops_per_s = {[MERAK_F32] = 3.56e13, [MERAK_BF16] = 7.1e13},
     .flops_per_s = {[MERAK_F32] = 2.2e13, [MERAK_BF16] = 4.9e13},
     .bytes_per_s = 7.6e11,
     .kernel_s = 6e-6,
     .attention_flops_per_s = {[MERAK_F32] = 2.2e13, [MERAK_BF16] = 3.55e13},
     .sums_roofline = true,
     .direct = true,
     .interference_bytes_per_s = 5.29e10,
     .links.level = {{"link", 8, 1.5e-5, 1e10, 1.1e10},
                     {"net", 0, 2e-5, 1e10, 0}}},
    /* As merak_cost_default(): one core in f32, or with bf16 dot products. */
    {.name = "cpu",
     .memory_bytes = 4000000000,
     .peak_flops_per_s = {[MERAK_F32] = 2.4e11, [MERAK_BF16] = 4.8e11},
     .flops_per_s = {[MERAK_F32] = 1.5e11, [MERAK_BF16] = 3e11},
     .bytes_per_s = 1e10,
     .kernel_s = 2e-6,
     .links.level = {{"link", 1, 5e-6, 5e9, 0}, {"net", 0, 2e-5, 1e9, 0}}},
};

#define N_BUILT_IN (sizeof(built_in) / sizeof(*built_in))

bool merak_device_is_file(const char *word)
{
    size_t n = strlen(word);

    return strchr(word, '/') != NULL ||
           (n > 5 && strcmp(word + n - 5, ".json") == 0);
}

enum merak_status merak_device_find(const char *word,
                                    struct merak_device *device,
                                    struct merak_error *err)
{
    char names[128] = "";

    if (merak_device_is_file(word))
        return merak_device_load(word, device, err);
    for (size_t i = 0; i < N_BUILT_IN; i++) {
        size_t used = strlen(names);

        if (strcasecmp(built_in[i].name, word) == 0) {
            *device = built_in[i];
            return MERAK_OK;
        }
        snprintf(names + used, sizeof(names) - used, "%s%.31s",
                 i > 0 ? ", " : "", built_in[i].name);
    }
    return merak_fail(err, MERAK_ERR_NOT_FOUND,
                      "no device \"%.60s\"; there are: %s, or the path of a "
                      "file that `merak calibrate` wrote",
                      word, names);
}

/* Does a name begin, and end, at this place of a text?  Blanks in the text do
 * not count: "GeForce RTX 3090". */
static bool is_named_at(const char *text, size_t at, const char *name)
{
    if (at > 0 && isalnum((unsigned char)text[at - 1]))
        return false;
    for (; *name != '\0'; name++, at++) {
        while (text[at] == ' ')
            at++;
        if (tolower((unsigned char)text[at]) != *name)
            return false;
    }
    return !isalnum((unsigned char)text[at]);
}

const char *merak_device_of_hardware(const char *hardware)
{
    for (size_t at = 0; hardware[at] != '\0'; at++) {
        for (size_t i = 0; i < N_BUILT_IN && hardware[at] != ' '; i++) {
            if (is_named_at(hardware, at, built_in[i].name))
                return built_in[i].name;
        }
    }
    return NULL;
}

void merak_device_as_f32(struct merak_device *device, enum merak_dtype dtype)
{
    device->peak_flops_per_s[dtype] = device->peak_flops_per_s[MERAK_F32];
    device->flops_per_s[dtype] = device->flops_per_s[MERAK_F32];
    device->attention_flops_per_s[dtype] =
        device->attention_flops_per_s[MERAK_F32];
}

enum merak_dtype merak_device_dtype(const struct merak_device *device)
{
    return device->flops_per_s[MERAK_BF16] > device->flops_per_s[MERAK_F32]
               ? MERAK_BF16
               : MERAK_F32;
}

void merak_device_fini(struct merak_device *device)
{
    for (int t = 0; t < MERAK_DTYPE_COUNT; t++) {
        free(device->rates[t]);
        device->rates[t] = NULL;
        free(device->tp_rates[t]);
        device->tp_rates[t] = NULL;
    }
    for (int i = 0; i < device->n_tuned; i++)
        free(device->tuned[i]);
    free(device->tuned);
    free(device->tuned_for);
    device->tuned = NULL;
    device->tuned_for = NULL;
    device->n_tuned = 0;
}

enum merak_status merak_device_add_tuned(struct merak_device *device,
                                         const char *line,
                                         struct merak_error *err)
{
    size_t n = (size_t)device->n_tuned + 1;
    char **more = realloc(device->tuned, n * sizeof(*more));
    char *copy = strdup(line);

    if (more != NULL)
        device->tuned = more;
    if (more == NULL || copy == NULL) {
        free(copy);
        return merak_fail_nomem(err, n * sizeof(*more));
    }
    device->tuned[device->n_tuned++] = copy;
    return MERAK_OK;
}

/* All but the links. */
static void fill_cost(const struct merak_device *device, enum merak_dtype dtype,
                      struct merak_cost_model *model)
{
    *model = (struct merak_cost_model){
        .flops_per_s = device->flops_per_s[dtype],
        .bytes_per_s = device->bytes_per_s,
        .kernel_s = device->kernel_s,
        .attention_flops_per_s = device->attention_flops_per_s[dtype],
        .sums_roofline = device->sums_roofline,
        .host = device->host,
        .interference_latency_s = device->interference_latency_s,
        .interference_bytes_per_s = device->interference_bytes_per_s,
        .rates = device->rates[dtype],
        .tp_rates = device->tp_rates[dtype]};
    memcpy(model->name, device->name, sizeof(model->name));
}

void merak_device_cost(const struct merak_device *device,
                       enum merak_dtype dtype, int ranks,
                       struct merak_cost_model *model)
{
    const struct merak_links *links = &device->links;
    int last = merak_links_last(links);
    struct merak_level *level = model->links.level;

    fill_cost(device, dtype, model);
    model->links = *links;
    memset(&level[1], 0, (MERAK_LEVELS - 1) * sizeof(*level));
    level[0].ranks = ranks;
    level[0].way_bytes_per_s = links->level[last - 1].way_bytes_per_s;
    level[1] = links->level[last];
    model->links.islands = NULL; /* they are a level between these */
}

void merak_device_job_cost(const struct merak_device *device,
                           enum merak_dtype dtype, int nodes,
                           int ranks_per_node, struct merak_cost_model *model)
{
    fill_cost(device, dtype, model);
    model->links = merak_links_of_job(&device->links, nodes, ranks_per_node);
}
