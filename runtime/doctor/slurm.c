/* SPDX-License-Identifier: Apache-2.0 */
/* slurm.c - what this Slurm offers: PMIx, the plugin, the switch tree */
#include "config.h"

#include "runtime/doctor/doctor.h"

#include "base/ask.h"
#include "placement/hostlist.h"
#include "placement/topology.h"
#include "runtime/runtime.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long srun or scontrol is waited for. */
#define PATIENCE_S 1.0
#define TEXT_BYTES ((size_t)4 << 20)
/* The depth of files that include each other. */
enum { MOST_DEPTH = 4 };

/* The line of plugstack.conf that loads the plugin. */
struct plugin_line {
    bool found, required;
    char file[PATH_MAX]; /* that contains the line */
    char path[PATH_MAX]; /* of the plugin */
};

/* The value in a line "Name = value" of scontrol's. */
static void config_value(const char *text, const char *name, char *value,
                         size_t size)
{
    size_t n = strlen(name);

    value[0] = '\0';
    for (const char *line = text; line != NULL && *line != '\0';
         line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
        const char *at = line + n;

        if (strncmp(line, name, n) != 0)
            continue;
        at += strspn(at, " ");
        if (*at != '=')
            continue;
        at += 1 + strspn(at + 1, " ");
        snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
        return;
    }
}

/* --- PMIx ----------------------------------------------------------------- */

static void check_pmix(char *text, const char *fallback,
                       struct merak_findings *found)
{
    char *const argv[] = {"srun", "--mpi=list", NULL};
    struct merak_finding *f;
    const char *name = NULL;

    if (merak_ask(argv, PATIENCE_S, text, TEXT_BYTES) >= 0)
        name = strstr(text, "pmix");
    if (name == NULL) {
        f = merak_find(found, MERAK_FINDING_ERROR, "PMIx",
                       "this Slurm has no PMIx plugin (srun --mpi=list)");
        merak_find_fix(f, "install Slurm's mpi_pmix.so: Slurm built "
                          "--with-pmix, or the distribution's package of it");
        merak_find_code(f, MERAK_EXIT_LAUNCH);
    } else if (strncmp(fallback, "pmix", 4) != 0) {
        f = merak_find(found, MERAK_FINDING_NOTE, "PMIx",
                       "Slurm has the plugin, and MpiDefault is %s",
                       fallback[0] != '\0' ? fallback : "unknown");
        merak_find_fix(f, "srun --mpi=pmix, or SLURM_MPI_TYPE=pmix");
    } else {
        merak_find(found, MERAK_FINDING_OK, "PMIx",
                   "Slurm has the plugin, MpiDefault is %s", fallback);
    }
}

/* --- the plugin ----------------------------------------------------------- */

static void read_plugstack(const char *path, const char *plugin_dir, int depth,
                           struct plugin_line *line);

static void include_all(const char *pattern, const char *from,
                        const char *plugin_dir, int depth,
                        struct plugin_line *line)
{
    char full[2 * PATH_MAX];
    const char *slash = strrchr(from, '/');
    glob_t files;

    if (pattern[0] == '/' || slash == NULL)
        snprintf(full, sizeof(full), "%s", pattern);
    else
        snprintf(full, sizeof(full), "%.*s/%s", (int)(slash - from), from,
                 pattern);
    if (glob(full, 0, NULL, &files) != 0)
        return;
    for (size_t i = 0; i < files.gl_pathc; i++)
        read_plugstack(files.gl_pathv[i], plugin_dir, depth + 1, line);
    globfree(&files);
}

static void take_line(char *text, const char *file, const char *plugin_dir,
                      int depth, struct plugin_line *line)
{
    char *rest = NULL, *word, *path;
    const char *name;

    text[strcspn(text, "#\n")] = '\0';
    word = strtok_r(text, " \t", &rest);
    path = strtok_r(NULL, " \t", &rest);
    if (word == NULL || path == NULL)
        return;
    if (strcmp(word, "include") == 0) {
        include_all(path, file, plugin_dir, depth, line);
        return;
    }
    name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    if (strcmp(name, "spank_merak.so") != 0)
        return;
    line->found = true;
    line->required = strcmp(word, "required") == 0;
    snprintf(line->file, sizeof(line->file), "%s", file);
    if (path[0] == '/' || plugin_dir[0] == '\0')
        snprintf(line->path, sizeof(line->path), "%s", path);
    else
        snprintf(line->path, sizeof(line->path), "%.*s/%s", PATH_MAX / 2,
                 plugin_dir, path);
}

static void read_plugstack(const char *path, const char *plugin_dir, int depth,
                           struct plugin_line *line)
{
    char text[PATH_MAX];
    FILE *file = depth < MOST_DEPTH ? fopen(path, "re") : NULL;

    if (file == NULL)
        return;
    while (fgets(text, sizeof(text), file) != NULL)
        take_line(text, path, plugin_dir, depth, line);
    fclose(file);
}

/* Keep the line "slurm-wlm 22.05.8"; srun may also print complaints. */
static void keep_version(char *text)
{
    char *at = strncmp(text, "slurm", 5) == 0 ? text : strstr(text, "\nslurm");

    at = at == NULL ? text : at + (*at == '\n');
    memmove(text, at, strlen(at) + 1);
    text[strcspn(text, "\n")] = '\0';
}

/* "slurm-wlm 22.05.8": 0x160500; 0: not of that form. */
static uint32_t release_of(const char *version)
{
    unsigned int major, minor;
    const char *at = strpbrk(version, "0123456789");

    if (at == NULL || sscanf(at, "%u.%u", &major, &minor) != 2)
        return 0;
    return (major << 16 | minor << 8) & 0xffff00u;
}

static void judge_plugin(const struct plugin_line *line, uint32_t slurm,
                         bool loaded, struct merak_findings *found)
{
    uint32_t release = merak_plugin_release(line->path);
    struct merak_finding *f;

    if (access(line->path, R_OK) != 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "plugin",
                       "%.80s loads %.100s, which does not exist", line->file,
                       line->path);
        merak_find_fix(f, "install Merak on this machine, too, or take the "
                          "line out");
    } else if (release == 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "plugin",
                       "%.200s is not a Slurm plugin", line->path);
        merak_find_fix(f, "install Merak again");
    } else if (slurm != 0 && (release & 0xffff00u) != slurm) {
        f = merak_find(found, MERAK_FINDING_WARNING, "plugin",
                       "%.150s was built for Slurm %u.%02u, this is %u.%02u: "
                       "not loaded",
                       line->path, release >> 16, release >> 8 & 255,
                       slurm >> 16, slurm >> 8 & 255);
        merak_find_fix(f,
                       "build Merak with the headers of Slurm %u.%02u and "
                       "install it",
                       slurm >> 16, slurm >> 8 & 255);
    } else if (!loaded) {
        f = merak_find(found, MERAK_FINDING_WARNING, "plugin",
                       "srun does not load %.150s", line->path);
        merak_find_fix(f, "srun -vv true shows why");
    } else {
        merak_find(found, MERAK_FINDING_OK, "plugin",
                   "%.150s, for Slurm %u.%02u", line->path, release >> 16,
                   release >> 8 & 255);
    }
    if (line->required) {
        f = merak_find(found, MERAK_FINDING_WARNING, "plugin",
                       "%.150s has `required`: without the file no job starts",
                       line->file);
        merak_find_fix(f, "write `optional` there");
    }
}

static void check_plugin(char *text, const char *config, uint32_t slurm,
                         struct merak_findings *found)
{
    char *const argv[] = {"srun", "--help", NULL};
    struct plugin_line line = {.found = false};
    char plugstack[PATH_MAX], plugin_dir[PATH_MAX], *colon;
    bool loaded = merak_ask(argv, PATIENCE_S, text, TEXT_BYTES) == 0 &&
                  strstr(text, "--merak-tp") != NULL;
    struct merak_finding *f;

    config_value(config, "PlugStackConfig", plugstack, sizeof(plugstack));
    config_value(config, "PluginDir", plugin_dir, sizeof(plugin_dir));
    colon = strchr(plugin_dir, ':');
    if (colon != NULL)
        *colon = '\0';
    read_plugstack(plugstack, plugin_dir, 0, &line);
    if (line.found) {
        judge_plugin(&line, slurm, loaded, found);
    } else if (loaded) {
        merak_find(found, MERAK_FINDING_OK, "plugin", "loaded by srun");
    } else {
        f = merak_find(found, MERAK_FINDING_NOTE, "plugin",
                       "srun has no --merak-tp: degrees are options of the "
                       "program, tasks are placed when it starts");
        merak_find_fix(f, "copy share/merak/plugstack.conf.d/merak.conf to "
                          "plugstack.conf.d next to slurm.conf");
    }
}

/* --- the switch tree ------------------------------------------------------ */

static int count_lines(const char *text)
{
    int n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

static void judge_tree(const struct merak_topology *tree, int switches,
                       const char *const *nodes, int n_nodes,
                       struct merak_findings *found)
{
    char path[PATH_MAX], first[PATH_MAX] = "";
    const char *missing = NULL;
    struct merak_finding *f;
    bool apart = false;

    for (int i = 0; i < n_nodes; i++) {
        if (merak_topology_path(tree, nodes[i], path, sizeof(path)) != MERAK_OK)
            missing = nodes[i];
        else if (first[0] == '\0')
            snprintf(first, sizeof(first), "%s", path);
        else
            apart = apart || strcmp(first, path) != 0;
    }
    if (missing != NULL) {
        f = merak_find(found, MERAK_FINDING_WARNING, "topology",
                       "node %.64s is on no switch: it counts as far from all "
                       "others",
                       missing);
        merak_find_fix(f, "add it to topology.conf");
    } else {
        merak_find(found, MERAK_FINDING_OK, "topology", "%d switches%s",
                   switches,
                   n_nodes < 2 ? ""
                   : apart     ? ", the nodes of this job under several"
                               : ", the nodes of this job under one");
    }
}

static void check_topology(char *text, const char *const *nodes, int n_nodes,
                           struct merak_findings *found)
{
    char *const argv[] = {"scontrol", "-o", "show", "topology", NULL};
    struct merak_topology *tree = NULL;
    struct merak_error err;
    struct merak_finding *f;
    int rc = merak_ask(argv, PATIENCE_S, text, TEXT_BYTES);

    if (rc != 0 || strstr(text, "Name=") == NULL) {
        f = merak_find(found, MERAK_FINDING_NOTE, "topology",
                       "Slurm knows no switches: all nodes count as equally "
                       "far from each other");
        merak_find_fix(f, "TopologyPlugin=topology/tree and topology.conf, "
                          "where there is more than one switch");
        return;
    }
    if (merak_topology_parse(text, &tree, &err) != MERAK_OK) {
        f = merak_find(found, MERAK_FINDING_WARNING, "topology",
                       "scontrol show topology: %.200s", err.text);
        merak_find_fix(f, "nodes are placed as if there were no switches; "
                          "--merak-topology takes no other source");
        return;
    }
    judge_tree(tree, count_lines(text), nodes, n_nodes, found);
    merak_topology_destroy(tree);
}

/* --- all ------------------------------------------------------------------ */

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL ? value : "";
}

/* A container that Slurm started has a program's libraries, not Slurm. */
static void find_no_srun(struct merak_findings *found)
{
    bool in_step = variable("SLURM_STEP_ID")[0] != '\0';
    struct merak_finding *f = merak_find(
        found, MERAK_FINDING_NOTE, "slurm", "%s",
        in_step ? "srun is not here, as in a container: Slurm's plugins and "
                  "switches are not examined"
                : "srun is not here, or has no configuration: only one task "
                  "can run");

    merak_find_fix(f, "%s",
                   in_step ? "`srun --mpi=pmix merak doctor` with a merak of "
                             "the host examines them"
                           : "`merak sandbox -- COMMAND` runs it under a "
                             "private Slurm");
}

static void check_all(char *text, char *config, const char *const *nodes,
                      int n_nodes, struct merak_findings *found)
{
    char *const version[] = {"srun", "--version", NULL};
    char *const show[] = {"scontrol", "show", "config", NULL};
    char mpi[64], release[1024];
    struct merak_finding *f;
    uint32_t slurm;

    if (merak_ask(version, PATIENCE_S, release, sizeof(release)) != 0) {
        find_no_srun(found);
        return;
    }
    keep_version(release);
    slurm = release_of(release);
    if (merak_ask(show, PATIENCE_S, config, TEXT_BYTES) != 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "slurm",
                       "%.64s: slurmctld did not answer within %.0f s", release,
                       PATIENCE_S);
        merak_find_fix(f, "scontrol ping; systemctl status slurmctld munge");
        return;
    }
    merak_find(found, MERAK_FINDING_OK, "slurm", "%.64s", release);
    config_value(config, "MpiDefault", mpi, sizeof(mpi));
    check_pmix(text, mpi, found);
    check_plugin(text, config, slurm, found);
    check_topology(text, nodes, n_nodes, found);
}

void merak_slurm_check(const char *const *nodes, int n_nodes,
                       struct merak_findings *found)
{
    char *text = malloc(TEXT_BYTES), *config = malloc(TEXT_BYTES);

    if (text != NULL && config != NULL)
        check_all(text, config, nodes, n_nodes, found);
    free(text);
    free(config);
}

void merak_slurm_environment(struct merak_findings *found)
{
    const char *job = variable("SLURM_JOB_ID");
    struct merak_finding *f;

    if (job[0] != '\0' && variable("SLURM_STEP_ID")[0] == '\0') {
        f = merak_find(found, MERAK_FINDING_NOTE, "slurm",
                       "in job %.32s, outside of its tasks: nodes, links and "
                       "binding are not examined",
                       job);
        merak_find_fix(f, "srun --mpi=pmix merak doctor, with the options of "
                          "the run");
    }
    if (strcmp(variable("SLURM_EXPORT_ENV"), "NONE") == 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "slurm",
                       "SLURM_EXPORT_ENV=NONE, of sbatch --export=NONE, leaves "
                       "srun's tasks without PATH");
        merak_find_fix(f, "srun --export=ALL");
    }
    if (variable("SLURM_GPUS_PER_TASK")[0] != '\0' ||
        strncmp(variable("SLURM_GPU_BIND"), "single", 6) == 0) {
        f = merak_find(found, MERAK_FINDING_WARNING, "gpu",
                       "a task sees its own GPU only: copies between GPUs go "
                       "through the host");
        merak_find_fix(f, "--gpus-per-node=N --gpu-bind=none");
    }
    if (variable("UCX_TLS")[0] != '\0') {
        f = merak_find(found, MERAK_FINDING_NOTE, "links",
                       "UCX_TLS=%.100s: other transports are not used",
                       variable("UCX_TLS"));
        merak_find_fix(f, "unset it, unless it is intended");
    }
}
