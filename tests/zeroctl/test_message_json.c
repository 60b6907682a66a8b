/* Messages as JSON: every kind of field that our messages have. */
#include <math.h>
#include <string.h>

#include "client/zeroctl/message_json.h"
#include "tests/base/suite.h"
#include "zerod.pb-c.h"

static void check_json(const ProtobufCMessage *m, const char *expected) {
    cJSON *json = message_json(m);
    char *text = cJSON_PrintUnformatted(json);
    ck_assert_str_eq(text, expected);
    cJSON_free(text);
    cJSON_Delete(json);
}

START_TEST(test_numbers_and_messages) {
    Zerod__V1__HashReply hash = ZEROD__V1__HASH_REPLY__INIT;
    hash.sum = UINT64_MAX;
    hash.version = UINT64_C(9007199254740992);
    check_json(&hash.base, "{\"sum\":\"18446744073709551615\",\"version\":9007199254740992}");

    Zerod__V1__Fence fence = ZEROD__V1__FENCE__INIT;
    Zerod__V1__StepEvent event = ZEROD__V1__STEP_EVENT__INIT;
    double user[] = {1.5, NAN, -INFINITY};
    fence.step = 7;
    event.fence = &fence;
    event.outcome = ZEROD__V1__OUTCOME_KIND__OUTCOME_SKIPPED;
    event.grad_norm = 0.25;
    event.user = user;
    event.n_user = 3;
    event.reason = "a \"reason\"";
    check_json(&event.base,
               "{\"fence\":{\"generation\":0,\"step\":7,\"attempt\":0},\"outcome\":"
               "\"OUTCOME_SKIPPED\",\"grad_norm\":0.25,\"user\":[1.5,\"NaN\",\"-Infinity\"],"
               "\"reason\":\"a \\\"reason\\\"\",\"world_size\":0}");
}
END_TEST

START_TEST(test_oneof_lists_and_absence) {
    Zerod__V1__Member members[2] = {ZEROD__V1__MEMBER__INIT, ZEROD__V1__MEMBER__INIT};
    Zerod__V1__Member *list[2] = {&members[0], &members[1]};
    Zerod__V1__JobStatus job = ZEROD__V1__JOB_STATUS__INIT;
    Zerod__V1__StatusReply reply = ZEROD__V1__STATUS_REPLY__INIT;
    check_json(&reply.base, "{}");
    members[1].rank = 1;
    members[1].attached = 1;
    members[1].address = "a";
    job.members = list;
    job.n_members = 2;
    reply.of_case = ZEROD__V1__STATUS_REPLY__OF_JOB;
    reply.job = &job;
    check_json(&reply.base,
               "{\"job\":{\"job\":\"\",\"world_size\":0,\"generation\":0,\"phase\":\"\","
               "\"members\":[{\"rank\":0,\"pid\":0,\"address\":\"\",\"attached\":false},"
               "{\"rank\":1,\"pid\":0,\"address\":\"a\",\"attached\":true}],"
               "\"attempts\":0,\"steps\":0}}");
}
END_TEST

START_TEST(test_bytes_and_strings) {
    Zerod__V1__Ticket ticket = ZEROD__V1__TICKET__INIT;
    uint8_t token[] = {0, 15, 255};
    ticket.token.data = token;
    ticket.token.len = sizeof token;
    check_json(&ticket.base, "{\"token\":\"000fff\",\"socket_path\":\"\"}");

    Zerod__V1__Vote vote = ZEROD__V1__VOTE__INIT;
    uint64_t sums[] = {1, 2};
    vote.checksums = sums;
    vote.n_checksums = 2;
    vote.weight = 0.1;
    cJSON *json = message_json(&vote.base);
    char *text = cJSON_PrintUnformatted(json);
    ck_assert_ptr_nonnull(strstr(text, "\"checksums\":[1,2]"));
    ck_assert_ptr_nonnull(strstr(text, "\"weight\":0.10000000000000001")); /* all digits */
    cJSON_free(text);
    cJSON_Delete(json);
}
END_TEST

int main(void) {
    Suite *s = suite_create("zeroctl/message_json");
    TCase *t = tcase_create("json");
    tcase_add_test(t, test_numbers_and_messages);
    tcase_add_test(t, test_oneof_lists_and_absence);
    tcase_add_test(t, test_bytes_and_strings);
    suite_add_tcase(s, t);
    return run_suite(s);
}
