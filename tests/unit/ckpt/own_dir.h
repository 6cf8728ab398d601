/* SPDX-License-Identifier: Apache-2.0 */
/* own_dir.h - a directory of its own for every test */
#ifndef MERAK_TESTS_OWN_DIR_H
#define MERAK_TESTS_OWN_DIR_H

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"

static char dir[128];

static int make_dir(void **state)
{
    (void)state;
    world_make_dir(dir, sizeof(dir));
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    world_remove_dir(dir);
    return 0;
}

#define OWN_DIR_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

#endif
