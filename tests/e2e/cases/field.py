"""What users of FSDP, DeepSpeed and llm.c reported, as far as strategies, dtypes, tensors and optimizers are
concerned. Each case is named after what must happen here; its comment gives the thread. field/modes.c has the
trainer's side: numbers are exact, so the trainer itself knows what must come out.
"""
import json
import os
import re
import signal
import subprocess
import time

from harness import HANG, Skipped, case, check, equal

ALL = (("ddp", None), ("zero1", None), ("zero2", None), ("zero3", None), ("hybrid_shard", 2), ("hybrid_zero2", 2))


def options(strategy, size, **more):
    return dict(more, shard_size=size) if strategy.startswith("hybrid") else more


def field(bench, strategy, *words, ranks=4, size=2, **more):
    return bench.run(ranks, strategy, [bench.program("field"), *map(str, words)], **options(strategy, size, **more))


def refused(bench, *words, parts, strategy="zero3", **more):
    text = bench.fail(4, strategy, [bench.program("field"), *map(str, words)], max_restarts=0, **more)
    for part in parts:
        check(part in text, f"no \"{part}\" in:\n{text}")
    return text


# ---- a rank does something else than the others ------------------------------------------------------

@case("field/a_skipped_unit_is_an_error_that_names_it")
def skipped_unit(bench):
    """pytorch#152964: one rank skips a unit (masked batch) and everyone hangs."""
    for strategy, size in ALL:
        got = field(bench, strategy, "skips", size=size)
        equal(got["out"].count("FAILED_PRECONDITION: rank 1: step 2"), 4, f"ranks that were told ({strategy})")


@case("field/units_that_may_be_absent_count_as_zeros")
def absent(bench):
    """pytorch#152964 again, and DeepSpeed#5066, PR#5008: experts without tokens. Exact sums of those that took part."""
    for strategy, size in ALL:
        field(bench, strategy, "absent", size=size)


@case("field/a_step_before_the_last_micro_batch_is_refused")
def early(bench):
    """transformers#34645, torchtune#1275, DeepSpeed#8262, #8321: ranks are in different phases."""
    for strategy, size in ALL:
        got = field(bench, strategy, "early", size=size)
        equal(got["out"].count("FAILED_PRECONDITION: rank 1: step 2, micro-batch 1"), 4, "ranks that were told")


@case("field/other_dtypes_are_named_at_registration")
def other_dtypes(bench):
    """pytorch#140563: a mismatch of sizes or dtypes is found hours later."""
    refused(bench, "other-dtype", parts=('dtype of parameters: "fp32" on rank 0, "bf16" on rank 1',))
    refused(bench, "other-wire", parts=('dtype of gradients on the wire: "fp32" on rank 0, "bf16" on rank 1',))


@case("field/a_gradient_given_twice_is_refused_and_harms_nothing")
def twice(bench):
    """DeepSpeed#988, #756, transformers#18330: "gradient computed twice for this partition"."""
    equal(field(bench, "zero2", "twice")["out"].count("ALREADY_EXISTS"), 1, "refusals")


@case("field/an_overflow_on_one_rank_skips_the_step_on_all")
def overflow(bench):
    """DeepSpeed#7568: the flag is not shared, ranks hang. The trainer compares all ranks' scales after each step."""
    for strategy, size in ALL:
        got = field(bench, strategy, "infinite", size=size)
        equal(got["skipped"], 1, f"skipped ({strategy})")


# ---- a rank is silent: processes started by hand, since zerorun would end the job ------------------

def by_hand(bench, daemons, world):
    """A coordinator and some of its daemons. (Waits until the coordinator says a text, and returns all that it said;
    ends them; seconds after which it names who is silent.)"""
    silence = int(2 * bench.slow)
    path, said = bench.path, bench.path("coordinator.log")
    job = ["--job", "by-hand", "--world", str(world)]
    commands = [["zerocoord", "--listen", path("c.sock"), "--silence", str(silence)]]
    commands += [["zerod", "--listen", path(f"r{r}.sock"), "--handover", path(f"r{r}.fd"), "--coordinator",
                  path("c.sock"), "--rank", str(r)] for r in daemons]
    started = []
    with open(said, "wb") as log:
        for name, *words in commands:
            started.append(subprocess.Popen([bench.program(name), *words, *job], env=bench.environment, stderr=log))

    def hears(part):
        end = time.monotonic() + HANG * bench.slow
        while True:
            with open(said, errors="replace") as f:
                text = f.read()
            if part in text:
                return text
            check(time.monotonic() < end, f"no \"{part}\" within {HANG} s in:\n{text}")
            time.sleep(0.02)

    def end():
        started[0].terminate()
        for process in started:
            process.wait(HANG * bench.slow)
    return hears, end, silence


def train_by_hand(bench, rank, world, *words):
    """The field trainer; its daemon must listen already, as zerorun waits for it."""
    address, end = bench.path(f"r{rank}.sock"), time.monotonic() + HANG * bench.slow
    while not os.path.exists(address):
        check(time.monotonic() < end, f"no {address}")
        time.sleep(0.01)
    where = {"RANK": str(rank), "WORLD_SIZE": str(world), "ZEROD_ADDRESS": address}
    return subprocess.Popen([bench.program("field"), *words], env={**bench.environment, **where},
                            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@case("field/a_missing_rank_is_named")
def missing(bench):
    """byteps#37, #233, #361, torchtune#1175: one process is late or elsewhere, and nobody says what is waited for."""
    hears, end, silence = by_hand(bench, (0, 2), 3)
    trainer = train_by_hand(bench, 0, 3, "norm")
    text = hears(f"waits for rank 2 of 3: its trainer has not registered a model within {silence} s")
    check(f"waits for rank 1 of 3: its daemon has not joined within {silence} s" in text, text)
    check("rank 0 of 3" not in text, text)
    end()
    trainer.wait(HANG * bench.slow)


@case("field/a_rank_whose_step_is_missing_is_named", seconds=10)
def lingers(bench):
    """accelerate#2375: one rank is missing in the last collective of a step, all hang. Here it is named while the others
    wait for it; when it comes, all go on."""
    hears, end, silence = by_hand(bench, (0, 1), 2)
    trainers = [train_by_hand(bench, r, 2, "lingers", str(silence + 3)) for r in (0, 1)]
    for trainer in trainers:
        equal(trainer.wait(HANG * bench.slow), 0, "exit status of a trainer")
    text = hears("rank 1 has not voted in step 2, attempt 1")
    check("rank 0" not in text, text)
    end()


# ---- numbers ---------------------------------------------------------------------------------------

@case("field/norms_are_the_whole_gradients_on_every_rank")
def norms(bench):
    """pytorch#170862, #88621, miles_diffusion#35, llm.c#524, DeepSpeed#7837: local, or a multiple, or not all of it.
    The same gradient on every rank: one norm for every strategy and number of ranks, the one computed here."""
    want = (0.125 ** 2 * 75 + 0.25 ** 2 * 33 + 0.375 ** 2 * 13) ** 0.5
    for ranks in (1, 2, 4, 8):
        for strategy, size in ALL:
            got = field(bench, strategy, "norm", ranks=ranks, size=min(2, ranks))
            equal(len(re.findall("norm", got["out"])), 4 * ranks, "norms that trainers saw")
            for norm in map(float, re.findall(r"norm (\S+)", got["out"])):
                check(abs(norm / want - 1) < 1e-6, f"{strategy} on {ranks} ranks: norm {norm}, expected {want}")


@case("field/the_reported_norm_is_that_before_clipping")
def clipped(bench):
    """DeepSpeed#7220, #6767: norms above the limit are printed, readers conclude that nothing is clipped."""
    free, tight = field(bench, "zero3", "norm"), field(bench, "zero3", "norm", 1)
    equal(tight["grad_norms"], free["grad_norms"], "norms with and without clipping")
    check(tight["param_hash"] != free["param_hash"], "clipping to 2^-10 changed nothing")


@case("field/micro_batches_of_all_replicas_are_summed")
def replicas(bench):
    """pytorch PR#125484: HSDP drops the other replicas' earlier micro-batches; DeepSpeed PR#7967, #7981: gradients of
    later micro-batches are lost. Exact means of four ranks' sums, for K of 1 to 8."""
    for strategy, size in ALL:
        for k in (1, 2, 3, 8):
            field(bench, strategy, "mean", k, size=size)


@case("field/replicas_are_summed_once_a_step")
def once_a_step(bench):
    """cosmos-framework#161: accumulation is a no-op, everything is communicated in every micro-batch."""
    for k in (1, 4):
        sent = [rank["sent_per_step_by_group"] for rank in field(bench, "hybrid_shard", "mean", k)["ranks"]]
        for rank in sent:  # 256 + 128 + 256 padded elements, two ranks to a group
            equal(rank["within"]["reduce_scatter"]["elements"], k * sent[0]["between"]["all_reduce"]["elements"],
                  f"elements summed within the group, K = {k}")
            equal(rank["within"]["all_reduce"]["elements"], 0, "all-reduces within the group")


@case("field/small_updates_of_bf16_parameters_are_not_lost")
def rounding(bench):
    """AReaL#1292 (moments in bf16), ml-by-hand#85 (0 of 768 weights moved): masters and states are fp32."""
    for strategy, size in ALL:
        got = field(bench, strategy, "rounding", size=size)
        equal(got["out"].count("70 of 70 elements moved"), 8, f"ranks ({strategy})")


@case("field/dtypes_may_be_mixed_in_a_unit")
def mixed(bench):
    """speculators#668: "expects uniform original parameter dtype", at the first forward pass."""
    trainer = [bench.program("synth"), "--mixed", "--dtype", "bf16", "--sizes", "7,64,3,1,0,9,5,130"]
    hashes = {bench.run(2, s, trainer)["param_hash"] for s in ("ddp", "zero1", "zero2", "zero3")}
    equal(len(hashes), 1, "hashes")


@case("field/skipped_steps_change_nothing")
def nans(bench):
    """DeepSpeed#8415, PR#8417: overflow skips every step and nothing is said. Five are skipped and counted, t stands
    still (the three good steps give the bits of a run without the five)."""
    for strategy, size in ALL:
        got, want = field(bench, strategy, "nans", 5, size=size), field(bench, strategy, "nans", 0, size=size)
        equal((got["steps"], got["skipped"]), (8, 5), "steps, skipped ones")
        equal(got["param_hash"], want["param_hash"], f"param_hash ({strategy})")


@case("field/too_many_skipped_steps_are_one_error")
def too_many(bench):
    """DeepSpeed#8415: a run that only skips must say so and stop."""
    refused(bench, "nans", 5, max_skips=3, parts=("step 4 would be skipped", "the limit is 3 in a row"))


@case("field/the_loss_scale_falls_to_its_floor_and_says_so")
def floor(bench):
    """DeepSpeed#1599, #697, PR#1958, #5426, #3856: the scale runs down for ever, or kills the run without a word."""
    text = refused(bench, "floor", parts=("step 18", "loss scale 1 is at its floor 1", "state is that of the last commit"))
    with open(bench.path("out")) as f:
        scales = [float(x) for x in re.findall(r"^rank 0: skipped with scale (\S+)", f.read(), re.M)]
    equal(scales, [65536.0] + [2.0 ** n for n in range(16, 0, -1)], f"scales, the first overflow is borne:\n{text}")


@case("field/overlap_changes_no_bit", seconds=10)
def overlap(bench):
    """DeepSpeed#5545, #8061, PR#7965, #5347: overlap_comm reads a buffer before it is written."""
    hashes = {bench.run(3, strategy, bench.gpt(steps=50, sleep_ms=ms, layers=1), **more)["param_hash"]
              for strategy in ("zero2", "zero3") for ms in (0, 1) for more in ({}, {"no_overlap": True})}
    equal(len(hashes), 1, "hashes")


@case("field/groups_of_two_levels_train")
def two_levels(bench):
    """DeepSpeed#5030: hpZ hangs for ever after a refactoring; 20 steps with gathers inside of groups."""
    losses = [bench.run(4, s, bench.gpt(steps=20), **options(s, 2))["losses"]
              for s in ("hybrid_shard", "hybrid_zero2", "zero3")]
    equal(losses[0], losses[1], "losses of hybrid_shard against hybrid_zero2")
    check(max(abs(a - b) / b for a, b in zip(losses[0], losses[2])) < 1e-5, "losses differ from zero3's")


# ---- structure -------------------------------------------------------------------------------------

@case("field/one_unit_that_is_most_of_the_model_is_warned_of")
def lopsided(bench):
    """stanford_alpaca#58, LlamaFactory#8279, accelerate#2947, transformers#26019: no wrap policy, out of memory. (A
    dry run: the same text is said at registration. What does not fit is wrong/too_little_memory's.)"""
    trainer = [bench.program("synth"), "--layers", "1", "--sizes", "6000000,3000000,2000000"]
    result = dry(bench, 2, "zero3", trainer)
    for part in ("layer0", "100.0 %", "predicted peak", "unit of its own"):
        check(part in result["warning"], result["warning"])
        check(part in result["err"], f"no \"{part}\" in:\n{result['err']}")


@case("field/what_does_not_fit_is_refused_with_numbers")
def too_large(bench):
    """The same threads: the limit is looked at before anything is allocated, and the unit is named."""
    trainer = [bench.program("synth"), "--layers", "1", "--sizes", "6000000,3000000,2000000"]
    text = bench.fail(2, "zero3", trainer, max_restarts=0, device_memory="100000000")
    for part in ("needs 264245248 bytes", "gather slots 88000512", "the limit is 100000000", 'unit "layer0"'):
        check(part in text, f"no \"{part}\" in:\n{text}")


@case("field/a_name_in_two_units_needs_an_alias")
def same_name(bench):
    """pytorch#79605, transformers#17681: tied embeddings in different units. Declared, they work: gpt --tied."""
    refused(bench, "same-name", parts=('"a" is in unit "first" and in unit "second"', "alias"))
    hashes = {bench.run(2, s, bench.gpt(steps=4, tied=True))["param_hash"] for s in ("zero2", "zero3")}
    equal(len(hashes), 1, "hashes of tied models")


@case("field/frozen_tensors_cost_nothing_and_stay")
def frozen(bench):
    """pytorch#104690, #100945, #91167, peft#1702: mixed requires_grad is an error, or wastes memory. The trainer
    compares the frozen values; here: no gradient, no state, no traffic of them."""
    for strategy, size in ALL:
        got, all_ = (field(bench, strategy, *mode, size=size) for mode in (("frozen",), ("mean", 1)))
        for line, each in (("optimizer", 4), ("grads", 4)):
            saved = [sum(r["memory"][line] for r in result["ranks"]) for result in (all_, got)]
            copies = {"ddp": 4, "zero1": 1 if line == "optimizer" else 4}.get(strategy, 4 // size if size else 1)
            equal(saved[0] - saved[1], 75 * each * copies, f"{strategy}: {line} bytes that frozen tensors save")
        for a, b in zip(got["ranks"], all_["ranks"]):
            for kind in ("reduce_scatter", "all_reduce"):
                sent = a["sent_per_step"][kind]["bytes"], b["sent_per_step"][kind]["bytes"]
                check(sent[0] < sent[1] or sent == (0, 0), f"{strategy}: {kind} of frozen tensors")


@case("field/one_rank_is_like_any_number")
def one_rank(bench):
    """pytorch#90050: the strategy is silently ignored for a group of one."""
    hashes = set()
    for strategy, size in ALL:
        got = bench.run(1, strategy, bench.gpt(steps=4), **options(strategy, 1))
        equal(got["strategy"], strategy, "strategy in effect")
        hashes.add(got["param_hash"])
    equal(len(hashes), 1, "hashes")


@case("field/another_model_does_not_take_over")
def another_model(bench):
    """transformers#34113: a retry after out-of-memory wraps the model a second time. The same model goes on (kills/*);
    another one is refused, naming the difference."""
    synth = bench.program("synth")
    script = (f"if [ $RANK = 1 ] && [ -e {bench.path('again')} ]; then exec {synth} --steps 400 --sizes 64,6; fi; "
              f"[ $RANK = 1 ] && touch {bench.path('again')}; exec {synth} --steps 400 --sizes 64,5")
    text = bench.fail(2, "zero3", ["/bin/sh", "-c", script], drill="kill-trainer:rank=1,step=2", max_restarts=1)
    for part in ("FAILED_PRECONDITION", "[5]", "[6]"):
        check(part in text, f"no \"{part}\" in:\n{text}")


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


@case("field/memory_stays_flat", seconds=15)
def flat(bench):
    """DeepSpeed#7693, #3590: the host's memory grows with the steps. From step 200 to 3000."""
    if bench.sanitized:
        raise Skipped("a sanitizer keeps freed memory for a while")
    trainer = [bench.program("synth"), "--steps", "100000", "--micro-batches", "2", "--sizes", "6000,500,1"]
    job = bench.start(2, "zero3", trainer)

    def look(step):
        job.poll(lambda: job.status_at(step), f"step {step}", 30)
        pids = {f"zerod {r}": pid for r, pid in job.pids("zerod").items()}
        return {name: resident(pid) for name, pid in {**pids, "zerocoord": job.pids("zerocoord")[0]}.items()}
    before = look(200)
    after = look(3000)
    for name, kib in before.items():
        check(after[name] <= kib * 1.01, f"{name}: {kib} KiB at step 200, {after[name]} KiB at step 3000")
    bench.note(", ".join(f"{name} {kib} to {after[name]} KiB" for name, kib in before.items()))
    os.kill(job.process.pid, signal.SIGTERM)
    equal(job.wait(12), 1, "exit status after SIGTERM")


# ---- the plan ----------------------------------------------------------------------------------------

def dry(bench, ranks, strategy, trainer, **more):
    """A dry run's JSON, with what it said."""
    job = bench.start(ranks, strategy, trainer, dry_run=True, **more)
    equal(job.wait(), 0, "exit status of a dry run:\n" + job.err())
    bench.nothing_left()
    with open(bench.path("job.json")) as f:
        result = json.load(f)
    result["out"], result["err"] = job.out(), job.err()
    return result


def planned(bench, ranks, strategy, size, trainer, **more):
    """DeepSpeed#7693, #3590: estimators are off. Here: to the byte, for each rank and line."""
    more = options(strategy, size, **more)
    plan, ran = dry(bench, ranks, strategy, trainer, **more), bench.run(ranks, strategy, trainer, **more)
    check(plan["dry_run"] and f"> {strategy}" in plan["out"], plan["out"])
    for rank, (a, b) in enumerate(zip(plan["ranks"], ran["ranks"])):
        for key in ("memory", "memory_formula", "memory_total", "sent_per_step_formula", "sent_per_step_ddp",
                    "sent_per_step_formula_by_group"):
            equal(a[key], b[key], f"rank {rank}'s {key} in the dry run against the job")
        equal(a["memory"], b["memory_formula"], f"rank {rank}'s memory against its formula")
        equal(a["sent_per_step_formula"], b["sent_per_step"], f"what rank {rank} would send against what it sent")
        check(all(n == 0 for kind in a["sent"].values() for n in kind.values()), "a dry run sends")


for _strategy, _size in ALL:
    @case(f"field/the_plan_is_what_runs_{_strategy}", strategy=_strategy, size=_size)
    def plan_is_job(bench, strategy, size):
        planned(bench, 4, strategy, size, bench.gpt(steps=3, tied=True, dtype="bf16", micro_batches=2),
                wire_dtype="bf16", gather_slots=3)
        synth = [bench.program("synth"), "--frozen", "--mixed", "--tied", "--optimizer", "lion"]
        planned(bench, 4, strategy, size, synth, kept_grad="bf16", threads=2, grad_slots=3)


@case("field/half_precision_follows_fp32", seconds=20)
def half_precision(bench):
    """bf16 and fp16 with loss scaling, also with bf16 gradients: losses of 200 steps within 2 % of fp32's."""
    gpt = {"steps": 200, "lr": 0.001, "warmup": 10, "batch": 4}
    want = bench.run(2, "zero3", bench.gpt(**gpt))["losses"]
    for dtype, more in (("bf16", {}), ("fp16", {}), ("bf16", {"wire_dtype": "bf16", "kept_grad": "bf16"})):
        got = bench.run(2, "zero3", bench.gpt(dtype=dtype, **gpt), **more)
        worst = max(abs(a - b) / b for a, b in zip(got["losses"], want))
        check(worst <= 0.02, f"{dtype} {more}: losses apart by {worst:.1%}")
        bench.note(f"{dtype} {'/'.join(more.values())} {worst:.2%}")
