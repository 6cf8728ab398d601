/* SPDX-License-Identifier: Apache-2.0 */
/* io/h5_image.h - a file of HDF5's in memory, of which there is what it wrote
 *
 * For h5.c, with HDF5 to itself (merak_h5_quiet()).
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
/* The file, new, by lists of which `fapl` is made to say where it is; < 0 on
 * failure.  The image outlives it. */
hid_t merak_h5_image_file(struct merak_h5_image *image, hid_t fcpl, hid_t fapl);

/* Of a file that was closed: false if memory did not suffice for all of it. */
bool merak_h5_image_is_whole(const struct merak_h5_image *image);
uint64_t merak_h5_image_bytes(const struct merak_h5_image *image);
/* Where there is something at *at or behind it: *at .. *end_p.  False: there is
 * nothing more. */
bool merak_h5_image_next(const struct merak_h5_image *image, uint64_t *at,
                         uint64_t *end_p);
/* Zeros where there is nothing.  Safe from any thread once it was closed. */
void merak_h5_image_read(const struct merak_h5_image *image, uint64_t at,
                         void *buf, size_t n);

#endif
