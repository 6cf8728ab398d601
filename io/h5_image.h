/* SPDX-License-Identifier: Apache-2.0 */
/* io/h5_image.h - an HDF5 file in memory, holding only the pages written
 *
 * For h5.c, which holds the lock on HDF5 (merak_h5_quiet()).
 */
#ifndef MERAK_IO_H5_IMAGE_H
#define MERAK_IO_H5_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hdf5.h>

struct merak_h5_image;

/* NULL: no memory. */
struct merak_h5_image *merak_h5_image_create(void);
void merak_h5_image_destroy(struct merak_h5_image *image);
/* Create a file in the image, with property lists; sets the driver in `fapl`.
 * < 0 on failure.  The image must outlive the file. */
hid_t merak_h5_image_file(struct merak_h5_image *image, hid_t fcpl, hid_t fapl);

/* After closing the file: false if memory did not suffice for all of it. */
bool merak_h5_image_is_whole(const struct merak_h5_image *image);
uint64_t merak_h5_image_bytes(const struct merak_h5_image *image);
/* The next range *at .. *end_p that was written, at *at or after it.  False:
 * there is none. */
bool merak_h5_image_next(const struct merak_h5_image *image, uint64_t *at,
                         uint64_t *end_p);
/* Reads zeros where nothing was written.  Thread-safe once the file is
 * closed. */
void merak_h5_image_read(const struct merak_h5_image *image, uint64_t at,
                         void *buf, size_t n);

#endif
