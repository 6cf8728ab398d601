/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_reshard.c - `merak ckpt reshard`: rewrite a checkpoint for other
 * degrees
 *
 * Any layout can resume any checkpoint, but with one written in its own layout
 * each rank reads and checks only its own file.  Tensors are copied piece by
 * piece, in memory for the largest piece.
 */
#include "config.h"

#include "cmd/ckpt/ckpt_verbs.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/output.h"
#include "base/size.h"
#include "cmd/finish.h"
#include "cmd/ckpt/reshard_pieces.h"
#include "io/ckpt/owner.h"
#include "io/weights/run_model.h"
#include "partitioner/plan/choice.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reshard {
    const char *out, *model_option;
    int tp, pp, dp, zero, unknown;
    bool json;
    struct merak_ckpt *from;
    char model[PATH_MAX];
    struct reshard_pieces pieces;
    struct merak_progress progress;
};

#define AT(field) offsetof(struct reshard, field)
#define DEGREE(name, what)                                                   \
    {                                                                        \
#name, MERAK_OPTION_INT, AT(name), .about = what " (1)", .least = 1, \
                                           .most = 1 << 20                   \
    }

static enum merak_status set_zero1(void *target, const char *text,
                                   struct merak_error *err)
{
    struct reshard *r = target;

    return merak_zero1_parse(text, &r->zero, err);
}

static const struct merak_option rows[] = {
    {"out", MERAK_OPTION_TEXT, AT(out),
     .about = "the run's directory, which has no checkpoint yet (required)",
     .arg = "RUN"},
    DEGREE(tp, "tensor-parallel degree of the run"),
    DEGREE(pp, "pipeline stages"),
    DEGREE(dp, "replicas"),
    {"zero", MERAK_OPTION_INT, AT(zero),
     .about = "what replicas share out, as in merak train (1)",
     .most = MERAK_MAX_ZERO},
    {"zero1", MERAK_OPTION_CALL, .about = "as zero 0 or 1", .arg = "no|yes",
     .set = set_zero1},
    {"model", MERAK_OPTION_TEXT, AT(model_option),
     .about = "Hugging Face folder, or its config.json (that of DIR's run)",
     .arg = "DIR"},
    {"config-unknown", MERAK_OPTION_WORD, AT(unknown),
     .about = MERAK_HF_UNKNOWN_ABOUT, .words = MERAK_HF_UNKNOWN_WORDS},
    {"json", MERAK_OPTION_YES, AT(json),
     .about = "report what was done as a line of JSON"},
};
const struct merak_option_table ckpt_reshard_options = {
    rows, sizeof(rows) / sizeof(rows[0])};

/* RUN/model of RUN/step-N, unless another is given. */
static enum merak_status find_model(struct reshard *r, struct merak_error *err)
{
    const char *dir = merak_ckpt_path(r->from), *slash;
    char run[PATH_MAX];
    size_t n = strlen(dir);

    if (r->model_option != NULL) {
        if (strlen(r->model_option) >= MERAK_DIR_MAX)
            return merak_fail(err, MERAK_ERR_PARAM, "path too long");
        strcpy(r->model, r->model_option);
        return MERAK_OK;
    }
    while (n > 1 && dir[n - 1] == '/')
        n--;
    slash = memrchr(dir, '/', n);
    if (slash == NULL)
        strcpy(run, ".");
    else
        snprintf(run, sizeof(run), "%.*s",
                 slash == dir ? 1 : (int)(slash - dir), dir);
    merak_path(r->model, run, MERAK_RUN_MODEL);
    if (access(r->model, F_OK) == 0)
        return MERAK_OK;
    return merak_fail(err, MERAK_ERR_CONFIG,
                      "%.150s does not exist: give the model's config.json "
                      "with --model",
                      r->model);
}

static enum merak_status fill(void *arg, int i, struct merak_error *err)
{
    struct reshard *r = arg;
    const struct merak_ckpt_piece *piece = &r->pieces.piece[i];
    enum merak_status rc = merak_cmd_check_stop(err);

    if (rc == MERAK_OK)
        rc = merak_ckpt_read(r->from, piece, err);
    merak_progress_add(&r->progress, (double)merak_ckpt_piece_bytes(piece));
    return rc;
}

/* Copy the model folder, which exports need. */
static enum merak_status copy_model(const struct reshard *r,
                                    struct merak_error *err)
{
    static const char *const more[] = {"weights.json",
                                       "model.safetensors.index.json"};
    enum merak_status rc = merak_run_model_record(r->out, r->model, err);
    char to[PATH_MAX];

    merak_path(to, r->out, MERAK_RUN_MODEL);
    for (size_t i = 0; i < sizeof(more) / sizeof(*more) && rc == MERAK_OK; i++)
        rc = merak_run_model_copy(r->model, to, more[i], true, err);
    return rc;
}

static enum merak_status write_out(struct reshard *r, struct merak_error *err)
{
    struct merak_ckpt_state state = *merak_ckpt_state(r->from);
    float *buf = malloc(r->pieces.most_bytes + 1);
    enum merak_status rc;

    if (buf == NULL)
        return merak_fail_nomem(err, r->pieces.most_bytes);
    for (int i = 0; i < r->pieces.n; i++)
        r->pieces.piece[i].data = buf;
    state.branch[0] = '\0'; /* of another run's folder */
    state.tp = r->tp;
    state.cp = state.ep = 1;
    state.stages[0] = '\0';
    state.pp = r->pp;
    state.dp = r->dp;
    merak_progress_init(&r->progress, stderr, "reshard", "B",
                        (double)r->pieces.bytes);
    rc = merak_ckpt_write(r->out, &state, r->pieces.piece, r->pieces.first,
                          r->pieces.n_ranks, fill, r, err);
    merak_progress_clear(&r->progress);
    free(buf);
    return rc;
}

static enum merak_status reshard(struct reshard *r, struct merak_error *err)
{
    char model[PATH_MAX];
    bool was_there = access(r->out, F_OK) == 0;
    bool had_model =
        access(merak_path(model, r->out, MERAK_RUN_MODEL), F_OK) == 0;
    struct merak_ckpt_owner *owner = NULL;
    enum merak_status rc = merak_ckpt_owner_take(r->out, &owner, err);

    if (rc == MERAK_OK)
        rc = merak_ckpt_check_none(r->out, err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_room(r->out, (double)r->pieces.bytes, 1, 0, 0, err);
    if (rc == MERAK_OK) {
        rc = copy_model(r, err);
        if (rc == MERAK_OK)
            rc = write_out(r, err);
        if (rc != MERAK_OK && !had_model)
            (void)merak_dir_remove(model, NULL);
    }
    merak_ckpt_owner_destroy(owner);
    if (rc != MERAK_OK && !was_there)
        (void)rmdir(r->out);
    return rc;
}

static int conclude(const struct reshard *r, double seconds)
{
    const struct merak_ckpt_manifest *mf = merak_ckpt_manifest(r->from);
    char name[MERAK_CKPT_NAME], to[PATH_MAX], size[16];
    char degrees[MERAK_DEGREES_TEXT];

    merak_path(to, r->out,
               merak_ckpt_name(name, mf->state.step, MERAK_CKPT_PLAIN));
    if (r->json)
        return ckpt_flushed_json(
            "reshard",
            json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:f}", "from",
                      merak_ckpt_path(r->from), "out", to, "tp", r->tp, "pp",
                      r->pp, "dp", r->dp, "tensors", mf->n_tensors, "shards",
                      r->pieces.n_ranks, "bytes", (json_int_t)r->pieces.bytes,
                      "seconds", seconds),
            MERAK_EXIT_DONE);
    printf(
        "%s: %d tensor%s in %d shard%s, %s, as tp %d, pp %d, dp %d, resharded "
        "in %.1f s from %s\n",
        to, mf->n_tensors, merak_plural(mf->n_tensors), r->pieces.n_ranks,
        merak_plural(r->pieces.n_ranks), ckpt_size_text(size, r->pieces.bytes),
        r->tp, r->pp, r->dp, seconds,
        merak_ckpt_degrees(&mf->state, ", ", degrees));
    return ckpt_flushed("reshard", MERAK_EXIT_DONE);
}

int ckpt_run_reshard(int argc, char **argv)
{
    struct reshard r = {.tp = 1, .pp = 1, .dp = 1, .zero = 1};
    int64_t start_ns = merak_clock_ns();
    struct ckpt_words words;
    struct merak_error err;
    enum merak_status rc;
    int code = ckpt_parse(&ckpt_reshard_options, &r, argc, argv, 1, 1,
                          "a directory", &words);

    if (code != MERAK_EXIT_DONE)
        return code;
    if (r.out == NULL)
        return merak_cmd_misused("ckpt", "reshard: no --out given");
    merak_cmd_catch_stops();
    rc = merak_output_folder_check("--out", r.out, &err);
    if (rc == MERAK_OK)
        rc = merak_ckpt_open(words.word[0], &r.from, &err);
    if (rc == MERAK_OK)
        rc = find_model(&r, &err);
    if (rc == MERAK_OK) {
        const struct reshard_layout layout = {
            r.tp,   r.pp,    r.dp,
            r.zero, r.model, (enum merak_hf_unknown)r.unknown};

        rc = reshard_pieces_init(&r.pieces, r.from, &layout, &err);
    }
    if (rc == MERAK_OK)
        rc = reshard(&r, &err);
    code = rc == MERAK_OK ? conclude(&r, merak_clock_since_s(start_ns))
                          : ckpt_failed("reshard", rc, &err);
    reshard_pieces_fini(&r.pieces);
    merak_ckpt_close(r.from);
    merak_cmd_die_of_stop();
    return code;
}
