/* SPDX-License-Identifier: Apache-2.0 */
/* letters.h - which index runs along each dim of a value
 *
 * A dim's letter says what is counted along it:
 *
 *   b        samples of a micro-batch
 *   t, s     positions of a sequence, and of a second one
 *   z, y, x  points of space
 *   0        anything else: heads, channels, a vocabulary
 *
 * The inputs of a model have them from the start.  A node's output has the
 * letters of the inputs that the same index of the op's signature runs along,
 * and a gradient those of its value.  Parameters and their gradients have
 * none.  So nothing has to be concluded from extents: [4, 16, 8] may be four
 * samples of sixteen positions, or of sixteen rows of an image.
 */
#ifndef MERAK_PARTITIONER_GRAPH_LETTERS_H
#define MERAK_PARTITIONER_GRAPH_LETTERS_H

#include "partitioner/graph/graph.h"

#define MERAK_LETTER_SAMPLES 'b'
#define MERAK_LETTER_POSITIONS 't'

bool merak_letter_is_sequence(char letter);
/* z, y or x. */
bool merak_letter_is_space(char letter);
/* One of the above, not 0. */
bool merak_letter_is_known(char letter);

/* A value of a second sequence, or NULL. */
const struct merak_value *
merak_graph_second_sequence(const struct merak_graph *graph);
/* Do positions of the sequence run along dim 1?  In a single sequence, [1, T,
 * ..], each is contiguous then, and kernels may compute them part by part. */
bool merak_value_has_positions(const struct merak_value *value);
/* What a rank's part of a sample is a part of: positions, or, of a model
 * without sequences, the first dim of space that an input has; 0: neither. */
char merak_graph_sequence_letter(const struct merak_graph *graph);
/* The k-th dim of space that inputs have, of z, y and x in this order; 0: there
 * are fewer. */
char merak_graph_space_letter(const struct merak_graph *graph, int k);
/* MERAK_ERR_CONFIG if a length of sequences was given, not 0, and the model
 * has none. */
enum merak_status merak_graph_check_seq(const struct merak_graph *graph,
                                        size_t given,
                                        struct merak_error *err) MERAK_CHECKED;
/* The first input of a class, or -1. */
int merak_graph_input(const struct merak_graph *graph,
                      enum merak_input_class class);
/* Does a node compute something from positions that only whole sequences have?
 * Not if it is known what it reads of earlier ones (merak_node_reads_back()),
 * and that it reads nothing of later ones. */
bool merak_node_mixes_positions(const struct merak_node *node);

/* The signature of a node's op for its operands.  An index that runs along a
 * dim with a letter has that name, and no other index has the name of a letter.
 */
void merak_node_signature(const struct merak_node *node,
                          struct merak_signature *sig);

/* Give a node's outputs the letters of its inputs. */
void merak_node_pass_letters(const struct merak_node *node);
/* Give recycled values the letters of what is handed on to them, and pass
 * these on. */
void merak_graph_letter_recycled(struct merak_graph *graph);

#endif
