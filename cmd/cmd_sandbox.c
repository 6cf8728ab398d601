/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_sandbox.c - `merak sandbox`: run a command under a private real Slurm
 *
 * The daemons are started and stopped by a script, merak-sandbox, which also
 * documents what it leaves in its directory.  This file supervises: it cleans
 * the environment, starts the script, runs COMMAND in the foreground, and
 * stops the daemons when COMMAND or we end.  If we are killed outright, the
 * pipe we hold closes and the script's keeper stops them.
 */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/sandbox_child.h"
#include "cmd/sandbox_links.h"

#include "base/options.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The keeper's end of the pipe, agreed with the script. */
enum { KEEPER_FD = 3 };

/* COMMAND is killed this long after it was asked to end: Slurm's own srun
 * hangs at the end of some heterogeneous steps, in its PMIx agent, and ignores
 * signals. */
enum { GRACE_SECONDS = 5 };

struct sandbox {
    const char *dir; /* as given, or temp_dir */
    int nodes, cpus;
    double link_gbit;             /* 0: nodes' links are not limited */
    const char *links;            /* file of islands; NULL: there are none */
    struct sandbox_links islands; /* what it has */
    const char *plugin;      /* as given; NULL: look for it */
    char temp_dir[PATH_MAX]; /* ours to remove; empty if --dir was given */
    char exe_dir[PATH_MAX];  /* where `merak` is */
    bool is_built;           /* in a build tree */
    char script[PATH_MAX + 32];
    char plugin_file[PATH_MAX + 64];
    int pipe[2];
    sigset_t signals; /* blocked, accepted by merak_child_wait() */
};

/* Without a network of their own nodes share this machine's. */
static bool has_network(const struct sandbox *sb)
{
    return sb->link_gbit > 0 || sb->links != NULL;
}

/* The option that wants it. */
static const char *network_option(const struct sandbox *sb)
{
    return sb->links != NULL ? "--links" : "--link-gbit";
}

#define AT(field) offsetof(struct sandbox, field)

/* Bounds are those of the script. */
static const struct merak_option rows[] = {
    {"nodes", MERAK_OPTION_INT, AT(nodes),
     .about = "number of nodes (4, or those of --links)", .least = 1,
     .most = SANDBOX_MOST_NODES},
    {"cpus", MERAK_OPTION_INT, AT(cpus),
     .about = "CPUs of each node, real or not (8)", .least = 1, .most = 256},
    {"link-gbit", MERAK_OPTION_REAL, AT(link_gbit),
     .about = "nodes have networks of their own, with links of N Gbit/s and no "
              "shared memory between them; needs root",
     .least = 0.001, .most = 100, .arg = "N"},
    {"links", MERAK_OPTION_TEXT, AT(links),
     .about = "islands of nodes and the links between them, as for `merak "
              "plan`; needs root",
     .arg = "FILE"},
    {"dir", MERAK_OPTION_TEXT, AT(dir),
     .about = "where its files go (a temporary directory)", .arg = "DIR"},
    {"plugin", MERAK_OPTION_TEXT, AT(plugin),
     .about = "the SPANK plugin to load, or \"none\"", .arg = "FILE"},
};
static const struct merak_option_table table = {rows,
                                                sizeof(rows) / sizeof(rows[0])};

static int help(void)
{
    puts("usage: merak sandbox [OPTION]... -- COMMAND [ARG]...\n"
         "       merak sandbox start --dir DIR [OPTION]...\n"
         "       merak sandbox stop --dir DIR\n"
         "\n"
         "Run COMMAND under a private real Slurm on this machine (munge, PMIx "
         "and\n"
         "a tree of two leaf switches included), then take it down again; "
         "the\n"
         "exit code is COMMAND's.  `start` leaves it running and prints the "
         "line\n"
         "that a shell needs to use it.\n");
    merak_options_help(&table, stdout);
    return 0;
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "merak sandbox: %s: %s\n", what, why);
    return MERAK_EXIT_RESOURCE;
}

/* --- where things are ---------------------------------------------------- */

/* The directory of the `merak` that the user calls: in a build tree the
 * program itself is in .libs, called by libtool's wrapper. */
static int find_exe_dir(struct sandbox *sb)
{
    char *dir = sb->exe_dir, *slash;
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(sb->exe_dir) - 1);

    if (n < 0)
        return fail("/proc/self/exe", strerror(errno));
    dir[n] = '\0';
    slash = strrchr(dir, '/');
    *slash = '\0';
    slash = strrchr(dir, '/');
    sb->is_built = slash != NULL && strcmp(slash, "/.libs") == 0;
    if (sb->is_built)
        *slash = '\0';
    return 0;
}

static int find_script(struct sandbox *sb)
{
    const char *const places[] = {"", "/../libexec/merak"};

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(sb->script, sizeof(sb->script), "%s%s/merak-sandbox",
                 sb->exe_dir, places[i]);
        if (access(sb->script, X_OK) == 0)
            return 0;
    }
    snprintf(sb->script, sizeof(sb->script), "%s/merak-sandbox",
             MERAK_LIBEXECDIR);
    if (access(sb->script, X_OK) == 0)
        return 0;
    return fail(sb->script, strerror(errno));
}

/* The plugin of the build tree that this program lies in, else the installed
 * one: what is beside an installed program's folder may be anybody's. */
static int find_plugin(struct sandbox *sb)
{
    if (sb->plugin != NULL && strcmp(sb->plugin, "none") == 0)
        return 0;
    if (sb->plugin != NULL) {
        if (realpath(sb->plugin, sb->plugin_file) == NULL)
            return fail(sb->plugin, strerror(errno));
        return 0;
    }
    snprintf(sb->plugin_file, sizeof(sb->plugin_file),
             "%s/../spank_plugin/.libs/spank_merak.so", sb->exe_dir);
    if (sb->is_built && access(sb->plugin_file, R_OK) == 0)
        return 0;
    snprintf(sb->plugin_file, sizeof(sb->plugin_file), "%s/spank_merak.so",
             MERAK_SPANKDIR);
    if (access(sb->plugin_file, R_OK) == 0)
        return 0;
    fprintf(stderr,
            "merak sandbox: no spank_merak.so in %s, where it is installed; "
            "going without --merak-* options (--plugin FILE names another "
            "place)\n",
            MERAK_SPANKDIR);
    sb->plugin_file[0] = '\0';
    return 0;
}

static int choose_dir(struct sandbox *sb)
{
    const char *tmp = getenv("TMPDIR");

    if (sb->dir != NULL)
        return 0;
    snprintf(sb->temp_dir, sizeof(sb->temp_dir), "%s/merak-XXXXXX",
             tmp != NULL && tmp[0] == '/' ? tmp : "/tmp");
    if (mkdtemp(sb->temp_dir) == NULL)
        return fail(sb->temp_dir, strerror(errno));
    /* Root's sandbox serves all users, as a cluster does.  Another's runs all
     * tasks as himself: nobody else may reach munged's socket. */
    if (geteuid() == 0 && chmod(sb->temp_dir, 0755) != 0)
        return fail(sb->temp_dir, strerror(errno));
    sb->dir = sb->temp_dir;
    return 0;
}

/* --- the environment ----------------------------------------------------- */

/* Variables of another Slurm, or of the surrounding job, would affect the
 * sandbox's commands; so would our own options. */
static bool is_foreign(const char *entry)
{
    const char *const prefixes[] = {"MERAK_",  "SLURM", "SRUN_", "SBATCH_",
                                    "SALLOC_", "PMIX_", "PMI_"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

static void clean_environment(void)
{
    extern char **environ;
    char name[256];

    for (char **e = environ; *e != NULL;) {
        size_t n = strcspn(*e, "=");

        if (!is_foreign(*e) || n >= sizeof(name)) {
            e++;
            continue;
        }
        memcpy(name, *e, n);
        name[n] = '\0';
        unsetenv(name); /* moves the following entries up to e */
    }
}

/* Let COMMAND find the sandbox and this merak.  In a build tree that is the
 * program: our own environment has where libtool's wrapper found its library,
 * and the wrapper takes as long as a short command does. */
static int enter_environment(const struct sandbox *sb)
{
    const char *path = getenv("PATH");
    char real[PATH_MAX], conf[PATH_MAX + 16];
    char *longer = NULL;

    if (realpath(sb->dir, real) == NULL)
        return fail(sb->dir, strerror(errno));
    snprintf(conf, sizeof(conf), "%s/slurm.conf", real);
    if (asprintf(&longer, "%s%s:%s", sb->exe_dir, sb->is_built ? "/.libs" : "",
                 path != NULL ? path : "/usr/bin:/bin") < 0)
        return fail("PATH", strerror(ENOMEM));
    setenv("SLURM_CONF", conf, 1);
    setenv("PATH", longer, 1);
    free(longer);
    return 0;
}

/*
 * A private network namespace for all that we start: what the script creates
 * in it does not conflict with other sandboxes or a firewall, and vanishes
 * with its last process.
 */
static int enter_network(const struct sandbox *sb)
{
    if (unshare(CLONE_NEWNET) == 0)
        return 0;
    if (errno != EPERM)
        return fail("no network namespace", strerror(errno));
    return fail(network_option(sb),
                "only root (CAP_SYS_ADMIN) can make networks; run it with "
                "sudo, or leave the option out");
}

/* --- processes ----------------------------------------------------------- */

/* dup2() to itself would leave close-on-exec set. */
static int inherit_pipe(int fd)
{
    if (fd == KEEPER_FD)
        return fcntl(fd, F_SETFD, 0);
    return dup2(fd, KEEPER_FD);
}

static int start_daemons(struct sandbox *sb, bool keeper)
{
    char nodes[16], cpus[16], kbit[32];
    char *argv[20] = {sb->script, "start", "--dir",  (char *)sb->dir,
                      "--nodes",  nodes,   "--cpus", cpus};
    int n = 8;
    pid_t pid;

    snprintf(nodes, sizeof(nodes), "%d", sb->nodes);
    snprintf(cpus, sizeof(cpus), "%d", sb->cpus);
    if (sb->plugin_file[0] != '\0') {
        argv[n++] = "--plugin";
        argv[n++] = sb->plugin_file;
    }
    if (sb->link_gbit > 0) {
        snprintf(kbit, sizeof(kbit), "%.0f", sb->link_gbit * 1e6);
        argv[n++] = "--link-kbit";
        argv[n++] = kbit;
    }
    if (sb->links != NULL) {
        argv[n++] = "--islands";
        argv[n++] = sb->islands.islands;
        argv[n++] = "--ways";
        argv[n++] = sb->islands.ways;
    }
    if (keeper) {
        argv[n++] = "--keeper";
        argv[n++] = sb->temp_dir[0] != '\0' ? "remove" : "stay";
    }
    pid = fork();
    if (pid < 0)
        return fail("fork", strerror(errno));
    if (pid == 0) {
        if (keeper && inherit_pipe(sb->pipe[0]) < 0)
            _exit(fail("pipe", strerror(errno)));
        merak_child_run(&sb->signals, argv);
    }
    return merak_child_wait(pid, &sb->signals, 0);
}

/* A ^C that ends COMMAND must not interrupt the clean-up. */
static int stop_daemons(const struct sandbox *sb)
{
    char *argv[8] = {(char *)sb->script, "stop", "--dir", (char *)sb->dir};
    pid_t pid;

    if (sb->temp_dir[0] != '\0') {
        argv[4] = "--keeper";
        argv[5] = "remove";
    }
    pid = fork();
    if (pid < 0)
        return fail("fork", strerror(errno));
    if (pid == 0) {
        signal(SIGINT, SIG_IGN);
        signal(SIGQUIT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        merak_child_run(&sb->signals, argv);
    }
    return merak_child_wait(pid, &sb->signals, 0);
}

static int run_command(const struct sandbox *sb, char **command)
{
    pid_t pid;

    if (enter_environment(sb) != 0)
        return MERAK_EXIT_RESOURCE;
    pid = fork();
    if (pid < 0)
        return fail("fork", strerror(errno));
    if (pid == 0)
        merak_child_run(&sb->signals, command);
    return merak_child_wait(pid, &sb->signals, GRACE_SECONDS);
}

/* srun prints "More processors requested than permitted", but not the
 * limit. */
static void explain_refusal(const struct sandbox *sb)
{
    char path[PATH_MAX + 16], line[1024];
    bool refused = false;
    FILE *log;

    snprintf(path, sizeof(path), "%s/ctld/log", sb->dir);
    log = fopen(path, "re");
    while (log != NULL && fgets(line, sizeof(line), log) != NULL)
        refused = refused || strstr(line, "More processors requested") ||
                  strstr(line, "Node count specification invalid") ||
                  strstr(line, "Requested node configuration");
    if (log != NULL)
        fclose(log);
    if (refused)
        fprintf(stderr,
                "merak sandbox: a job asked for more than the available %d "
                "nodes of %d CPUs; --nodes and --cpus set these\n",
                sb->nodes, sb->cpus);
}

/* --- the three forms ----------------------------------------------------- */

static int do_run(struct sandbox *sb, char **command)
{
    int rc;

    /* COMMAND must not inherit either end: the pipe must close when we end. */
    if (pipe2(sb->pipe, O_CLOEXEC) != 0)
        return fail("pipe", strerror(errno));
    rc = choose_dir(sb);
    if (rc != 0)
        return rc;
    rc = start_daemons(sb, true);
    if (rc != 0) {
        if (rc > 128) /* interrupted: stop what was started */
            stop_daemons(sb);
        rmdir(sb->temp_dir); /* unless it contains logs */
        return rc;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* not before the daemons, see kill_all */
    rc = run_command(sb, command);
    if (rc != 0)
        explain_refusal(sb);
    stop_daemons(sb);
    return rc;
}

static int do_start(struct sandbox *sb)
{
    int rc = start_daemons(sb, false);

    if (rc != 0)
        return rc;
    rc = enter_environment(sb);
    if (rc == 0)
        printf("export SLURM_CONF=%s\n", getenv("SLURM_CONF"));
    return rc;
}

static int prepare(struct sandbox *sb)
{
    sigemptyset(&sb->signals);
    sigaddset(&sb->signals, SIGCHLD);
    sigaddset(&sb->signals, SIGTERM);
    sigaddset(&sb->signals, SIGHUP);
    sigaddset(&sb->signals, SIGINT);
    sigaddset(&sb->signals, SIGQUIT);
    sigprocmask(SIG_BLOCK, &sb->signals, NULL);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would hide exit codes */
    clean_environment();
    if (find_exe_dir(sb) != 0 || find_script(sb) != 0)
        return MERAK_EXIT_RESOURCE;
    return 0;
}

/* Read --links; --nodes has to agree. */
static enum merak_status read_links(struct sandbox *sb, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (sb->links != NULL) {
        rc = sandbox_links_read(sb->links, &sb->islands, err);
        if (rc == MERAK_OK && sb->nodes > 0 && sb->nodes != sb->islands.nodes)
            rc = merak_fail(err, MERAK_ERR_CONFIG,
                            "its islands have %d nodes together, and --nodes "
                            "%d: leave --nodes out",
                            sb->islands.nodes, sb->nodes);
        if (rc != MERAK_OK)
            merak_error_wrap(err, "--links");
        sb->nodes = sb->islands.nodes;
    }
    if (sb->nodes == 0)
        sb->nodes = 4;
    return rc;
}

static int misused(const char *what)
{
    fprintf(stderr, "merak sandbox: %s\n", what);
    return MERAK_EXIT_CONFIG;
}

int merak_cmd_sandbox(int argc, char **argv)
{
    struct sandbox sb = {.cpus = 8};
    const char *verb = argc > 1 ? argv[1] : "";
    bool start = strcmp(verb, "start") == 0;
    bool stop = strcmp(verb, "stop") == 0, asked = false;
    int skip = start || stop ? 1 : 0, rc;
    char **command = argv + skip + 1;
    struct merak_error err;

    argc -= skip;
    if (merak_options_words(&table, true, &argc, argv + skip, &sb, &asked,
                            &err) != MERAK_OK)
        return misused(err.text);
    if (asked)
        return help();
    if ((start || stop) != (*command == NULL) ||
        ((start || stop) && sb.dir == NULL))
        return misused("expected `-- COMMAND`, `start --dir DIR` or `stop "
                       "--dir DIR`; see --help");
    if (has_network(&sb) && (start || stop)) {
        merak_fail(&err, MERAK_ERR_CONFIG,
                   "%s: that network exists only for COMMAND; expected "
                   "`-- COMMAND`, which may be a shell",
                   network_option(&sb));
        return misused(err.text);
    }
    if (read_links(&sb, &err) != MERAK_OK)
        return misused(err.text);
    rc = prepare(&sb);
    if (rc == 0 && has_network(&sb))
        rc = enter_network(&sb);
    if (rc != 0)
        return rc;
    if (stop)
        return stop_daemons(&sb);
    rc = find_plugin(&sb);
    if (rc != 0)
        return rc;
    return start ? do_start(&sb) : do_run(&sb, command);
}
