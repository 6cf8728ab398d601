/* SPDX-License-Identifier: Apache-2.0 */
/* io/h5.h - the HDF5 code that checkpoints and traces share
 *
 * HDF5's codes and messages are translated only here, by merak_h5_fail().
 */
#ifndef MERAK_IO_H5_H
#define MERAK_IO_H5_H

#include <stdbool.h>
#include <stdint.h>

#include <hdf5.h>

#include "io/h5_built_in.h"
#include "merak/status.h"

/*
 * HDF5 prints its error stack by default.  Between these two calls that is
 * off, and restored afterwards, since the program may use HDF5 itself.  They
 * also lock HDF5: most builds are not thread-safe, and a checkpoint may be
 * written while a trace is.  May be nested; do nothing slow inside.
 */
struct merak_h5_quiet {
    H5E_auto2_t fn;
    void *arg;
};
void merak_h5_quiet(struct merak_h5_quiet *saved);
void merak_h5_restore(const struct merak_h5_quiet *saved);

/*
 * The status and text for the HDF5 call that just failed on this thread:
 * "what: HDF5's innermost message".  MERAK_ERR_NOSPACE when the file system
 * is full, else MERAK_ERR_IO.  Call it before any other HDF5 function.
 */
enum merak_status merak_h5_fail(struct merak_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Close any object except a file; negative: none.  Keeps the message of a call
 * that failed before. */
void merak_h5_drop(hid_t object);

/* Create (it must not exist) or open read-only; < 0 on failure. */
hid_t merak_h5_create(const char *path);
hid_t merak_h5_open(const char *path);

/*
 * A file that HDF5 lays out in memory and that is then written to disk: lay
 * out, copy out, write the raw data, sync, unstage.  Space for raw data
 * (merak_h5_dataset()) takes no memory unless HDF5 writes it; H5Dget_offset()
 * returns its offset.
 */
struct merak_h5_stage {
    int disk;                     /* the file itself */
    struct merak_h5_image *image; /* as HDF5 laid it out: h5_image.h */
};
/* Create a file's contents; false: an HDF5 call failed. */
typedef bool (*merak_h5_make_fn)(hid_t file, void *arg);
/* The file must not exist.  Unstage after a failure as well. */
enum merak_status merak_h5_lay_out(const char *path, merak_h5_make_fn make,
                                   void *arg, struct merak_h5_stage *stage,
                                   struct merak_error *err) MERAK_CHECKED;
/* Give the file its size and its metadata. */
enum merak_status merak_h5_copy_out(const struct merak_h5_stage *stage,
                                    const char *path,
                                    struct merak_error *err) MERAK_CHECKED;
/* Flush to stable storage and close. */
enum merak_status merak_h5_sync(struct merak_h5_stage *stage, const char *path,
                                struct merak_error *err) MERAK_CHECKED;
void merak_h5_unstage(struct merak_h5_stage *stage);
/* All of these for a file without raw data; a failure leaves no file. */
enum merak_status merak_h5_write(const char *path, merak_h5_make_fn make,
                                 void *arg,
                                 struct merak_error *err) MERAK_CHECKED;

/* The descriptor of an open file, or -1. */
int merak_h5_descriptor(hid_t file);
/* Create the missing groups of a name, without timestamps, so that the same
 * content gives the same bytes.  False on failure. */
bool merak_h5_make_groups(hid_t file, const char *name);
/* A contiguous dataset, allocated early and never filled, with its groups; < 0
 * on failure. */
hid_t merak_h5_dataset(hid_t file, const char *name, hid_t type, hid_t space);

/* The elements of a dataset, of `bytes` each in memory; false where they cannot
 * all be in the file, or lie in another one: what a file says of its size is
 * not believed before memory is taken for it. */
bool merak_h5_count(hid_t set, size_t bytes, size_t *n_p);

/* Attributes; false on failure. */
bool merak_h5_put_text(hid_t object, const char *name, const char *text);
bool merak_h5_put_u64(hid_t object, const char *name, const uint64_t *value,
                      int n);
bool merak_h5_put_number(hid_t object, const char *name, uint64_t value);
/* One text of at most size - 1 bytes; exactly n values. */
bool merak_h5_get_text(hid_t object, const char *name, char *text, size_t size);
bool merak_h5_get_u64(hid_t object, const char *name, uint64_t *value, int n);

#endif
