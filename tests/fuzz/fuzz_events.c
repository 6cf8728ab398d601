/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_events.c - TensorBoard's event files, of which a run that resumes takes
 * out steps */
#include "config.h"

#include "fuzz/fuzz.h"

#include "io/event_file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "events.out.tfevents.0000000001.x.merak"

/* Remove all but NAME from this process' directory; add it as a seed if
 * asked. */
static void clean(bool seed)
{
    DIR *list = opendir(fuzz_dir());
    const struct dirent *entry;

    fuzz_must(list != NULL, "the directory is there");
    while ((entry = readdir(list)) != NULL) {
        const char *path = fuzz_path(entry->d_name);

        if (entry->d_name[0] == '.' || strcmp(entry->d_name, NAME) == 0)
            continue;
        if (seed)
            fuzz_add_file(-1, path);
        (void)unlink(path);
    }
    closedir(list);
}

static void write_start(uint64_t after, uint64_t last)
{
    struct merak_event_file *file = NULL;
    struct merak_error err = {.text = ""};
    enum merak_status rc =
        merak_event_file_open(fuzz_dir(), after, true, &file, &err);

    for (uint64_t step = after + 1; rc == MERAK_OK && step <= last; step++) {
        const struct merak_scalar s = {"train/loss", 1.0 / (double)step};

        rc = merak_event_file_add(file, 1.5e9, step, &s, 1, &err);
    }
    fuzz_must(rc == MERAK_OK, "whatever is in the file, the run goes on");
    merak_event_file_close(file);
}

void fuzz_seeds(void)
{
    write_start(0, 9);
    clean(true);
    write_start(300, 303);
    clean(true);
}

/* The size of NAME. */
static long bytes_left(void)
{
    FILE *f = fopen(fuzz_path(NAME), "rb");
    long n;

    fuzz_must(f != NULL && fseek(f, 0, SEEK_END) == 0, "the file stays");
    n = ftell(f);
    fclose(f);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    long once;

    fuzz_file(NAME, data, n);
    write_start(4, 4);
    once = bytes_left();
    fuzz_must(once <= (long)n, "taking out adds nothing");
    clean(false);
    write_start(4, 4);
    fuzz_must(bytes_left() == once, "what was taken out is out");
    clean(false);
    return 0;
}
