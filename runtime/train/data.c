/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - the files that samples are read of: token files, or arrays for the
 * inputs that a model has declared, or token files with tokens hidden, for
 * inputs that it has declared */
#include "config.h"

#include "runtime/train/trainer.h"

#include "base/error.h"
#include "io/samples/corrupted.h"
#include "partitioner/graph/letters.h"

#include <string.h>
#include <sys/stat.h>

static bool reads(const struct merak_node *node, int input)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i]->kind == MERAK_VALUE_INPUT &&
            node->in[i]->input == input)
            return true;
    }
    return false;
}

/* What the ids of an input are below: the rows of the table that they are
 * looked up in, or the classes that they are targets of; 0: it has no ids. */
static size_t vocabulary(const struct merak_graph *graph, int input)
{
    for (int n = 0; n < graph->n_forward && input >= 0; n++) {
        struct merak_signature sig;

        if (!reads(graph->node[n], input))
            continue;
        merak_node_signature(graph->node[n], &sig);
        for (int i = 0; i < sig.n_index; i++) {
            if (sig.index[i].vocabulary)
                return sig.index[i].extent;
        }
    }
    return 0;
}

static enum merak_status open_tokens(struct merak_trainer *t,
                                     struct merak_error *err)
{
    int tokens = merak_graph_input(t->sharded->graph, MERAK_INPUT_TOKENS);
    const struct merak_data_options opt = {
        .spec = t->opt.data.files,
        .seq = t->opt.seq,
        .seed = t->opt.seed,
        .valid_fraction = t->opt.data.valid_fraction,
        .vocab = vocabulary(t->sharded->graph, tokens),
        .packing = t->opt.data.packing,
        .documents = t->opt.data.doc_mask,
        .pairs = t->opt.optimizer.objective.kind == MERAK_DPO,
    };
    enum merak_status rc = merak_data_open(&opt, &t->data, err);

    if (rc == MERAK_OK && !opt.pairs && merak_data_has_pairs(t->data))
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "--data %.100s has pairs of a chosen and a rejected "
                        "answer, and both would be learned: give --objective "
                        "dpo",
                        t->opt.data.files);
    return rc == MERAK_OK
               ? merak_samples_of_tokens(t->data, &t->load.samples, err)
               : rc;
}

/* Arrays have what a model has declared, and nothing else. */
static enum merak_status check_arrays(const struct merak_trainer *t,
                                      struct merak_error *err)
{
    const struct merak_graph *graph = t->sharded->graph;

    for (int i = 0; i < graph->n_inputs; i++) {
        if (graph->input[i].class != MERAK_INPUT_NAMED)
            return merak_fail(
                err, MERAK_ERR_CONFIG,
                "the model reads %s of token files and input %s "
                "of arrays: expected inputs of one kind; declare "
                "%s with merak_input() as well",
                graph->input[i].name,
                graph->input[merak_graph_input(graph, MERAK_INPUT_NAMED)].name,
                graph->input[i].name);
    }
    return MERAK_OK;
}

/* What the model reads of each sample. */
static void fill_wishes(const struct merak_graph *graph,
                        struct merak_wish wish[MERAK_MAX_INPUTS])
{
    for (int i = 0; i < graph->n_inputs; i++) {
        const struct merak_input *input = &graph->input[i];

        wish[i] = (struct merak_wish){.name = input->name,
                                      .dtype = input->dtype,
                                      .shape.ndim = input->shape.ndim - 1};
        memcpy(wish[i].shape.dim, input->shape.dim + 1,
               (size_t)(input->shape.ndim - 1) * sizeof(*input->shape.dim));
        memcpy(wish[i].letter, input->letter + 1,
               (size_t)(input->shape.ndim - 1) * sizeof(*input->letter));
        if (input->dtype == MERAK_I32)
            wish[i].classes = vocabulary(graph, i);
    }
}

static enum merak_status open_arrays(struct merak_trainer *t,
                                     struct merak_error *err)
{
    const struct merak_graph *graph = t->sharded->graph;
    struct merak_wish wish[MERAK_MAX_INPUTS];
    const struct merak_samples_options opt = {.path = t->opt.data.files,
                                              .seed = t->opt.seed,
                                              .valid_fraction =
                                                  t->opt.data.valid_fraction,
                                              .n_wishes = graph->n_inputs,
                                              .wish = wish};

    fill_wishes(graph, wish);
    return merak_samples_open(&opt, &t->load.samples, err);
}

/* --- tokens hidden ----------------------------------------------------------
 */

/* What cannot be had with tokens hidden. */
static enum merak_status check_corrupt(const struct merak_trainer *t,
                                       struct merak_error *err)
{
    const struct merak_train_options *o = &t->opt;
    const char *what =
        o->data.packing == MERAK_PACKING_BEST_FIT  ? "--packing best-fit"
        : o->data.doc_mask                         ? "--doc-mask"
        : o->optimizer.objective.kind == MERAK_DPO ? "--objective dpo"
                                                   : NULL;
    char text[MERAK_CORRUPT_TEXT];

    if (what == NULL)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "--corrupt %s cuts a stream of documents: leave %s out",
                      merak_corrupt_text(&o->data.corrupt, text), what);
}

/* Open the tokens, `raw` a sample, and what is made of them. */
static enum merak_status open_raw(struct merak_trainer *t,
                                  const struct merak_corrupted_options *opt,
                                  struct merak_error *err)
{
    struct merak_data_options data = {.spec = t->opt.data.files,
                                      .seed = t->opt.seed,
                                      .valid_fraction =
                                          t->opt.data.valid_fraction,
                                      .vocab = opt->vocab};
    enum merak_status rc = merak_corrupted_check(opt, &data.seq, err);

    if (rc == MERAK_OK)
        rc = merak_data_open(&data, &t->data, err);
    if (rc == MERAK_OK && merak_data_is_masked(t->data))
        rc = merak_fail(err, MERAK_ERR_MISMATCH,
                        "--data %.100s has a mask of what is to be predicted, "
                        "and so has --corrupt: expected a text without "
                        "answers",
                        t->opt.data.files);
    return rc == MERAK_OK ? merak_samples_corrupted(opt, t->data,
                                                    &t->load.samples, err)
                          : rc;
}

static enum merak_status open_corrupted(struct merak_trainer *t,
                                        struct merak_error *err)
{
    const struct merak_graph *graph = t->sharded->graph;
    struct merak_special_ids *ids = &t->load.ids;
    struct merak_wish wish[MERAK_MAX_INPUTS];
    struct merak_corrupted_options opt = {.corrupt = t->opt.data.corrupt,
                                          .seed = t->opt.seed,
                                          .ids = ids,
                                          .n_wishes = graph->n_inputs,
                                          .wish = wish};
    int reader = merak_graph_input(graph, MERAK_INPUT_TOKENS);
    enum merak_status rc = check_corrupt(t, err);

    fill_wishes(graph, wish);
    if (reader < 0)
        reader = merak_corrupted_reader(opt.n_wishes, wish);
    opt.vocab = reader < 0 ? 0 : wish[reader].classes;
    t->load.encoder_seq = reader < 0 ? 0 : wish[reader].shape.dim[0];
    if (rc == MERAK_OK)
        rc = merak_special_ids_read(t->source.model_path, ids, err);
    if (rc != MERAK_OK)
        return rc;
    if (t->opt.data.mask_id >= 0)
        ids->mask = t->opt.data.mask_id;
    if (t->opt.data.sentinel_id >= 0) {
        ids->sentinel = t->opt.data.sentinel_id;
        ids->n_sentinels = 0;
    }
    return open_raw(t, &opt, err);
}

/* --corrupt, or what the model's inputs are made by. */
static void choose_corrupt(struct merak_trainer *t)
{
    static const char *const kind[] = {[MERAK_CORRUPT_NONE] = "none",
                                       [MERAK_CORRUPT_MASK] = "mask",
                                       [MERAK_CORRUPT_SPANS] = "spans"};
    struct merak_corrupt *corrupt = &t->opt.data.corrupt;
    struct merak_wish wish[MERAK_MAX_INPUTS];

    if (corrupt->kind != MERAK_CORRUPT_AUTO)
        return;
    fill_wishes(t->sharded->graph, wish);
    if (merak_data_is_arrays(t->opt.data.files) ||
        merak_corrupt_parse(
            kind[merak_corrupted_kind(t->sharded->graph->n_inputs, wish)],
            corrupt, NULL) != MERAK_OK)
        corrupt->kind = MERAK_CORRUPT_NONE;
}

bool merak_data_is_arrays(const char *files)
{
    size_t n = files == NULL ? 0 : strlen(files);
    struct stat st;

    return n > 5 && strcmp(files + n - 5, ".json") == 0 &&
           !(stat(files, &st) == 0 && S_ISDIR(st.st_mode));
}

static enum merak_status open_data(struct merak_trainer *t,
                                   struct merak_error *err)
{
    const struct merak_graph *graph = t->sharded->graph;
    int named = merak_graph_input(graph, MERAK_INPUT_NAMED);
    bool arrays = merak_data_is_arrays(t->opt.data.files);
    enum merak_status rc;

    if (named >= 0 && !arrays)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--data %.100s: the model has an input %s, expected "
                          "--data FILE.json with a file for it, "
                          "{\"%s\": \"PATH\"}",
                          t->opt.data.files, graph->input[named].name,
                          graph->input[named].name);
    if (named < 0 && arrays)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "--data %.100s: the model declares no inputs that "
                          "files could be of, expected token files",
                          t->opt.data.files);
    if (!arrays)
        return open_tokens(t, err);
    rc = check_arrays(t, err);
    return rc == MERAK_OK ? open_arrays(t, err) : rc;
}

enum merak_status merak_trainer_open_data(struct merak_trainer *t,
                                          struct merak_error *err)
{
    enum merak_status rc;

    choose_corrupt(t);
    if (t->opt.data.corrupt.kind == MERAK_CORRUPT_NONE)
        rc = open_data(t, err);
    else if (merak_data_is_arrays(t->opt.data.files))
        rc = merak_fail(err, MERAK_ERR_CONFIG,
                        "--corrupt hides tokens of token files, and --data "
                        "%.100s has arrays",
                        t->opt.data.files);
    else
        rc = open_corrupted(t, err);
    return rc == MERAK_OK ? merak_inputs_open(t, err) : rc;
}

void merak_trainer_close_data(struct merak_trainer *t)
{
    merak_samples_close(t->load.samples);
    merak_data_close(t->data);
    merak_special_ids_fini(&t->load.ids);
}

size_t merak_trainer_positions(const struct merak_trainer *t)
{
    return merak_graph_sequence_letter(t->sharded->graph) ==
                   MERAK_LETTER_POSITIONS
               ? t->opt.seq
               : 0;
}
