/* SPDX-License-Identifier: Apache-2.0 */
/* parquet.c - the rows of a Parquet file, as another program prints them */
#include "config.h"

#include "io/tokens/parquet.h"

#include "base/error.h"
#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_PYARROW = 3, NO_PROGRAM = 127 }; /* how the program exits */
enum { SAID_BYTES = 4096 };

struct merak_parquet {
    const char *path;
    const char *python;
    pid_t pid;      /* 0: it has been waited for */
    int rows, said; /* ends of what it prints, and of its errors: a file */
};

/* Modules are not looked for in the present folder, which may have a json.py.
 * Bytes that are no text are null: refused where a text is read. */
static const char script[] =
    "import sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "import json\n"
    "try:\n"
    "    import pyarrow.parquet as parquet\n"
    "except ImportError as missing:\n"
    "    print(missing, file=sys.stderr)\n"
    "    sys.exit(3)\n"
    "def plain(value):\n"
    "    if not isinstance(value, bytes):\n"
    "        return str(value)\n"
    "    try:\n"
    "        return value.decode()\n"
    "    except UnicodeDecodeError:\n"
    "        return None\n"
    "file = parquet.ParquetFile(sys.argv[1])\n"
    "names = [n for n in file.schema_arrow.names if n in sys.argv[2:]]\n"
    "for batch in file.iter_batches(1024, columns=names or None):\n"
    "    for row in batch.to_pylist():\n"
    "        line = json.dumps(row, ensure_ascii=False, default=plain)\n"
    "        sys.stdout.buffer.write(line.encode() + b'\\n')\n";

bool merak_parquet_is(const char *begin, size_t n)
{
    return n >= 4 && memcmp(begin, "PAR1", 4) == 0;
}

/* --- the program -----------------------------------------------------------
 */

/* In the child. */
static void run(char *const *argv, int rows, int said)
{
    int null = open("/dev/null", O_RDONLY);

    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (dup2(rows, STDOUT_FILENO) >= 0 && dup2(said, STDERR_FILENO) >= 0)
        execvp(argv[0], argv);
    _exit(NO_PROGRAM);
}

static enum merak_status start(struct merak_parquet *p, char *const *argv,
                               struct merak_error *err)
{
    int ends[2];

    p->said = memfd_create("merak-parquet", MFD_CLOEXEC);
    if (p->said < 0 || pipe2(ends, O_CLOEXEC) != 0)
        return merak_file_fail(err, "make a pipe for", p->path);
    p->rows = ends[0];
    p->pid = fork();
    if (p->pid == 0)
        run(argv, ends[1], p->said);
    close(ends[1]);
    return p->pid > 0 ? MERAK_OK : merak_file_fail(err, "fork for", p->path);
}

enum merak_status merak_parquet_open(const char *path, size_t n,
                                     const char *const *column,
                                     struct merak_parquet **parquet_p,
                                     struct merak_error *err)
{
    struct merak_parquet *p = calloc(1, sizeof(*p));
    const char **argv = calloc(n + 5, sizeof(*argv));
    const char *given = getenv("MERAK_PYTHON");
    enum merak_status rc;

    if (p == NULL || argv == NULL) {
        free(p);
        free(argv);
        return merak_fail_nomem(err, n * sizeof(*argv));
    }
    p->path = path;
    p->python = given != NULL && given[0] != '\0' ? given : NULL;
    p->rows = p->said = -1;
    argv[0] = p->python != NULL ? p->python : "python3";
    argv[1] = "-c";
    argv[2] = script;
    argv[3] = path;
    for (size_t i = 0; i < n; i++)
        argv[4 + i] = column[i];
    rc = start(p, (char *const *)argv, err);
    free(argv);
    if (rc == MERAK_OK)
        *parquet_p = p;
    else
        merak_parquet_close(p);
    return rc;
}

int merak_parquet_fd(const struct merak_parquet *parquet)
{
    return parquet->rows;
}

static int wait_for(struct merak_parquet *p)
{
    int status = 0;

    while (p->pid > 0 && waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    p->pid = 0;
    return status;
}

/* The last line of its errors, of a traceback what went wrong. */
static const char *last_line(const struct merak_parquet *p,
                             char text[SAID_BYTES])
{
    off_t all = lseek(p->said, 0, SEEK_END);
    off_t from = all > SAID_BYTES - 1 ? all - (SAID_BYTES - 1) : 0;
    ssize_t n = pread(p->said, text, SAID_BYTES - 1, from);
    char *line;

    for (n = n > 0 ? n : 0; n > 0 && text[n - 1] == '\n'; n--)
        ;
    text[n] = '\0';
    line = strrchr(text, '\n');
    return line != NULL ? line + 1 : text;
}

static enum merak_status refuse(const struct merak_parquet *p, const char *why,
                                struct merak_error *err)
{
    return merak_fail(
        err, MERAK_ERR_UNSUPPORTED,
        "%s holds Parquet data, which a python3 with pyarrow "
        "reads: looked for %s%.120s%s: %.100s; pip install pyarrow "
        "there, or set MERAK_PYTHON to a python3 that has it",
        p->path, p->python != NULL ? "MERAK_PYTHON=" : "",
        p->python != NULL ? p->python : "python3",
        p->python != NULL ? "" : " in PATH", why);
}

enum merak_status merak_parquet_end(struct merak_parquet *parquet,
                                    struct merak_error *err)
{
    char text[SAID_BYTES];
    int status = wait_for(parquet);
    const char *why = last_line(parquet, text);

    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return MERAK_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PROGRAM)
        return refuse(parquet, "it cannot be run", err);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PYARROW)
        return refuse(parquet, why, err);
    if (WIFSIGNALED(status))
        return merak_fail(err, MERAK_ERR_SYSTEM,
                          "%s: what reads its Parquet data was ended by "
                          "signal %d (%s)",
                          parquet->path, WTERMSIG(status),
                          strsignal(WTERMSIG(status)));
    return merak_fail(err, MERAK_ERR_CORRUPT,
                      "%s: its Parquet data cannot be read: %.400s",
                      parquet->path, why);
}

void merak_parquet_close(struct merak_parquet *parquet)
{
    int saved = errno;

    if (parquet == NULL)
        return;
    if (parquet->pid > 0) {
        kill(parquet->pid, SIGKILL); /* it has nothing to leave behind */
        (void)wait_for(parquet);
    }
    if (parquet->rows >= 0)
        close(parquet->rows);
    if (parquet->said >= 0)
        close(parquet->said);
    free(parquet);
    errno = saved;
}
