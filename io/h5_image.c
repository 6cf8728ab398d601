/* SPDX-License-Identifier: Apache-2.0 */
/* h5_image.c - an HDF5 file in memory, holding only the pages written
 *
 * This is an HDF5 file driver.  HDF5 1.10 crashes once a write fails (h5.c),
 * and writes to a memfd fail beyond `ulimit -f`, as on a disk.  Here none
 * fails: without memory for a page the write is dropped, and the image's
 * creator is told so at the end.
 *
 * Pages are in file order, and pages that were never written take no memory:
 * the space for raw data, which is most of a file.
 */
#include "config.h"

#include "io/h5_image.h"

#include "base/bisect.h"

#include <stdlib.h>
#include <string.h>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

#define PAGE ((size_t)4096)

struct page {
    uint64_t number; /* at offset number * PAGE */
    char *bytes;
};

struct merak_h5_image {
    struct page *page;
    size_t n, room;
    uint64_t bytes;
    bool lacks; /* a page, for lack of memory */
};

/* --- pages ------------------------------------------------------------------
 */

struct merak_h5_image *merak_h5_image_create(void)
{
    return calloc(1, sizeof(struct merak_h5_image));
}

void merak_h5_image_destroy(struct merak_h5_image *image)
{
    if (image == NULL)
        return;
    for (size_t i = 0; i < image->n; i++)
        free(image->page[i].bytes);
    free(image->page);
    free(image);
}

/* The first page with this number or a higher one. */
static size_t find_page(const struct merak_h5_image *image, uint64_t number)
{
    size_t i;

    MERAK_BISECT(i, 0, image->n, image->page[i].number >= number);
    return i;
}

static bool has_page(const struct merak_h5_image *image, size_t i,
                     uint64_t number)
{
    return i < image->n && image->page[i].number == number;
}

static char *add_page(struct merak_h5_image *image, size_t i, uint64_t number)
{
    char *bytes = calloc(1, PAGE);

    if (bytes != NULL && image->n == image->room) {
        size_t room = image->room == 0 ? 64 : 2 * image->room;
        void *page = realloc(image->page, room * sizeof(*image->page));

        if (page == NULL) {
            free(bytes);
            return NULL;
        }
        image->page = page;
        image->room = room;
    }
    if (bytes == NULL)
        return NULL;
    memmove(&image->page[i + 1], &image->page[i],
            (image->n - i) * sizeof(*image->page));
    image->page[i] = (struct page){number, bytes};
    image->n++;
    return bytes;
}

/* How many of the n bytes from `at` on are in the same page. */
static size_t within_page(uint64_t at, size_t n)
{
    size_t left = PAGE - (size_t)(at % PAGE);

    return n < left ? n : left;
}

static void put(struct merak_h5_image *image, uint64_t at, const char *from,
                size_t n)
{
    while (n > 0) {
        size_t some = within_page(at, n), i = find_page(image, at / PAGE);
        char *bytes = has_page(image, i, at / PAGE)
                          ? image->page[i].bytes
                          : add_page(image, i, at / PAGE);

        if (bytes == NULL)
            image->lacks = true;
        else
            memcpy(bytes + at % PAGE, from, some);
        at += some;
        from += some;
        n -= some;
    }
    image->bytes = at > image->bytes ? at : image->bytes;
}

void merak_h5_image_read(const struct merak_h5_image *image, uint64_t at,
                         void *buf, size_t n)
{
    char *to = buf;

    while (n > 0) {
        size_t some = within_page(at, n), i = find_page(image, at / PAGE);

        if (has_page(image, i, at / PAGE))
            memcpy(to, image->page[i].bytes + at % PAGE, some);
        else
            memset(to, 0, some);
        at += some;
        to += some;
        n -= some;
    }
}

bool merak_h5_image_next(const struct merak_h5_image *image, uint64_t *at,
                         uint64_t *end_p)
{
    size_t i = find_page(image, *at / PAGE);
    uint64_t lo, end;

    if (i == image->n || image->page[i].number * PAGE >= image->bytes)
        return false;
    lo = image->page[i].number * PAGE;
    end = lo + PAGE;
    while (has_page(image, ++i, end / PAGE))
        end += PAGE;
    *at = lo > *at ? lo : *at;
    *end_p = end < image->bytes ? end : image->bytes;
    return *at < *end_p;
}

bool merak_h5_image_is_whole(const struct merak_h5_image *image)
{
    return !image->lacks;
}

uint64_t merak_h5_image_bytes(const struct merak_h5_image *image)
{
    return image->bytes;
}

/* --- the driver -------------------------------------------------------------
 */

/* The driver's data in the file access property list; HDF5 copies it. */
struct driver_info {
    struct merak_h5_image *image;
};

struct driver_file {
    H5FD_t base; /* HDF5's own, first */
    struct merak_h5_image *image;
    haddr_t end; /* of the space that HDF5 has allocated */
};

static struct merak_h5_image *image_of(const H5FD_t *file)
{
    return ((const struct driver_file *)(const void *)file)->image;
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl,
                           haddr_t most)
{
    const struct driver_info *info = H5Pget_driver_info(fapl);
    struct driver_file *file =
        info == NULL ? NULL : calloc(1, sizeof(struct driver_file));

    (void)name;
    (void)flags;
    (void)most;
    if (file == NULL)
        return NULL;
    file->image = info->image;
    return &file->base;
}

static herr_t driver_close(H5FD_t *file)
{
    free(file);
    return 0;
}

/* The flags of HDF5's own file driver, so that the layout is the same. */
static herr_t driver_query(const H5FD_t *file, unsigned long *flags)
{
    (void)file;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA |
             H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA |
             H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const struct driver_file *)(const void *)file)->end;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    ((struct driver_file *)(void *)file)->end = end;
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return image_of(file)->bytes;
}

static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at,
                          size_t n, void *buf)
{
    (void)type;
    (void)dxpl;
    merak_h5_image_read(image_of(file), at, buf, n);
    return 0;
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl,
                           haddr_t at, size_t n, const void *buf)
{
    (void)type;
    (void)dxpl;
    put(image_of(file), at, buf, n);
    return 0;
}

/* The file includes raw data that HDF5 has not written. */
static herr_t driver_truncate(H5FD_t *file, hid_t dxpl, hbool_t closing)
{
    (void)dxpl;
    (void)closing;
    image_of(file)->bytes = ((struct driver_file *)(void *)file)->end;
    return 0;
}

static const H5FD_class_t driver = {
#if H5_VERSION_GE(1, 13, 0)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)(H5_VFD_RESERVED + 1), /* unique */
#endif
    .name = "merak-image",
    .maxaddr = (haddr_t)INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(struct driver_info),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .truncate = driver_truncate,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* The driver stays registered: HDF5 would free it with the last file that uses
 * it, and then call its close. */
hid_t merak_h5_image_file(struct merak_h5_image *image, hid_t fcpl, hid_t fapl)
{
    static hid_t id = H5I_INVALID_HID; /* guarded by the lock on HDF5 */
    const struct driver_info info = {image};

    if (H5Iis_valid(id) <= 0)
        id = H5FDregister(&driver);
    if (id < 0 || H5Pset_driver(fapl, id, &info) < 0)
        return -1;
    return H5Fcreate("image", H5F_ACC_TRUNC, fcpl, fapl);
}
