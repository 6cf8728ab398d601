/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - what srun was asked for, as srun itself understood it
 *
 * SPANK tells a plugin about a step only once the step exists.  srun has read
 * its command line and environment before init_post_opt, though, and both its
 * options and Slurm's function that prints one of them by name are symbols of
 * the process, as those in site.c are.  A Slurm that lacks one of them leaves
 * the request unknown: what does not fit is then refused later, by the step.
 */
#include "config.h"

#include "spank_plugin/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* Not in Slurm's public headers. */
struct srun {
    void *options;
    char *(*get)(void *options, const char *name);
    bool (*is_set)(void *options, const char *name);
};

/* Another library may have a symbol of so short a name. */
static bool is_of_program(void *symbol)
{
    Dl_info here, program;

    return dladdr(symbol, &here) != 0 &&
           dladdr((void *)getauxval(AT_ENTRY), &program) != 0 &&
           here.dli_fbase == program.dli_fbase;
}

static bool find_srun(struct srun *s)
{
    s->options = dlsym(RTLD_DEFAULT, "opt");
    s->get = dlsym(RTLD_DEFAULT, "slurm_option_get");
    s->is_set = dlsym(RTLD_DEFAULT, "slurm_option_isset");
    return s->options != NULL && s->get != NULL && s->is_set != NULL &&
           is_of_program(s->options);
}

/* An option's whole number from 1; 0: it is not one, or it is not set.  The
 * text is of Slurm's allocator, whose free has no name that all versions
 * share; three short ones are left to the process. */
static int number_of(const struct srun *s, const char *name)
{
    const char *text =
        s->is_set(s->options, name) ? s->get(s->options, name) : NULL;
    char *end;
    long n;

    if (text == NULL || text[0] < '1' || text[0] > '9')
        return 0;
    n = strtol(text, &end, 10);
    return *end == '\0' && n <= MERAK_MAX_TASKS ? (int)n : 0;
}

/* Components of a heterogeneous step are between arguments ":", and nothing
 * else tells of them while srun reads the first.  Another program's ":" only
 * makes the request unknown. */
static bool may_be_heterogeneous(void)
{
    FILE *in = fopen("/proc/self/cmdline", "re");
    char *word = NULL;
    size_t size = 0;
    bool found = in == NULL;

    while (!found && getdelim(&word, &size, '\0', in) >= 0)
        found = strcmp(word, ":") == 0;
    free(word);
    if (in != NULL)
        fclose(in);
    return found;
}

void request_read(struct request *r)
{
    struct srun s;
    int per_node;

    *r = (struct request){.in_allocation = true};
    if (!find_srun(&s))
        return;
    r->in_allocation =
        getenv("SLURM_JOB_ID") != NULL || s.is_set(s.options, "jobid");
    if (may_be_heterogeneous())
        return;
    r->tasks = number_of(&s, "ntasks");
    r->nodes = number_of(&s, "nodes");
    per_node = number_of(&s, "ntasks-per-node");
    if (r->tasks == 0 && (long long)r->nodes * per_node <= MERAK_MAX_TASKS)
        r->tasks = r->nodes * per_node;
    if (r->nodes > 0 && r->nodes * (long long)per_node == r->tasks)
        r->per_node = per_node;
    /* srun's own variables set it to the allocation's, where the step may be
     * told to have fewer; and with fewer tasks than nodes it will have */
    if (r->in_allocation || r->tasks < r->nodes)
        r->nodes = 0;
}
