/* SPDX-License-Identifier: Apache-2.0 */
/* branch.c - the branches of a run that was taken back to an earlier step
 *
 * Who goes on from step-4 of a run that has a step-10 makes a branch: its
 * checkpoints come after step-4, the others after it do not.  A checkpoint's
 * manifest and RUN/BRANCH, one line, have the branch as text:
 *
 *   NUMBER [FROM:STEP]..
 *
 * its number, and whence it comes: branch FROM up to that step, oldest first.
 * So "2 0:10 1:16" has its own checkpoints, those of branch 1 up to step 16
 * and those of branch 0 up to step 10.  "" is branch 0, of a run that was never
 * taken back, which has no RUN/BRANCH either: then all checkpoints are its own.
 *
 * RUN/BRANCH is the branch that LATEST is on.  It is replaced by a rename once
 * a run that goes back has loaded its checkpoint, before LATEST is and before
 * anything is saved: a kill leaves the old branch or the new one, and the next
 * start of a branch sets LATEST right.
 *
 * Resuming, pruning and the search for an older checkpoint in place of a
 * damaged one leave out the checkpoints of other branches.  One whose manifest
 * cannot be read counts as the branch's: it is named as damaged, and skipped.
 */
#include "config.h"

#include "io/ckpt/ckpt_impl.h"

#include "base/error.h"
#include "io/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Far from a number whose next one does not fit. */
#define LAST_BRANCH UINT64_C(1000000000)

/* --- the text ---------------------------------------------------------------
 */

/* Take "FROM:STEP" at *at_p and move on; false at the end. */
static bool take_origin(const char **at_p, uint64_t *from_p, uint64_t *step_p)
{
    int n = 0;

    if (sscanf(*at_p, " %" SCNu64 ":%" SCNu64 "%n", from_p, step_p, &n) != 2)
        return false;
    *at_p += n;
    return true;
}

static const char *after_number(const char *branch, uint64_t *number_p)
{
    char *end;

    *number_p = strtoull(branch, &end, 10);
    return end;
}

bool merak_ckpt_branch_is_text(const char *branch)
{
    const char *at = branch;
    uint64_t number, from, step;

    if (*at == '\0')
        return true;
    if (*at < '0' || *at > '9')
        return false;
    at = after_number(at, &number);
    if (number > LAST_BRANCH)
        return false;
    while (take_origin(&at, &from, &step)) {
        if (from >= number)
            return false;
    }
    return *at == '\0';
}

bool merak_ckpt_branch_has(const char *branch, const char *other, uint64_t step)
{
    uint64_t mine, theirs, from, last;
    const char *at = after_number(branch, &mine);

    (void)after_number(other, &theirs);
    while (mine != theirs && take_origin(&at, &from, &last)) {
        if (from == theirs && step <= last)
            return true;
    }
    return mine == theirs;
}

/* The step at which a branch begins; false: it has no origin. */
static bool origin_of(const char *branch, uint64_t *step_p)
{
    uint64_t number, from;
    const char *at = after_number(branch, &number);
    bool found = false;

    while (take_origin(&at, &from, step_p))
        found = true;
    return found;
}

/* --- the run ----------------------------------------------------------------
 */

/* RUN/BRANCH; "" and false if there is none. */
static enum merak_status read_branch(const char *run_dir,
                                     char branch[MERAK_CKPT_BRANCH],
                                     bool *found_p, struct merak_error *err)
{
    char path[PATH_MAX], *text = NULL;
    enum merak_status rc;
    size_t bytes;

    *found_p = false;
    branch[0] = '\0';
    rc = merak_durable_read(merak_path(path, run_dir, MERAK_CKPT_BRANCH_FILE),
                            &text, &bytes, err);
    if (rc == MERAK_ERR_NOT_FOUND)
        return MERAK_OK;
    if (rc != MERAK_OK)
        return rc;
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0' || strlen(text) >= MERAK_CKPT_BRANCH ||
        !merak_ckpt_branch_is_text(text)) {
        free(text);
        return merak_fail(err, MERAK_ERR_CORRUPT,
                          "%.150s is damaged: it does not say which branch of "
                          "the run goes on; remove it to take the newest "
                          "checkpoint of any",
                          path);
    }
    strcpy(branch, text);
    *found_p = true;
    free(text);
    return MERAK_OK;
}

/* The branch of a checkpoint, false if its manifest cannot be read. */
static bool branch_of(const char *run_dir, const struct merak_ckpt_entry *entry,
                      char branch[MERAK_CKPT_BRANCH])
{
    struct merak_ckpt_manifest *mf = NULL;
    char path[PATH_MAX];

    if (entry->kind == MERAK_CKPT_TMP ||
        merak_ckpt_load_manifest(merak_path(path, run_dir, entry->name), &mf,
                                 NULL) != MERAK_OK)
        return false;
    strcpy(branch, mf->state.branch);
    merak_ckpt_manifest_destroy(mf);
    return true;
}

enum merak_status merak_ckpt_branch_mark(const char *run_dir,
                                         struct merak_ckpt_entry *entries,
                                         int n, struct merak_error *err)
{
    char branch[MERAK_CKPT_BRANCH], theirs[MERAK_CKPT_BRANCH];
    bool found;
    enum merak_status rc = read_branch(run_dir, branch, &found, err);

    for (int i = 0; rc == MERAK_OK && found && i < n; i++)
        entries[i].elsewhere =
            branch_of(run_dir, &entries[i], theirs) &&
            !merak_ckpt_branch_has(branch, theirs, entries[i].step);
    return rc;
}

bool merak_ckpt_branch_goes_on(const char *run_dir)
{
    char branch[MERAK_CKPT_BRANCH];
    uint64_t step;
    bool found;

    return read_branch(run_dir, branch, &found, NULL) == MERAK_OK && found &&
           origin_of(branch, &step);
}

/* A branch that no checkpoint and not RUN/BRANCH has, from a step of another;
 * `from` NULL: from nothing. */
static enum merak_status
make_branch(const char *run_dir, const struct merak_ckpt_entry *entries, int n,
            const char *now, const char *from, uint64_t step,
            char branch[MERAK_CKPT_BRANCH], struct merak_error *err)
{
    char theirs[MERAK_CKPT_BRANCH], text[2 * MERAK_CKPT_BRANCH];
    const char *origins = "";
    uint64_t most, number;
    int bytes;

    (void)after_number(now, &most);
    for (int i = 0; i < n; i++) {
        if (!branch_of(run_dir, &entries[i], theirs))
            continue;
        (void)after_number(theirs, &number);
        most = number > most ? number : most;
    }
    if (from == NULL) {
        snprintf(branch, MERAK_CKPT_BRANCH, "%" PRIu64, most + 1);
        return MERAK_OK;
    }
    origins = after_number(from, &number);
    bytes = snprintf(text, sizeof(text), "%" PRIu64 "%s %" PRIu64 ":%" PRIu64,
                     most + 1, origins, number, step);
    if (bytes >= MERAK_CKPT_BRANCH)
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.100s was taken back too many times in a row: copy "
                          "the checkpoint to a directory of its own",
                          run_dir);
    strcpy(branch, text);
    return MERAK_OK;
}

/* Does a branch of that number go on after the step? */
static bool goes_on(const char *run_dir, const struct merak_ckpt_entry *entries,
                    int n, const char *branch, uint64_t step)
{
    char theirs[MERAK_CKPT_BRANCH];
    uint64_t mine, number;

    (void)after_number(branch, &mine);
    for (int i = 0; i < n; i++) {
        if (entries[i].step <= step || !branch_of(run_dir, &entries[i], theirs))
            continue;
        (void)after_number(theirs, &number);
        if (number == mine)
            return true;
    }
    return false;
}

enum merak_status merak_ckpt_branch_at(const char *run_dir, const char *named,
                                       bool *again_p, struct merak_error *err)
{
    size_t end = strlen(named), at;
    char branch[MERAK_CKPT_BRANCH];
    uint64_t origin, step;
    bool found;
    enum merak_status rc = read_branch(run_dir, branch, &found, err);

    while (end > 0 && named[end - 1] == '/')
        end--;
    for (at = end; at > 0 && named[at - 1] != '/';)
        at--;
    if (rc == MERAK_OK)
        *again_p = found && origin_of(branch, &origin) &&
                   sscanf(named + at, "step-%" SCNu64, &step) == 1 &&
                   step == origin;
    return rc;
}

enum merak_status merak_ckpt_branch_choose(const char *run_dir, bool named,
                                           const struct merak_ckpt_state *from,
                                           char branch[MERAK_CKPT_BRANCH],
                                           struct merak_error *err)
{
    struct merak_ckpt_entry *entries = NULL;
    char now[MERAK_CKPT_BRANCH], chosen[MERAK_CKPT_BRANCH] = "";
    bool found;
    int n = 0;
    enum merak_status rc = read_branch(run_dir, now, &found, err);

    if (rc == MERAK_OK)
        rc = merak_ckpt_list(run_dir, &entries, &n, err);
    if (rc != MERAK_OK)
        goto out;
    if (from == NULL) { /* a new beginning, among others' checkpoints */
        if (n > 0 || found)
            rc = make_branch(run_dir, entries, n, now, NULL, 0, chosen, err);
    } else if (!named) {
        strcpy(chosen, found ? now : from->branch);
    } else if (goes_on(run_dir, entries, n, from->branch, from->step)) {
        rc = make_branch(run_dir, entries, n, now, from->branch, from->step,
                         chosen, err);
    } else {
        strcpy(chosen, from->branch[0] == '\0' && found ? "0" : from->branch);
    }
    if (rc == MERAK_OK)
        strcpy(branch, chosen);
out:
    free(entries);
    return rc;
}

enum merak_status merak_ckpt_branch_enter(const char *run_dir,
                                          const char *branch,
                                          const struct merak_ckpt_state *from,
                                          struct merak_error *err)
{
    char now[MERAK_CKPT_BRANCH], line[MERAK_CKPT_BRANCH + 1];
    bool found;
    enum merak_status rc = read_branch(run_dir, now, &found, err);

    if (rc != MERAK_OK || (!found && branch[0] == '\0'))
        return rc;
    if (!found || strcmp(now, branch) != 0) {
        snprintf(line, sizeof(line), "%s\n", branch);
        rc =
            merak_ckpt_replace_line(run_dir, MERAK_CKPT_BRANCH_FILE, line, err);
    }
    if (rc != MERAK_OK || from == NULL)
        return rc;
    /* also in a branch that is entered already: a kill may have come between */
    merak_ckpt_name(line, from->step, MERAK_CKPT_PLAIN);
    strcat(line, "\n");
    return merak_ckpt_replace_line(run_dir, MERAK_CKPT_LATEST, line, err);
}
