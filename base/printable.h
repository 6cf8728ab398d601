/* SPDX-License-Identifier: Apache-2.0 */
/* base/printable.h - text from files, without what a terminal would obey
 *
 * Whoever can write a run's files chooses the strings in them, and a terminal
 * takes orders from control characters: of ASCII, of C1 (in UTF-8 U+0080 to
 * U+009F; alone, their bytes are no valid UTF-8), and from what it makes of
 * bytes that are no UTF-8.  All of these are replaced here and nowhere else:
 * in errors and log lines (merak_keep_to_a_line()), in what commands print
 * (merak_screen_open()), and in pages (merak_svg_text()).
 */
#ifndef MERAK_BASE_PRINTABLE_H
#define MERAK_BASE_PRINTABLE_H

#include <stddef.h>
#include <stdio.h>

/* Bytes of the character at `text`, of which n >= 1 bytes are there; 0 if it
 * is a control character or not valid UTF-8. */
size_t merak_printable(const char *text, size_t n);
/* Make one line of a text, in place and of the same length: newlines and tabs
 * become blanks, other bytes of control characters and of bad UTF-8 "?". */
void merak_keep_to_a_line(char *text);
/*
 * A stream that writes to descriptor fd with newlines and tabs as they are,
 * other control characters as \u001b and bytes that are no UTF-8 as \xff.
 * In JSON, where these can only be in strings, the values stay the same.
 *
 * Buffered by line if fd is a terminal.  fclose() does not close fd.  NULL if
 * there is no memory.
 */
FILE *merak_screen_open(int fd);

#endif
