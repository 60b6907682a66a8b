/* zeroctl status: asks the coordinator who is there, then each daemon, and prints the answers. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/opt.h"
#include "message_json.h"
#include "proto/grpc_channel.h"
#include "tables.h"
#include "zeroctl.h"

enum { MEMBERS_MAX = 4096 };
static const int64_t call_limit_ns = 10 * INT64_C(1000000000);

static struct {
    bool json, help;
    const char *address;
} options;

static struct opt table[] = {
    OPT_FLAG(0, "json", &options.json, "Print JSON: all that the coordinator and the daemons say."),
    OPT_TEXT('a', "address", "PATH", NULL, &options.address, "Socket of the job's coordinator."),
    OPT_FLAG('h', "help", &options.help, "Print this help."),
    OPT_END,
};

static int fail(int status, const char *text) {
    (void)fprintf(stderr, "zeroctl status: %s\n", text);
    return status;
}

static void print_help(void) {
    (void)fputs(
        "Usage: zeroctl status [OPTIONS]\n\n"
        "Shows what each rank of a job holds and does: strategy, step, attempt, phase and\n"
        "trainer; memory by kind beside the formula; bytes sent per step beside the formula\n"
        "and beside ddp's.\n\n",
        stdout);
    opt_help(table, stdout);
    (void)fputs("\nExamples:\n"
                "  zeroctl status\n"
                "  zeroctl status --json --address /tmp/zerorun-Ab12Cd/coordinator.sock\n",
                stdout);
}

/* Asks the process at |path|; NULL and |e|: no answer. */
static Zerod__V1__StatusReply *ask(const char *path, struct err *e) {
    static const Zerod__V1__StatusRequest request = ZEROD__V1__STATUS_REQUEST__INIT;
    struct grpc_channel *channel;
    ProtobufCMessage *reply = NULL;
    if (grpc_channel_connect(path, 0, &channel, e)) {
        return NULL;
    }
    int rc = grpc_channel_unary(channel, "/zerod.v1.Admin/Status", &request.base,
                                &zerod__v1__status_reply__descriptor, call_limit_ns, &reply, e);
    grpc_channel_close(channel);
    return rc ? NULL : (Zerod__V1__StatusReply *)reply;
}

struct answers {
    Zerod__V1__StatusReply *job;
    size_t count;
    struct rank_answer *ranks;        /* owned */
    Zerod__V1__StatusReply **replies; /* owned; NULL where none came */
    struct err *errors;               /* owned */
};

static void free_reply(Zerod__V1__StatusReply *r) {
    if (r) {
        zerod__v1__status_reply__free_unpacked(r, NULL);
    }
}

static void answers_free(struct answers *a) {
    for (size_t i = 0; i < a->count; i++) {
        free_reply(a->replies[i]);
    }
    free_reply(a->job);
    free(a->ranks);
    free(a->replies);
    free(a->errors);
}

static void ask_rank(struct answers *a, size_t i, const Zerod__V1__Member *member) {
    a->ranks[i].rank = member->rank;
    Zerod__V1__StatusReply *reply = ask(member->address, &a->errors[i]);
    a->replies[i] = reply;
    if (reply && reply->of_case == ZEROD__V1__STATUS_REPLY__OF_RANK) {
        a->ranks[i].status = reply->rank;
    } else if (reply) {
        a->ranks[i].error = "what listens there is no daemon";
    } else {
        a->ranks[i].error = a->errors[i].text;
    }
}

static int gather_answers(const char *path, struct answers *a, struct err *e) {
    a->job = ask(path, e);
    if (!a->job) {
        return -e->code;
    }
    if (a->job->of_case != ZEROD__V1__STATUS_REPLY__OF_JOB) {
        return err_set(e, ST_FAILED_PRECONDITION, "%.107s is no coordinator's socket", path);
    }
    size_t count = a->job->job->n_members;
    if (count > MEMBERS_MAX) {
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%zu members, the limit is %d", count,
                       MEMBERS_MAX);
    }
    a->ranks = mem_zeroed(count, sizeof *a->ranks);
    a->replies = mem_zeroed(count, sizeof(Zerod__V1__StatusReply *));
    a->errors = mem_zeroed(count, sizeof *a->errors);
    a->count = count;
    for (size_t i = 0; i < count; i++) {
        ask_rank(a, i, a->job->job->members[i]);
    }
    return 0;
}

static int print_json(const struct answers *a) {
    cJSON *top = cJSON_CreateObject();
    cJSON_AddItemToObject(top, "job", message_json(&a->job->job->base));
    cJSON *list = cJSON_AddArrayToObject(top, "ranks");
    for (size_t i = 0; i < a->count; i++) {
        const struct rank_answer *r = &a->ranks[i];
        cJSON *item = r->status ? message_json(&r->status->base) : cJSON_CreateObject();
        if (!r->status) {
            cJSON_AddNumberToObject(item, "rank", r->rank);
            cJSON_AddStringToObject(item, "error", r->error);
        }
        cJSON_AddItemToArray(list, item);
    }
    char *text = cJSON_Print(top);
    cJSON_Delete(top);
    if (!text) {
        return fail(EXIT_FAILED, "out of memory");
    }
    (void)puts(text);
    cJSON_free(text);
    return 0;
}

static bool all_answered(const struct answers *a) {
    for (size_t i = 0; i < a->count; i++) {
        if (!a->ranks[i].status) {
            return false;
        }
    }
    return true;
}

static int print(const struct answers *a) {
    if (options.json) {
        return print_json(a);
    }
    tables_job(a->job->job, stdout);
    tables_ranks(a->ranks, a->count, stdout);
    tables_numbers(a->ranks, a->count, stdout);
    return 0;
}

int status_main(int argc, char **argv) {
    struct err e;
    struct answers a = {0};
    char path[108];
    int rest;
    if (opt_parse(table, argc, argv, &rest, &e)) {
        return fail(EXIT_USAGE, e.text);
    }
    if (options.help) {
        print_help();
        return 0;
    }
    if (rest < argc) {
        return fail(EXIT_USAGE, "takes options only; `zeroctl status --help` lists them");
    }
    int rc = find_coordinator(options.address, path, &e);
    if (rc) {
        return fail(rc == -ST_NOT_FOUND ? EXIT_FAILED : EXIT_USAGE, e.text);
    }
    rc = gather_answers(path, &a, &e);
    int status = rc ? fail(EXIT_FAILED, e.text) : print(&a);
    if (!status && !all_answered(&a)) {
        status = EXIT_FAILED;
    }
    answers_free(&a);
    return status;
}
