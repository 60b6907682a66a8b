/* Rules that the simulation takes away, one at a time, to show that it would notice (tests/sim).
 *
 * In the product RULE() is the constant true, and PLANT() and JOB_POINT() are nothing. Compiled
 * with ZD_JOB_PLANTED (the simulation's own copy of job/) a rule is in force unless its bit is set
 * in job_without, and JOB_POINT() marks where a daemon can die in the middle of a call. The names
 * are those of the checked model; what each means is said where it stands in the code, and in one
 * line each in tests/sim/rules.c, which also lists those that the simulated engine follows.
 */
#ifndef ZD_JOB_FAULTS_H
#define ZD_JOB_FAULTS_H

#ifdef ZD_JOB_PLANTED

#include <stdint.h>

#include "job/words.h"

enum job_rule {
    fence_has_attempt,
    vote_recorded_before_sent,
    number_granted_once,
    whole_roster_grants,
    no_vote_below_grant,
    silence_determines_nothing,
    yes_is_final,
    death_is_a_no,
    records_by_step,
    records_have_crc,
    records_outlive_abort,
    skip_is_recorded,
    decision_recorded_before_applied,
    decision_carries_t,
    decision_carries_scale,
    decision_keeps_fence,
    votes_beat_older_decision,
    scalars_decide,
    vote_counts_once,
    doubt_outlives_generation,
    calls_carry_generation,
    attempt_above_all_opened,
    successor_needs_new_grant,
    begin_waits_for_decision,
    begin_waits_for_idle,
    early_begin_is_kept,
    refused_coordinator_exits,
    job_rules, /* the rest are the simulated engine's */
    tile_through_scratch = job_rules,
    progress_names_step,
    arena_outlives_yes,
    abort_frees_slots,
    all_rules,
};

extern uint64_t job_without;                 /* a bit for each rule that is taken away */
extern void (*job_point)(const char *where); /* may not return */
void job_forget(struct records *r, uint64_t step);

#define RULE(name) (!((job_without >> (name)) & 1))
#define PLANT(name, ...)                                                                           \
    do {                                                                                           \
        if (!RULE(name)) {                                                                         \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#define JOB_POINT(where) job_point(where)

#else

#define RULE(name) true
#define PLANT(name, ...) ((void)0)
#define JOB_POINT(where) ((void)0)

#endif
#endif
