/* SPDX-License-Identifier: Apache-2.0 */
/* merak.c - the `merak` command: finds the subcommand and runs it */
#include "config.h"

#include "cmd/cmd.h"
#include "cmd/finish.h"

#include "base/nearest.h"
#include "base/open.h"
#include "base/printable.h"
#include "runtime/runtime.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
    const char *name;
    const char *about;
    int (*run)(int argc, char **argv);
};

/* In the order of a training run's life. */
static const struct command commands[] = {
    {"data", "make token files, show what they hold", merak_cmd_data},
    {"plan", "predict what a run would look like", merak_cmd_plan},
    {"calibrate", "measure this machine for plans", merak_cmd_calibrate},
    {"jobscript", "write a job script for this site", merak_cmd_jobscript},
    {"train", "train a model", merak_cmd_train},
    {"top", "watch a run", merak_cmd_top},
    {"report", "show a run as a page for a browser", merak_cmd_report},
    {"eval", "evaluate how likely texts and answers are", merak_cmd_eval},
    {"generate", "continue a text", merak_cmd_generate},
    {"ckpt", "list, show, verify, import and export checkpoints",
     merak_cmd_ckpt},
    {"trace", "show where the time of a step went", merak_cmd_trace},
    {"doctor", "find what is wrong with this machine or allocation",
     merak_cmd_doctor},
    {"sandbox", "run a private Slurm on this machine", merak_cmd_sandbox},
    {NULL, NULL, NULL},
};

/* Their output is to arrive as it is: orders to the terminal, which top and
 * doctor give and then clean strings of files themselves; a text that continues
 * the user's, where no terminal obeys it; a command's own. */
static const struct {
    const char *name;
    bool unless_shown; /* on a terminal */
} raw[] = {
    {"top", false}, {"doctor", false}, {"sandbox", false}, {"generate", true}};

static void print_usage(FILE *out)
{
    fputs("usage: merak COMMAND [OPTION]...\n\ncommands:\n", out);
    for (const struct command *c = commands; c->name != NULL; c++)
        fprintf(out, "  %-9s %s\n", c->name, c->about);
    fputs("\n`merak COMMAND --help` lists a command's options; "
          "merak(1) has the rest.\n",
          out);
}

static void nothing(int number)
{
    (void)number;
}

/* Catch SIGXFSZ and do nothing: a write beyond the limit then fails with an
 * error.  Programs started from here get the default again. */
static void survive_file_limits(void)
{
    const struct sigaction action = {.sa_handler = nothing,
                                     .sa_flags = SA_RESTART};
    struct sigaction old;

    if (sigaction(SIGXFSZ, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        sigaction(SIGXFSZ, &action, NULL);
}

/* UCX catches SIGHUP when its library is loaded, before main(), and does
 * nothing of use then: a terminal that is closed would end nothing, nohup's
 * request would be lost, and programs that are started from here would not have
 * it either.  So what was asked for is noted before any library begins. */
static bool hangups_are_ignored;

static void note_hangups(void)
{
    struct sigaction old;

    hangups_are_ignored =
        sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first_of_all)(void) = note_hangups;

static void restore_hangups(void)
{
    signal(SIGHUP, hangups_are_ignored ? SIG_IGN : SIG_DFL);
}

static int run(const struct command *c, int argc, char **argv)
{
    FILE *screen = NULL;
    bool clean = true;
    int code;

    for (size_t i = 0; i < sizeof(raw) / sizeof(*raw); i++)
        clean = clean && (strcmp(raw[i].name, c->name) != 0 ||
                          (raw[i].unless_shown && isatty(STDOUT_FILENO)));
    if (clean)
        screen = merak_screen_open(STDOUT_FILENO);
    /* glibc's is a variable: so all that a command prints passes there */
    if (screen != NULL)
        stdout = screen;
    code = c->run(argc, argv);
    return code == MERAK_EXIT_DONE ? merak_cmd_flush(c->name, code) : code;
}

static int no_command(const char *name)
{
    struct merak_nearest nearest;
    char text[MERAK_NEAREST_TEXT];

    merak_nearest_init(&nearest, name);
    for (const struct command *c = commands; c->name != NULL; c++)
        merak_nearest_offer(&nearest, c->name);
    fprintf(stderr, "merak: no command \"%s\"%s; `merak --help` lists them\n",
            name, merak_nearest_word_text(&nearest, text, sizeof(text)));
    return MERAK_EXIT_CONFIG;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";

    merak_open_std();
    survive_file_limits();
    restore_hangups();
    if (strcmp(name, "--version") == 0) {
        puts(PACKAGE_STRING);
        return merak_cmd_flush(name, MERAK_EXIT_DONE);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
        print_usage(argc > 1 ? stdout : stderr);
        return argc > 1 ? merak_cmd_flush(name, MERAK_EXIT_DONE)
                        : MERAK_EXIT_CONFIG;
    }
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0)
            return run(c, argc - 1, argv + 1);
    }
    return no_command(name);
}
