"""Wrong input: a clear message, an exit status, unharmed daemons (issue part 5, item 6)."""
import os
import subprocess

from harness import case, check, equal


def mentions(text, *parts):
    for part in parts:
        check(part in text, f"no \"{part}\" in:\n{text}")


def usage(bench, parts, ranks=2, strategy="zero3", env=None, **options):
    mentions(bench.fail(ranks, strategy, bench.gpt(), code=2, env=env, **options), *parts)


case("wrong/unknown_strategy", parts=("zero9", "ddp, zero1, zero2, zero3", "hybrid_shard"), strategy="zero9")(usage)
case("wrong/shard_size", parts=("shard-size 3", "divide the 4 ranks"), ranks=4, strategy="hybrid_shard",
     shard_size=3)(usage)
case("wrong/shard_size_of_zero3", parts=("shard-size 2", "not zero3"), shard_size=2)(usage)
case("wrong/no_ranks", parts=("ranks", "0", "1 to 64"), ranks=0)(usage)
case("wrong/drill", parts=("phase=lunch", "gather, compute"), drill="kill-trainer:rank=0,step=1,phase=lunch")(usage)
case("wrong/drill_rank", parts=("rank=2", "0 to 1"), drill="kill-trainer:rank=2,step=1")(usage)


@case("wrong/long_socket_path")
def long_path(bench):
    folder = os.path.join(bench.tmp, "a" * 60)
    os.mkdir(folder)
    deep = os.path.join(folder, "b" * 20)
    os.mkdir(deep)
    command = bench.start(1, "zero3", bench.gpt(), env={"TMPDIR": deep})
    equal(command.wait(), 2, "exit status")
    mentions(command.err(), "107", "coordinator.sock", "TMPDIR")
    os.rmdir(deep)
    os.rmdir(folder)


@case("wrong/data_missing")
def data_missing(bench):
    text = bench.fail(2, "zero3", bench.gpt(data="/no/such/text"))
    mentions(text, "/no/such/text", "No such file", "not started again")


@case("wrong/too_little_memory")
def too_little_memory(bench):
    text = bench.fail(2, "zero3", bench.gpt(), device_memory=65536, max_restarts=0)
    mentions(text, "65536")


@case("wrong/daemon_alone")
def daemon_alone(bench):
    """The daemons themselves, started by hand, say what is wrong with their options."""
    long_path = os.path.join(bench.tmp, "x" * 120)
    good = ["--job", "j", "--world", "2"]
    for program, words, code, parts in (
            ("zerod", [], 2, ("listen",)), ("zerocoord", [], 2, ("listen",)),
            ("zerocoord", ["--listen", "p", "--job", "j", "--world", "0"], 2, ("world", "0")),
            ("zerocoord", ["--listen", long_path] + good, 1, ("107", "bytes")),
            ("zerod", ["--listen", "a", "--handover", "b", "--coordinator", "c", "--rank", "2"] + good, 2, ("rank 2",)),
            ("zerod", ["--listen", long_path, "--handover", "b", "--coordinator", "c", "--rank", "0"] + good, 1,
             ("107", "bytes")),
            ("zerod", ["--listen", "a", "--handover", long_path, "--coordinator", "c", "--rank", "0"] + good, 1,
             ("107", "bytes"))):
        done = subprocess.run([bench.program(program), *words], cwd=bench.folder, env=bench.environment,
                              capture_output=True, text=True, timeout=10 * bench.slow)
        equal(done.returncode, code, f"{program} {' '.join(words)}: {done.stderr}")
        mentions(done.stderr, *parts)
        check(not os.path.exists(bench.path("a")), f"{program} left its socket behind")


# ---- trainers that misbehave: bad_trainer.c ------------------------------------------------------------

def bad(bench, mode, parts, code=1, ranks=2, strategy="zero3", **options):
    trainer = [bench.program("bad_trainer"), mode]
    options = {"max_restarts": 0, **options}
    if code:
        text = bench.fail(ranks, strategy, trainer, code=code, **options)
    else:
        result = bench.run(ranks, strategy, trainer, **options)
        text = result["out"] + result["err"]
        equal(result["steps"], 5, "steps of a job that went on")
    mentions(text, *parts)


# pytorch#140563: a mismatch of sizes is found hours later, in a hang.
case("wrong/other_shape", mode="other-shape", parts=("rank 1", "body.weight", "[24, 16]", "[16, 16]"))(bad)
# VeOmni#172: replicas that differ (ranks 0 and 1 hold other parts, ranks 0 and 2 the same).
case("wrong/other_initial_values_of_replicas", mode="other-replica", ranks=4, strategy="hybrid_shard", shard_size=2,
     parts=("the initial values of unit \"body\" differ between rank 0 and rank 2",))(bad)
case("wrong/other_initial_values", mode="other-values", ranks=3,
     parts=("the initial values of unit \"body\" differ between rank 0 and rank 1",))(bad)

# These go on: the call that was wrong fails, on every rank where it must, and the step is redone. The trainer prints
# what it was told and exits with an error if it was told something else.
# pytorch#75373, accelerate#3250, DeepSpeed#5066: ranks ask for different collectives, and all hang.
for _strategy in ("ddp", "zero2", "zero3"):
    case(f"wrong/leaves_plan_{_strategy}", mode="leaves-plan",
         parts=("FAILED_PRECONDITION: rank 1: step 3", 'says gather "body"', 'asked for gather "last"'), code=0,
         strategy=_strategy)(bad)
    case(f"wrong/leaks_lease_{_strategy}", mode="leaks-lease",
         parts=('FAILED_PRECONDITION: rank 1: step 3: the trainer ended it while unit "body" is still held',), code=0,
         strategy=_strategy)(bad)
case("wrong/holds_all_slots", mode="holds-all", parts=("RESOURCE_EXHAUSTED", 'it holds all 2 gather slots, "embed", "body"'),
     code=0)(bad)
case("wrong/second_trainer", mode="second", parts=("ALREADY_EXISTS: rank 1 has a live trainer, pid",), code=0)(bad)
# pytorch#90465, #104187, axolotl#3476: parameters are used before anybody wrote them.
case("wrong/gather_before_load", mode="early-gather",
     parts=("FAILED_PRECONDITION", "'embed' in step 0: its initial values are being loaded"), code=0)(bad)
case("wrong/other_learning_rate", mode="other-lr", code=0,
     parts=("FAILED_PRECONDITION: step 3: rank 1 gave learning rate 0.002, rank 0 gave 0.001",))(bad)
case("wrong/not_finite", mode="not-finite", parts=("skipped",), code=0)(bad)
case("wrong/aborts", mode="aborts", parts=("ABORTED", "out of luck"), code=0)(bad)
