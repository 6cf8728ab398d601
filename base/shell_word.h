/* SPDX-License-Identifier: Apache-2.0 */
/* base/shell_word.h - words of a command that is typed or run */
#ifndef MERAK_BASE_SHELL_WORD_H
#define MERAK_BASE_SHELL_WORD_H

#include <stdio.h>

/* Print a word as a POSIX shell takes it: quoted if it is not plain. */
void merak_put_shell_word(FILE *out, const char *word);

#endif
