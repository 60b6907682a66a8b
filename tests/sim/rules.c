/* Every rule that can be taken away, what is done instead, and the size at which that shows. */
#include <string.h>

#include "world.h"

static void nothing(const char *where) {
    (void)where;
}

uint64_t job_without;
void (*job_point)(const char *where) = nothing;

void job_forget(struct records *r, uint64_t step) {
    for (unsigned i = 0; i < 2; i++) {
        if (r->votes[i].vote.fence.step == step) {
            r->votes[i].vote.fence.attempt = 0;
        }
        if (r->decisions[i].decision.fence.step == step) {
            r->decisions[i].decision.fence.attempt = 0;
        }
    }
}

/* Faults that show a rule soonest. */
#define ONLY(f) .kinds = (f)
#define BIT(f) (1u << (f))
#define RULE_BIT(r) (UINT64_C(1) << (r))
#define TWO .ranks = 2, .steps = 3, .tiles = 2, .faults = 3

const struct plant plants[] = {
    {"fence_has_attempt",
     "tags, votes and calls leave the attempt out",
     RULE_BIT(fence_has_attempt),
     {TWO}},
    {"vote_recorded_before_sent",
     "a vote is sent, then recorded",
     RULE_BIT(vote_recorded_before_sent),
     {TWO}},
    {"number_granted_once",
     "a number is granted to two coordinators",
     RULE_BIT(number_granted_once),
     {TWO, ONLY(BIT(COORDINATOR_STOPS))}},
    {"whole_roster_grants",
     "a coordinator acts with all grants but one",
     RULE_BIT(whole_roster_grants),
     {TWO}},
    {"no_vote_below_grant",
     "a daemon votes below the number it granted",
     RULE_BIT(no_vote_below_grant),
     {TWO}},
    {"silence_determines_nothing",
     "silence is taken for NO",
     RULE_BIT(silence_determines_nothing),
     {TWO, ONLY(BIT(COORDINATOR_DIES) | BIT(DAEMON_DIES))}},
    {"yes_is_final", "a YES is withdrawn when its trainer dies", RULE_BIT(yes_is_final), {TWO}},
    {"death_is_a_no",
     "a trainer's death before its YES is not a NO",
     RULE_BIT(death_is_a_no),
     {TWO}},
    {"records_by_step",
     "the older record is overwritten, whatever its step",
     RULE_BIT(records_by_step),
     {TWO, ONLY(BIT(TRAINER_DIES) | BIT(DAEMON_DIES))}},
    {"records_have_crc", "a torn record counts", RULE_BIT(records_have_crc), {TWO}},
    {"records_outlive_abort",
     "ABORT of a step frees the records of the step before",
     RULE_BIT(records_outlive_abort),
     {TWO}},
    {"skip_is_recorded",
     "a SKIP is not recorded",
     RULE_BIT(skip_is_recorded),
     {TWO, .skips = BIT(1), ONLY(BIT(DAEMON_DIES))}},
    {"decision_recorded_before_applied",
     "a decision is applied, then recorded",
     RULE_BIT(decision_recorded_before_applied),
     {TWO, ONLY(BIT(DAEMON_DIES_INSIDE))}},
    {"decision_carries_t",
     "a new coordinator counts t from the step",
     RULE_BIT(decision_carries_t),
     {TWO, .skips = BIT(1), ONLY(BIT(COORDINATOR_DIES) | BIT(DAEMON_DIES))}},
    {"decision_carries_scale",
     "a new coordinator starts the loss scale anew",
     RULE_BIT(decision_carries_scale),
     {TWO, .skips = BIT(1), ONLY(BIT(COORDINATOR_DIES) | BIT(DAEMON_DIES))}},
    {"decision_keeps_fence",
     "a decision sent again carries the new generation",
     RULE_BIT(decision_keeps_fence),
     {TWO}},
    {"votes_beat_older_decision",
     "recovery stops at a stored decision, without looking at votes",
     RULE_BIT(votes_beat_older_decision),
     {TWO, ONLY(BIT(COORDINATOR_DIES) | BIT(CONNECTION_BREAKS))}},
    {"scalars_decide", "lr that differ commit", RULE_BIT(scalars_decide), {TWO}},
    {"vote_counts_once",
     "a vote that arrives twice counts twice",
     RULE_BIT(vote_counts_once),
     {TWO}},
    {"doubt_outlives_generation",
     "a higher generation answers a step() that waits after YES",
     RULE_BIT(doubt_outlives_generation),
     {TWO}},
    {"calls_carry_generation+attempt_above_all_opened",
     "calls carry step and attempt only, and a new coordinator does not ask which were opened",
     RULE_BIT(calls_carry_generation) | RULE_BIT(attempt_above_all_opened),
     {TWO, ONLY(BIT(COORDINATOR_DIES) | BIT(CONNECTION_BREAKS))}},
    {"successor_needs_new_grant",
     "a restarted daemon enters tries of its predecessor's number",
     RULE_BIT(successor_needs_new_grant),
     {TWO, ONLY(BIT(DAEMON_DIES) | BIT(DAEMON_DIES_INSIDE))}},
    {"begin_waits_for_decision",
     "BEGIN overtakes the decision before",
     RULE_BIT(begin_waits_for_decision),
     {TWO}},
    {"begin_waits_for_idle",
     "BEGIN is taken while the workers are busy",
     RULE_BIT(begin_waits_for_idle),
     {TWO, ONLY(BIT(TRAINER_DIES) | BIT(TRAINER_LEAVES_PLAN))}},
    {"early_begin_is_kept",
     "a BEGIN that cannot act yet is dropped",
     RULE_BIT(early_begin_is_kept),
     {TWO}},
    {"refused_coordinator_exits",
     "a refused coordinator asks for the next number",
     RULE_BIT(refused_coordinator_exits),
     {TWO}},
    {"tile_through_scratch", "a tile is updated in place", RULE_BIT(tile_through_scratch), {TWO}},
    {"progress_names_step",
     "ready and done name the tile only",
     RULE_BIT(progress_names_step),
     {TWO, ONLY(BIT(DAEMON_DIES_INSIDE))}},
    {"arena_outlives_yes",
     "a dead trainer's slots go before its try is determined",
     RULE_BIT(arena_outlives_yes),
     {TWO, ONLY(BIT(TRAINER_DIES))}},
    {"abort_frees_slots",
     "a void try's slots wait for readers",
     RULE_BIT(abort_frees_slots),
     {TWO}},
};
const unsigned plant_count = sizeof plants / sizeof plants[0];
