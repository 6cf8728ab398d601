/* SPDX-License-Identifier: Apache-2.0 */
/* near.h - comparing arrays of numbers in tests */
#ifndef MERAK_TESTS_NEAR_H
#define MERAK_TESTS_NEAR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#define DEFINE_CHECK_NEAR(suffix, type)                                        \
    static inline void check_near_##suffix(                                    \
        const type *got, const type *want, size_t n, double rel, double abs,   \
        const char *file, int line)                                            \
    {                                                                          \
        for (size_t i = 0; i < n; i++) {                                       \
            double g = (double)got[i], w = (double)want[i];                    \
                                                                               \
            if (fabs(g - w) <= abs + rel * fabs(w))                            \
                continue;                                                      \
            print_error("element %zu of %zu: got %.9g, want %.9g\n", i, n, g,  \
                        w);                                                    \
            _fail(file, line);                                                 \
        }                                                                      \
    }
DEFINE_CHECK_NEAR(f32, float)
DEFINE_CHECK_NEAR(f64, double)

/* |got - want| <= abs + rel * |want| for every element (NaN fails); names
 * the first that is not. */
#define assert_near(got, want, n, rel, abs)                                    \
    _Generic(*(got), float: check_near_f32, double: check_near_f64)(           \
        (got), (want), (n), (rel), (abs), __FILE__, __LINE__)

#endif
