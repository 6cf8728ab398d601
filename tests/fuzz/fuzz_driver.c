/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_driver.c - runs a fuzz target where there is no libFuzzer
 *
 *   fuzz_NAME [--runs N] [--seconds S] [--seed K] [FILE...]
 *
 * Inputs are a function of K (0) and of the input's number, so that what fails
 * fails again; S (of the processor, not of a clock on the wall) and N (no end)
 * say where it stops.  With files, these alone are read.  What ends the
 * process is left in FUZZ_CRASHES (.) as crash-NAME-NUMBER, and an input that
 * takes ten seconds is one of them.
 *
 * An input lies in front of a page that may not be touched, so that reading
 * past its end shows without a sanitizer; and the heap may not grow with the
 * number of inputs.
 */
#include "config.h"

#include "fuzz/fuzz.h"

#include "base/rng.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { MOST_BYTES = 1 << 18, PAGE = 4096, INPUT_SECONDS = 10 };
/* Heap that inputs may leave: caches of libraries, and of ours. */
#define MOST_LEFT ((size_t)4 << 20)
/* Where the operating system would let a hostile size pass. */
#define MOST_MEMORY ((rlim_t)4 << 30)

static struct {
    const char *name;
    unsigned long long number; /* of the input */
    uint8_t *room;             /* [MOST_BYTES], then a page out of bounds */
    const uint8_t *data;
    size_t n;
    char crash[512]; /* the file to leave */
} now;

/* --- changes -------------------------------------------------------------- */

struct dice {
    uint64_t key, at;
};

static uint64_t roll(struct dice *d, uint64_t n)
{
    return n == 0 ? 0 : merak_rng_mix(d->key, d->at++) % n;
}

struct text {
    uint8_t *byte; /* [MOST_BYTES] */
    size_t n;
};

static void insert(struct text *t, size_t at, const void *what, size_t n)
{
    if (n > MOST_BYTES - t->n)
        return;
    memmove(t->byte + at + n, t->byte + at, t->n - at);
    memmove(t->byte + at, what, n);
    t->n += n;
}

static void erase(struct text *t, size_t at, size_t n)
{
    memmove(t->byte + at, t->byte + at + n, t->n - at - n);
    t->n -= n;
}

/* Numbers at which sizes and signs change, and what JSON has for numbers. */
static const char *const word[] = {
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "-0.0",
    "1e-9",
    "1e999",
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "\"a\"",
    "\\u0000",
    "\xff",
    "[[[[[[[[",
    "..",
    "/",
    "%s%n",
    "\n",
    ",",
};
static const uint64_t edge[] = {
    0,          1,          0x7f,           0x80,
    0xff,       0x7fff,     0x8000,         0xffff,
    0x7fffffff, 0x80000000, 0xffffffff,     0x100000000,
    INT64_MAX,  1ull << 63, UINT64_MAX,     UINT64_MAX / 4 + 1,
    1ull << 40, 1ull << 62, UINT64_MAX - 7, 1ull << 20,
};
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static void put_edge(struct dice *d, struct text *t, size_t at)
{
    uint64_t value = edge[roll(d, COUNT(edge))];
    size_t n = (size_t)1 << roll(d, 4);

    if (n > t->n - at)
        n = t->n - at;
    for (size_t i = 0; i < n; i++)
        t->byte[at + i] = (uint8_t)(value >> (8 * i));
}

/* The first run of digits behind `at` becomes another. */
static void put_number(struct dice *d, struct text *t, size_t at)
{
    const char *other = word[roll(d, COUNT(word))];
    size_t n = 0;

    while (at < t->n && (t->byte[at] < '0' || t->byte[at] > '9'))
        at++;
    while (at + n < t->n && t->byte[at + n] >= '0' && t->byte[at + n] <= '9')
        n++;
    if (roll(d, 2) == 0 && n > 0) {
        t->byte[at + roll(d, n)] = (uint8_t)('0' + roll(d, 10));
        return;
    }
    erase(t, at, n);
    insert(t, at, other, strlen(other));
}

static void change(struct dice *d, struct text *t)
{
    const char *other = word[roll(d, COUNT(word))];
    size_t at, n, from, count;
    const struct fuzz_seed *seed = fuzz_all_seeds(&count);

    if (t->n == 0) {
        insert(t, 0, other, strlen(other));
        return;
    }
    at = roll(d, t->n);
    n = 1 + roll(d, t->n - at < 40 ? t->n - at : 40);
    from = roll(d, t->n - n + 1);
    switch (roll(d, 10)) {
    case 0:
        t->byte[at] ^= (uint8_t)(1u << roll(d, 8));
        break;
    case 1:
        t->byte[at] = (uint8_t)roll(d, 256);
        break;
    case 2:
        put_edge(d, t, roll(d, 4) == 0 ? roll(d, t->n < 64 ? t->n : 64) : at);
        break;
    case 3:
    case 4:
        put_number(d, t, at);
        break;
    case 5:
        erase(t, at, n);
        break;
    case 6: /* a part stands somewhere else, too */
        memmove(t->byte + from, t->byte + at, n);
        break;
    case 7:
        insert(t, at, other, strlen(other));
        break;
    case 8: /* ends as another seed does */
        seed += roll(d, count);
        from = roll(d, seed->n);
        t->n = at;
        insert(t, at, seed->data + from,
               seed->n - from < MOST_BYTES - at ? seed->n - from
                                                : MOST_BYTES - at);
        break;
    default:
        if (roll(d, 4) == 0)
            t->n = at;
        else
            insert(t, at, t->byte + from,
                   n); /* of itself: bytes may have moved, no matter */
    }
}

/* --- one input ------------------------------------------------------------ */

static void leave_crash(int sig)
{
    int fd = open(now.crash, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (fd >= 0 && write(fd, now.data, now.n) >= 0)
        (void)!write(STDERR_FILENO, now.crash, strlen(now.crash));
    (void)!write(STDERR_FILENO, "\n", 1);
    signal(sig == SIGVTALRM ? SIGABRT : sig, SIG_DFL);
    raise(sig == SIGVTALRM ? SIGABRT : sig);
}

static void run_one(const void *data, size_t n)
{
    const char *where = getenv("FUZZ_CRASHES");
    struct itimerval most = {.it_value.tv_sec = INPUT_SECONDS};

    snprintf(now.crash, sizeof(now.crash), "%s/crash-%s-%llu",
             where != NULL ? where : ".", now.name, now.number);
    now.data = now.room + MOST_BYTES - n;
    now.n = n;
    memmove(now.room + MOST_BYTES - n, data, n);
    setitimer(ITIMER_VIRTUAL, &most, NULL);
    LLVMFuzzerTestOneInput(now.data, n);
}

static double processor_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 0 where another allocator is in the place of libc's. */
static size_t heap_in_use(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void run_changed(uint64_t key, unsigned long long number, struct text *t)
{
    size_t count;
    const struct fuzz_seed *seed = fuzz_all_seeds(&count);
    struct dice d = {merak_rng_key(key * 1000003 + number, now.name), 0};

    seed += number % count;
    t->n = seed->n < MOST_BYTES ? seed->n : MOST_BYTES;
    memcpy(t->byte, seed->data, t->n);
    if (number >= count) { /* at first as they are */
        for (uint64_t k = 1 + roll(&d, 1 + roll(&d, 8)); k > 0; k--)
            change(&d, t);
    }
    now.number = number;
    run_one(t->byte, t->n);
}

/* --- the program ---------------------------------------------------------- */

static void run_file(const char *path)
{
    uint8_t *data = malloc(MOST_BYTES);
    FILE *in = fopen(path, "rbe");

    fuzz_must(in != NULL && data != NULL, "a file that was named is there");
    run_one(data, fread(data, 1, MOST_BYTES, in));
    fclose(in);
    free(data);
}

static void prepare(int argc, char **argv)
{
    const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGVTALRM};
    uint8_t *room = mmap(NULL, MOST_BYTES + PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rlimit memory = {MOST_MEMORY, MOST_MEMORY};
    const char *slash = strrchr(argv[0], '/');

    fuzz_must(room != MAP_FAILED &&
                  mprotect(room + MOST_BYTES, PAGE, PROT_NONE) == 0,
              "there is memory for an input");
    now.room = room;
    now.name = slash != NULL ? slash + 1 : argv[0];
    if (heap_in_use() > 0) /* sanitizers reserve terabytes */
        (void)setrlimit(RLIMIT_AS, &memory);
    for (size_t i = 0; i < COUNT(sigs); i++)
        signal(sigs[i], leave_crash);
    (void)LLVMFuzzerInitialize(&argc, &argv);
}

/* Until the count or the time is used up; returns how many there were. */
static unsigned long long run_all(uint64_t key, unsigned long long runs,
                                  double seconds)
{
    struct text t = {malloc(MOST_BYTES), 0};
    unsigned long long number = 0;
    size_t count, before = 0;

    (void)fuzz_all_seeds(&count);
    fuzz_must(t.byte != NULL, "there is memory for an input");
    while (number < count || (number < runs && processor_seconds() < seconds)) {
        run_changed(key, number++, &t);
        if (number == 4 * count)
            before = heap_in_use();
    }
    fuzz_must(before == 0 || heap_in_use() < before + MOST_LEFT,
              "the heap does not grow with the inputs");
    free(t.byte);
    return number;
}

int main(int argc, char **argv)
{
    unsigned long long runs = 0;
    double seconds = 0;
    uint64_t key = 0;
    int i = 1;

    prepare(argc, argv);
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        if (strcmp(argv[i], "--runs") == 0)
            runs = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--seed") == 0)
            key = strtoull(argv[i + 1], NULL, 10);
        else
            break;
    }
    if (i < argc && strncmp(argv[i], "--", 2) == 0) {
        fprintf(stderr,
                "usage: %s [--runs N] [--seconds S] [--seed K] [FILE...]\n",
                argv[0]);
        return 2;
    }
    for (int k = i; k < argc; k++)
        run_file(argv[k]);
    if (i == argc)
        printf("%s: %llu inputs\n", now.name,
               run_all(key, runs > 0 ? runs : UINT64_MAX,
                       seconds > 0 || runs > 0 ? (seconds > 0 ? seconds : 1e9)
                                               : 1));
    return 0;
}
