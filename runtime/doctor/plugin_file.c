/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_file.c - which release of Slurm a plugin was built for
 *
 * Slurm compares `plugin_version`, a 32-bit constant that each of its plugins
 * exports, with its own.  It is read from the file: a plugin can be loaded
 * only into the program that it is for.
 */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/open.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Larger than any plugin. */
#define MOST_BYTES (64 << 20)

struct image {
    const unsigned char *data;
    size_t bytes;
};

/* NULL if the file does not contain all of it. */
static const void *part(const struct image *im, uint64_t at, uint64_t bytes)
{
    return at <= im->bytes && bytes <= im->bytes - at ? im->data + at : NULL;
}

/* Copies, since data in a file may be unaligned. */
static bool copy_part(const struct image *im, uint64_t at, void *to, size_t n)
{
    const void *from = part(im, at, n);

    if (from != NULL)
        memcpy(to, from, n);
    return from != NULL;
}

static bool section(const struct image *im, const Elf64_Ehdr *head,
                    unsigned int i, Elf64_Shdr *s)
{
    return i < head->e_shnum &&
           copy_part(im, head->e_shoff + (uint64_t)i * sizeof(*s), s,
                     sizeof(*s));
}

/* Address and section of the symbol; false: it has none. */
static bool find_symbol(const struct image *im, const Elf64_Ehdr *head,
                        const char *name, Elf64_Sym *sym)
{
    size_t length = strlen(name) + 1;
    Elf64_Shdr table, names;

    for (unsigned int i = 0; section(im, head, i, &table); i++) {
        if (table.sh_type != SHT_DYNSYM ||
            !section(im, head, table.sh_link, &names))
            continue;
        for (uint64_t at = 0; at + sizeof(*sym) <= table.sh_size;
             at += sizeof(*sym)) {
            const char *text;

            if (!copy_part(im, table.sh_offset + at, sym, sizeof(*sym)))
                return false;
            text = part(im, names.sh_offset + sym->st_name, length);
            if (text != NULL && memcmp(text, name, length) == 0)
                return true;
        }
    }
    return false;
}

static uint32_t release_in(const struct image *im)
{
    Elf64_Shdr home;
    Elf64_Ehdr head;
    Elf64_Sym sym;
    uint32_t release = 0;

    if (!copy_part(im, 0, &head, sizeof(head)) ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof(Elf64_Shdr) ||
        !find_symbol(im, &head, "plugin_version", &sym) ||
        !section(im, &head, sym.st_shndx, &home) ||
        !copy_part(im, sym.st_value - home.sh_addr + home.sh_offset, &release,
                   sizeof(release)))
        return 0;
    return release;
}

uint32_t merak_plugin_release(const char *path)
{
    struct image im = {NULL, 0};
    unsigned char *data;
    uint32_t release = 0;
    struct stat st;
    int fd = -1;

    if (merak_open_regular(path, &fd) != NULL)
        return 0;
    if (fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size < MOST_BYTES) {
        im.bytes = (size_t)st.st_size;
        data = malloc(im.bytes);
        im.data = data;
        if (data != NULL && pread(fd, data, im.bytes, 0) == (ssize_t)im.bytes)
            release = release_in(&im);
        free(data);
    }
    close(fd);
    return release;
}
