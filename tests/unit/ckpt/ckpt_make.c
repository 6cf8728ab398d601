/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_make.c - writes a checkpoint for the scripts in tests/t
 *
 * ckpt_make DIR STEP TP PP DP ZERO: saves the model of ckpt_world.c, and
 * writes what each tensor must read as to DIR.want/NAME (raw f32, slashes of
 * the name as dots).
 */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int write_want(const char *dir, const struct world_tensor *t,
                      uint64_t step)
{
    size_t n = merak_shape_count(&t->shape);
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s.want/%s", dir, t->name);
    for (char *p = path + strlen(dir) + 6; *p != '\0'; p++)
        *p = *p == '/' ? '.' : *p;
    file = fopen(path, "w");
    if (file == NULL)
        return 1;
    for (size_t i = 0; i < n; i++) {
        float value = world_value(t->name, i, step);

        fwrite(&value, sizeof(value), 1, file);
    }
    return fclose(file);
}

int main(int argc, char **argv)
{
    struct world_layout layout;
    struct merak_error err;
    char want[512];
    uint64_t step;

    if (argc != 7)
        return 66;
    step = strtoull(argv[2], NULL, 10);
    layout = (struct world_layout){atoi(argv[3]), atoi(argv[4]), atoi(argv[5]),
                                   atoi(argv[6]) != 0};
    if (world_save(argv[1], &layout, step, 0, &err) != MERAK_OK) {
        fprintf(stderr, "%s\n", err.text);
        return err.status == MERAK_ERR_NOSPACE ? 69 : 1;
    }
    snprintf(want, sizeof(want), "%s.want", argv[1]);
    (void)mkdir(want, 0777);
    for (int i = 0; i < world_n_tensors; i++) {
        if (write_want(argv[1], &world_tensors[i], step) != 0)
            return 1;
    }
    return 0;
}
