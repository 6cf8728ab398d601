/* SPDX-License-Identifier: Apache-2.0 */
/* kcase.h - kernel calls made from a table, for the tests of backends
 *
 * A case is one call of one op with its operands allocated and filled.  Rows
 * for gradients name the forward op and which of its operands go where, so
 * that what a gradient reads (mean, lse, ..) is what the forward kernel
 * wrote.
 */
#ifndef MERAK_TESTS_KCASE_H
#define MERAK_TESTS_KCASE_H

#include "kernels/geometry.h"
#include "kernels/kernels.h"

/* Dtype classes of operands in rows. */
enum {
    KC_COMPUTE = 'c', /* the case's compute dtype */
    KC_FLOAT = 'f',   /* f32; f64 in an f64 case */
    KC_DOUBLE = 'd',
    KC_IDS = 'i', /* i32 in [0, row->vocab) */
    KC_BF16 = 'b',
    KC_POSITIVE = 'p', /* KC_FLOAT, filled from [0.5, 1.5] */
    KC_SUMS = 'v',     /* f64 [.., 2], sums and sums of squares of some numbers
                          with a variance */
    KC_SHARES = 'w',   /* f64 in [0.5, 1.5] */
    KC_COUNTS = 'n',   /* KC_COMPUTE, filled from [0.5, 1.5] */
    KC_STARTS = 's',   /* i32 [B, T], where documents of a few tokens start */
    KC_LENGTHS = 'l',  /* i32 [B] in [1, row->vocab]: keys of samples */
    KC_PREFIX = 'x',   /* i32 [B] in [0, row->vocab]: keys that all see; the
                          last one is most of them */
    KC_TABLE = 'y',    /* KC_COMPUTE: biases of attention */
    KC_SINKS = 'z',    /* KC_FLOAT: sinks of attention */
    KC_PAIRS = 'q',    /* i32 [B, T], where second answers of a few tokens
                          begin, or 0 */
    KC_REST = 'r',     /* KC_IDS, every third of them of no expert */
    KC_PLACES = 'm',   /* KC_FLOAT [B, E, 1 + R]: a number up to R, then any */
    KC_BITS = 'k',     /* i32, of a row of attrs.i[1] elements a bit each, of
                          which attrs.i[0] are set */
    KC_TARGETS = 't',  /* KC_IDS, every third of them MERAK_NO_TARGET */
};

#define KC_NAME 28
struct kc_operand {
    char type;
    int ndim;
    size_t dim[MERAK_MAX_DIMS];
};

struct kc_row {
    char op[KC_NAME];
    int n_in, n_out;
    struct kc_operand operand[MERAK_MAX_OPERANDS];
    struct merak_attrs attrs;
    size_t vocab;
    bool weights; /* outputs are f32 and accumulate */
};

/* Where a gradient call's operand comes from: a forward operand's index, the
 * gradient that comes in (KC_DY), or D(k), the gradient of forward operand k,
 * which the call writes. */
#define KC_DY (-1)
#define KC_D(k) (-2 - (k))
/* The gradient that comes in of output k, where there are several. */
#define KC_DY_OF(k) (-50 - (k))
/* Output k of the gradient that is named `after`, from the same KC_DY, which
 * comes before. */
#define KC_MADE(k) (-100 - (k))
/* An output that is KC_D(k) before it is summed over samples, f32 [B, ..]. */
#define KC_BY_SAMPLE(k) (-200 - (k))
struct kc_grad {
    char op[KC_NAME], forward[KC_NAME];
    int n_in, n_out, from[MERAK_MAX_OPERANDS];
    bool weights;   /* outputs are f32 and accumulate */
    int forward_in; /* inputs of the forward op; 0: any number */
    const char *after;
};
extern const struct kc_grad kc_grads[];
extern const int kc_n_grads;

struct kc {
    struct merak_kernel_call call;
    struct merak_attrs attrs;
    struct merak_step step;
    char op[KC_NAME];
    unsigned char guard;  /* what the bytes behind each operand hold */
    unsigned char poison; /* what scratch begins as: NaNs */
};

/* Is this the gradient of that call? */
bool kc_grad_fits(const struct kc_grad *grad, const struct kc *forward);
/* The share of tokens that documents start at. */
extern double kc_document_starts;

/* Are these experts that share a pool? */
bool kc_shares_pool(const struct kc *c);

/* Rows of every forward op at a size: 0 is smallest.  Returns how many. */
int kc_rows(int size, struct kc_row *row, int max);
/* Those of ops with windows, which it has, too. */
int kc_window_rows(int size, struct kc_row *row, int max);
/* Those of norms and joins of channels. */
int kc_channel_rows(int size, struct kc_row *row, int max);
#define KC_MAX_ROWS 160
#define KC_SIZES 5
/* Those of attention: B samples of T queries, G kv heads of R heads. */
struct kc_heads {
    size_t B, T, G, R, D;
};
int kc_attention_rows(const struct kc_heads *h, struct kc_row *row, int max);
/* Row i of attention over several tiles with masks that are not causal; returns
 * how many there are. */
int kc_mask_row(int i, struct kc_row *row);

/* Allocate and fill inputs; outputs are filled too (for accumulation). */
void kc_create(struct kc *c, const struct kc_row *row, enum merak_dtype dtype,
               uint64_t seed);
/* A gradient call from a forward case that has been run. */
void kc_create_grad(struct kc *c, const struct kc_grad *grad,
                    const struct kc *forward, enum merak_dtype dtype,
                    uint64_t seed);
/* Of a gradient that has only what another one makes, the call that made it,
 * whose operand 0 is the gradient that comes in; else zeros. */
void kc_create_before(struct kc *c, const struct kc_grad *grad,
                      const struct kc *forward, enum merak_dtype dtype);
void kc_destroy(struct kc *c);
/* Fresh storage, same contents. */
void kc_copy(struct kc *to, const struct kc *from);
/* An operand in f32 as one in bf16. */
void kc_round(struct kc *c, int operand);
/* Run under a backend; fails the test if the kernel fails or writes past an
 * operand or its scratch. */
void kc_run(struct kc *c, const char *backend);
/* The same, of a backend that need not be registered. */
void kc_run_on(struct kc *c, const struct merak_backend *backend);

size_t kc_count(const struct kc *c, int operand);
double kc_get(const struct kc *c, int operand, size_t i);
void kc_set(struct kc *c, int operand, size_t i, double value);
/* The part [lo, lo + len) of dim of an operand, from whole into part. */
void kc_slice(struct kc *part, const struct kc *whole, int operand, int dim,
              size_t lo, size_t len);

#endif
