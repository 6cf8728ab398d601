// SPDX-License-Identifier: Apache-2.0
/* cuda_sim.cc - threads of a block as contexts; see cuda_sim.h */
#include "config.h"

#include "kernels/cuda/cuda_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define MAX_THREADS 1024
#define LANES 32
#define STACK_BYTES ((size_t)1 << 16)
#define MAX_SHARED 16
#define MAX_COPIES 256 /* of a thread, under way */
#define MAX_EXCHANGE 32 /* bytes that a lane gives */
#define GUARD_BYTES 64
#define POISON 0xff /* NaN as a float, -1 as an index */

struct context {
#ifdef __x86_64__
    void *sp;
#else
    ucontext_t uc;
#endif
    void *stack; /* of threads, STACK_BYTES */
#ifdef __SANITIZE_ADDRESS__
    void *fake;
#endif
};

/* A copy that was started, at most 16 bytes. */
struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned bytes;
};

struct thread {
    struct context context;
    dim3 index;
    unsigned number;
    unsigned exchanges; /* that it has taken part in */
    struct copy copy[MAX_COPIES];
    unsigned n_copies; /* not waited for */
};

/* Who waits until all have come. */
struct barrier {
    struct thread *waiting[MAX_THREADS];
    unsigned n, all;
};

struct warp {
    struct barrier barrier;
    /* Two exchanges: while slow lanes read one, fast ones fill the other. */
    unsigned char given[2][LANES][MAX_EXCHANGE];
    const void *slot[2][LANES];
};

struct piece {
    const void *key;
    unsigned char *bytes;
    size_t size;
};

/* The one block that runs. */
static struct {
    struct thread thread[MAX_THREADS];
    struct thread *ready[MAX_THREADS];
    unsigned n_ready, n_finished, n_threads;
    struct barrier barrier;
    struct warp warp[MAX_THREADS / LANES];
    struct piece piece[MAX_SHARED];
    int n_pieces;
    struct thread *running;
    struct context host; /* where merak_sim_launch() goes on */
    void (*body)(void *arg);
    void *arg;
    uint64_t random;
} sim;

struct merak_sim_place merak_sim_at;

void merak_sim_fatal(const char *what)
{
    fprintf(stderr, "cuda_sim: block (%u, %u, %u), thread %u: %s\n",
            merak_sim_at.block.x, merak_sim_at.block.y, merak_sim_at.block.z,
            sim.running != NULL ? sim.running->number : 0, what);
    abort();
}

/* --- contexts --------------------------------------------------------------
 */

#ifdef __x86_64__
/* What a call keeps goes on the old stack; the new stack has the same. */
extern "C" void merak_sim_switch(void **from, void *to);
__asm__(".text\n"
        ".type merak_sim_switch, @function\n"
        "merak_sim_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size merak_sim_switch, . - merak_sim_switch\n");

static void swap_stacks(struct context *from, struct context *to)
{
    merak_sim_switch(&from->sp, to->sp);
}

/* Six registers, then where to go; there the stack is as behind a call. */
static void prepare(struct context *c, void (*entry)(void))
{
    void **top =
        reinterpret_cast<void **>(static_cast<char *>(c->stack) + STACK_BYTES);

    *--top = NULL; /* where entry would return to */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    c->sp = top;
}
#else
static void swap_stacks(struct context *from, struct context *to)
{
    swapcontext(&from->uc, &to->uc);
}

static void prepare(struct context *c, void (*entry)(void))
{
    getcontext(&c->uc);
    c->uc.uc_stack.ss_sp = c->stack;
    c->uc.uc_stack.ss_size = STACK_BYTES;
    c->uc.uc_link = NULL;
    makecontext(&c->uc, entry, 0);
}
#endif

#ifdef __SANITIZE_ADDRESS__
static const void *host_stack;
static size_t host_stack_bytes;

/* AddressSanitizer keeps what it knows of stacks by stack. */
static void arrive(struct context *self)
{
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(self->fake, &bottom, &bytes);
    if (self != &sim.host && host_stack == NULL) {
        host_stack = bottom;
        host_stack_bytes = bytes;
    }
}

static void switch_to(struct context *from, struct context *to)
{
    __sanitizer_start_switch_fiber(
        &from->fake, to->stack != NULL ? to->stack : host_stack,
        to->stack != NULL ? STACK_BYTES : host_stack_bytes);
    swap_stacks(from, to);
    arrive(from);
}

static void forget_frames(struct context *c)
{
    c->fake = NULL;
    ASAN_UNPOISON_MEMORY_REGION(c->stack, STACK_BYTES);
}

/* The next launch may be from another thread. */
static void forget_host(void)
{
    host_stack = NULL;
}
#else
static void arrive(struct context *self)
{
    (void)self;
}

static void switch_to(struct context *from, struct context *to)
{
    swap_stacks(from, to);
}

static void forget_frames(struct context *c)
{
    (void)c;
}

static void forget_host(void)
{
}
#endif

/* --- threads ---------------------------------------------------------------
 */

static unsigned draw(unsigned n)
{
    sim.random = sim.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((sim.random >> 33) % n);
}

/* One of those that can run, at random. */
static struct thread *pick(void)
{
    unsigned i = draw(sim.n_ready);
    struct thread *t = sim.ready[i];

    sim.ready[i] = sim.ready[--sim.n_ready];
    return t;
}

/* Leave the thread that runs; it has put itself where it will be found. */
static void leave(struct thread *self)
{
    struct context *to = &sim.host;

    if (sim.n_ready > 0) {
        sim.running = pick();
        to = &sim.running->context;
        merak_sim_at.thread = sim.running->index;
    } else if (sim.n_finished < sim.n_threads) {
        merak_sim_fatal(
            "other threads wait at a barrier that this one never reaches");
    }
    if (to != &self->context)
        switch_to(&self->context, to);
}

static void enter(void)
{
    struct thread *self = sim.running;

    arrive(&self->context);
    sim.body(sim.arg);
    if (self->n_copies > 0)
        merak_sim_fatal("a thread ends before its copies");
    sim.n_finished++;
    leave(self);
    merak_sim_fatal("a thread that had ended was run");
}

static void meet(struct barrier *b)
{
    struct thread *self = sim.running;

    b->waiting[b->n++] = self;
    if (b->n == b->all) {
        for (unsigned i = 0; i < b->n; i++)
            sim.ready[sim.n_ready++] = b->waiting[i];
        b->n = 0;
    }
    leave(self);
}

void merak_sim_block_barrier(void)
{
    meet(&sim.barrier);
}

void merak_sim_warp_barrier(void)
{
    meet(&sim.warp[sim.running->number / LANES].barrier);
}

const void *const *merak_sim_exchange(const void *mine, size_t bytes)
{
    struct thread *self = sim.running;
    struct warp *w = &sim.warp[self->number / LANES];
    unsigned turn = self->exchanges++ % 2, lane = self->number % LANES;

    if (bytes > MAX_EXCHANGE)
        merak_sim_fatal("a lane gives more than an exchange holds");
    memcpy(w->given[turn][lane], mine, bytes);
    w->slot[turn][lane] = w->given[turn][lane];
    merak_sim_warp_barrier();
    return w->slot[turn];
}

/* Copies happen as late as they may. */
void merak_sim_copy(void *to, const void *from, unsigned bytes)
{
    struct thread *self = sim.running;

    if (self->n_copies == MAX_COPIES)
        merak_sim_fatal("too many copies that nothing waits for");
    self->copy[self->n_copies++] = {to, from, bytes};
}

void merak_sim_copies_wait(void)
{
    struct thread *self = sim.running;

    for (unsigned i = 0; i < self->n_copies; i++) {
        const struct copy *c = &self->copy[i];

        if (c->from != NULL)
            memcpy(c->to, c->from, c->bytes);
        else
            memset(c->to, 0, c->bytes);
    }
    self->n_copies = 0;
}

/* --- shared memory ---------------------------------------------------------
 */

static void *add_piece(const void *key, size_t bytes)
{
    struct piece *p = &sim.piece[sim.n_pieces];

    if (sim.n_pieces == MAX_SHARED)
        merak_sim_fatal("too many pieces of shared memory");
    p->key = key;
    p->size = bytes;
    p->bytes = static_cast<unsigned char *>(
        aligned_alloc(128, (bytes + GUARD_BYTES + 127) / 128 * 128));
    if (p->bytes == NULL)
        merak_sim_fatal("out of memory");
    memset(p->bytes, POISON, bytes + GUARD_BYTES);
    sim.n_pieces++;
    return p->bytes;
}

void *merak_sim_shared(const void *key, size_t bytes)
{
    for (int i = 0; i < sim.n_pieces; i++)
        if (sim.piece[i].key == key)
            return sim.piece[i].bytes;
    return add_piece(key, bytes);
}

void *merak_sim_dynamic_shared(void)
{
    return sim.piece[0].bytes;
}

static void free_pieces(void)
{
    for (int i = 0; i < sim.n_pieces; i++) {
        struct piece *p = &sim.piece[i];

        for (size_t k = 0; k < GUARD_BYTES; k++)
            if (p->bytes[p->size + k] != POISON)
                merak_sim_fatal("shared memory is written past its end");
        free(p->bytes);
    }
    sim.n_pieces = 0;
}

/* --- launches --------------------------------------------------------------
 */

void merak_sim_seed(uint64_t seed)
{
    sim.random = seed;
}

static void *map_stack(void)
{
    void *p = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        merak_sim_fatal("no memory for a stack");
    return p;
}

static void start_thread(struct thread *t, unsigned number)
{
    const dim3 d = merak_sim_at.block_dim;

    if (t->context.stack == NULL)
        t->context.stack = map_stack();
    forget_frames(&t->context);
    t->number = number;
    t->index = dim3(number % d.x, number / d.x % d.y, number / d.x / d.y);
    t->exchanges = 0;
    t->n_copies = 0;
    prepare(&t->context, enter);
    sim.ready[sim.n_ready++] = t;
}

static void run_block(size_t shared_bytes)
{
    (void)add_piece(NULL, shared_bytes);
    sim.n_ready = sim.n_finished = 0;
    sim.barrier.n = 0;
    for (unsigned i = 0; i < sim.n_threads; i++) {
        sim.warp[i / LANES].barrier.n = 0;
        sim.warp[i / LANES].barrier.all = LANES;
        start_thread(&sim.thread[i], i);
    }
    sim.running = pick();
    merak_sim_at.thread = sim.running->index;
    switch_to(&sim.host, &sim.running->context);
    sim.running = NULL;
    free_pieces();
}

/* More is refused on an sm_90, and at compile time if it is not requested. */
#define SHARED_MOST ((size_t)227 << 10)

static void run_kernel(void *work)
{
    struct merak_sim_kernel *k = static_cast<struct merak_sim_kernel *>(work);
    const dim3 grid = k->grid, block = k->block;

    sim.n_threads = block.x * block.y * block.z;
    if (sim.n_threads == 0 || sim.n_threads > MAX_THREADS ||
        sim.n_threads % LANES != 0 || grid.y > 65535 || grid.z > 65535 ||
        k->shared_bytes > SHARED_MOST)
        merak_sim_fatal(
            "a launch that no device takes, or with part of a warp");
    sim.barrier.all = sim.n_threads;
    sim.body = k->body;
    sim.arg = work;
    forget_host();
    merak_sim_at.block_dim = block;
    merak_sim_at.grid_dim = grid;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                merak_sim_at.block = dim3(x, y, z);
                run_block(k->shared_bytes);
            }
}

int (*merak_sim_queue)(void *stream, void (*run)(void *work), const void *work,
                       size_t bytes);

static int queue(void *stream, void (*run)(void *work), void *work,
                 size_t bytes)
{
    if (merak_sim_queue != NULL)
        return merak_sim_queue(stream, run, work, bytes);
    run(work);
    return 0;
}

int merak_sim_launch(void *stream, struct merak_sim_kernel *kernel,
                     size_t bytes)
{
    return queue(stream, run_kernel, kernel, bytes);
}

struct clearing {
    void *to;
    size_t bytes;
};

static void run_clearing(void *work)
{
    const struct clearing *c = static_cast<struct clearing *>(work);

    memset(c->to, 0, c->bytes);
}

int merak_sim_clear(void *stream, void *to, size_t bytes)
{
    struct clearing c = {to, bytes};

    return queue(stream, run_clearing, &c, sizeof(c));
}
