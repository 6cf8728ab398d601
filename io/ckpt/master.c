/* SPDX-License-Identifier: Apache-2.0 */
/* master.c - the file in which every tensor of a checkpoint is whole
 *
 * One virtual dataset per tensor, composed of datasets of shard files.
 * Sources are named without a directory: HDF5 looks for them next to the
 * master, whatever the working directory.  HDF5 returns fill values for a
 * source that it cannot open, without an error, hence the NaN.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/h5.h"

#include <math.h>
#include <stdio.h>

static hid_t tensor_space(const struct merak_ckpt_tensor *t)
{
    hsize_t dim[MERAK_MAX_DIMS] = {1};
    /* A virtual dataset cannot be scalar. */
    int ndim = t->shape.ndim > 0 ? t->shape.ndim : 1;

    for (int d = 0; d < t->shape.ndim; d++)
        dim[d] = t->shape.dim[d];
    return H5Screate_simple(ndim, dim, NULL);
}

/* Map one shard's dataset to its box of the whole. */
static bool add_source(hid_t dcpl, hid_t space,
                       const struct merak_ckpt_manifest *mf,
                       const struct merak_ckpt_part *part)
{
    hsize_t lo[MERAK_MAX_DIMS] = {0}, len[MERAK_MAX_DIMS] = {1};
    char name[MERAK_CKPT_MAX_DATASET];
    hid_t source;
    bool ok;

    for (int d = 0; d < part->box.ndim; d++) {
        lo[d] = part->box.lo[d];
        len[d] = part->box.len[d];
    }
    source = part->box.ndim == 0 ? H5Screate(H5S_SCALAR)
                                 : H5Screate_simple(part->box.ndim, len, NULL);
    merak_ckpt_dataset_name(name, part->tensor, &part->box);
    ok = source >= 0 &&
         H5Sselect_hyperslab(space, H5S_SELECT_SET, lo, NULL, len, NULL) >= 0 &&
         H5Pset_virtual(dcpl, space, mf->shard[part->shard].name, name,
                        source) >= 0;
    merak_h5_drop(source);
    return ok;
}

static bool write_tensor(hid_t file, const struct merak_ckpt_manifest *mf,
                         const struct merak_ckpt_tensor *t)
{
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = tensor_space(t), set = -1;
    const float nan_value = NAN;
    bool ok = dcpl >= 0 && space >= 0 && merak_h5_make_groups(file, t->name) &&
              H5Pset_obj_track_times(dcpl, false) >= 0 &&
              H5Pset_fill_value(dcpl, H5T_NATIVE_FLOAT, &nan_value) >= 0;

    for (int i = 0; i < t->n && ok; i++)
        ok = add_source(dcpl, space, mf, &mf->part[t->first + i]);
    if (ok)
        set = H5Dcreate2(file, t->name, H5T_IEEE_F32LE, space, H5P_DEFAULT,
                         dcpl, H5P_DEFAULT);
    ok = set >= 0;
    merak_h5_drop(set);
    merak_h5_drop(space);
    merak_h5_drop(dcpl);
    return ok;
}

static bool put_state(hid_t file, const struct merak_ckpt_state *state)
{
    return merak_h5_put_text(file, "format", MERAK_CKPT_FORMAT) &&
           merak_h5_put_number(file, "version", MERAK_CKPT_VERSION) &&
           merak_h5_put_number(file, "step", state->step) &&
           merak_h5_put_number(file, "consumed_samples",
                               state->consumed_samples) &&
           merak_h5_put_number(file, "consumed_tokens",
                               state->consumed_tokens) &&
           merak_h5_put_number(file, "seed", state->seed) &&
           (state->seq == 0 || merak_h5_put_number(file, "seq", state->seq)) &&
           (state->global_batch == 0 ||
            merak_h5_put_number(file, "global_batch", state->global_batch)) &&
           (state->init_from[0] == '\0' ||
            merak_h5_put_text(file, "init_from", state->init_from)) &&
           (state->recipe[0] == '\0' ||
            merak_h5_put_text(file, "recipe", state->recipe)) &&
           (state->fingerprint[0] == '\0' ||
            merak_h5_put_text(file, "fingerprint", state->fingerprint)) &&
           (state->branch[0] == '\0' ||
            merak_h5_put_text(file, "branch", state->branch)) &&
           (state->steps == 0 ||
            merak_h5_put_number(file, "steps", state->steps)) &&
           merak_h5_put_text(file, "model_id", state->model_id) &&
           merak_h5_put_text(file, "data_id", state->data_id) &&
           merak_h5_put_text(file, "dtype", state->dtype) &&
           merak_h5_put_number(file, "tp", (uint64_t)state->tp) &&
           (state->cp <= 1 ||
            merak_h5_put_number(file, "cp", (uint64_t)state->cp)) &&
           (state->ep <= 1 ||
            merak_h5_put_number(file, "ep", (uint64_t)state->ep)) &&
           (state->stages[0] == '\0' ||
            merak_h5_put_text(file, "stages", state->stages)) &&
           merak_h5_put_number(file, "pp", (uint64_t)state->pp) &&
           merak_h5_put_number(file, "dp", (uint64_t)state->dp);
}

struct contents {
    const struct merak_ckpt_state *state;
    const struct merak_ckpt_manifest *mf;
};

static bool make_contents(hid_t file, void *arg)
{
    const struct contents *contents = arg;
    const struct merak_ckpt_manifest *mf = contents->mf;
    bool ok = put_state(file, contents->state);

    for (int i = 0; i < mf->n_tensors && ok; i++)
        ok = write_tensor(file, mf, &mf->tensor[i]);
    return ok;
}

enum merak_status merak_ckpt_master_write(const char *path,
                                          const struct merak_ckpt_state *state,
                                          const struct merak_ckpt_manifest *mf,
                                          struct merak_error *err)
{
    struct contents contents = {state, mf};

    return merak_h5_write(path, make_contents, &contents, err);
}

enum merak_status merak_ckpt_master_record(const char *path, json_t *root,
                                           struct merak_error *err)
{
    char hash[MERAK_HASH_TEXT], version[40];
    unsigned major, minor, release;
    struct merak_h5_quiet quiet;
    uint64_t bytes = 0;
    enum merak_status rc = merak_durable_hash(path, &bytes, hash, err);

    if (rc != MERAK_OK)
        return rc;
    merak_h5_quiet(&quiet);
    (void)H5get_libversion(&major, &minor, &release);
    merak_h5_restore(&quiet);
    snprintf(version, sizeof(version), "%u.%u.%u", major, minor, release);
    if (json_object_set_new(root, "hdf5", json_string(version)) != 0 ||
        json_object_set_new(root, "master",
                            json_pack("{s:s, s:I, s:s}", "file",
                                      MERAK_CKPT_MASTER, "bytes",
                                      (json_int_t)bytes, "xxh128", hash)) != 0)
        return merak_fail_nomem(err, 0);
    return MERAK_OK;
}
