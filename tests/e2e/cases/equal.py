"""Numbers do not depend on how they were computed (issue part 5, item 1)."""
import json
import os
import subprocess

from harness import Failed, case, check, equal
from model import largest_difference, read_safetensors

STRATEGIES = ("ddp", "zero1", "zero2", "zero3")
_hashes = {}  # ranks: the first hash seen, with where it came from


def instruction_sets():
    with open("/proc/cpuinfo") as f:
        flags = next((line.split(":")[1].split() for line in f if line.startswith("flags")), [])
    sets = ["plain"]
    if {"avx2", "fma", "f16c"} <= set(flags):
        sets.append("avx2")
    if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= set(flags):
        sets.append("avx512")
    return sets


def one_hash(bench, ranks, isa):
    runs = 0
    for strategy in STRATEGIES:
        for slots in (2, 4):
            for threads in (1, 2):
                how = f"{strategy}, {slots} gather slots, {threads} threads, {isa}"
                result = bench.run(ranks, strategy, bench.gpt(), env={"ZEROD_ISA": isa}, gather_slots=slots,
                                   threads=threads)
                equal(result["steps"], 20, f"steps ({how})")
                equal({r["isa"] for r in result["ranks"]}, {isa}, f"instruction set ({how})")
                first, where = _hashes.setdefault(ranks, (result["param_hash"], how))
                check(result["param_hash"] == first,
                      f"param_hash {result['param_hash']} ({how}), but {first} ({where})")
                runs += 1
    bench.note(f"{runs} runs, param_hash {_hashes[ranks][0]}")


for _ranks in (2, 4):
    for _isa in instruction_sets():
        case(f"equal/hash_{_ranks}_ranks_{_isa}", seconds=12 * (0.7 + 0.4 * _ranks), ranks=_ranks, isa=_isa)(one_hash)


@case("equal/two_micro_batches", seconds=8)
def two_micro_batches(bench):
    dumps, hashes = {}, {}
    for strategy in STRATEGIES:
        dumps[strategy] = bench.path(strategy + ".safetensors")
        result = bench.run(2, strategy, bench.gpt(micro_batches=2, dump=dumps[strategy]))
        hashes[strategy] = result["param_hash"]
    equal(hashes["zero2"], hashes["zero3"], "param_hash of zero2 against zero3")
    tensors = {s: read_safetensors(path) for s, path in dumps.items()}
    equal(hashes["zero1"], hashes["ddp"], "param_hash of zero1 against ddp")
    apart, name = largest_difference(tensors["ddp"], tensors["zero3"])
    check(apart <= 1e-6, f"ddp and zero3 differ by {apart} in {name}")
    check(tensors["zero2"].keys() == tensors["zero3"].keys() and
          largest_difference(tensors["zero2"], tensors["zero3"])[0] == 0, "zero2's and zero3's dumps differ")
    bench.note(f"ddp apart by {apart:.1e}")


@case("equal/one_rank_is_standalone", seconds=8)
def one_rank_is_standalone(bench):
    dumps, one_thread = {}, {"OPENBLAS_NUM_THREADS": "1"}
    alone = bench.path("alone.json")
    for k in (1, 2):
        dumps["alone"] = bench.path("alone.safetensors")
        command = bench.gpt(micro_batches=k, dump=dumps["alone"], json=alone, standalone=True)
        done = subprocess.run(command, env={**bench.environment, **one_thread}, capture_output=True,
                              text=True, timeout=30)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr}")
        want = read_safetensors(dumps["alone"])
        for strategy in STRATEGIES:
            dumps[strategy] = bench.path(strategy + ".safetensors")
            result = bench.run(1, strategy, bench.gpt(micro_batches=k, dump=dumps[strategy]), env=one_thread)
            apart, name = largest_difference(want, read_safetensors(dumps[strategy]))
            check(apart == 0, f"{strategy}, {k} micro-batches: {name} differs by {apart} from --standalone")
            equal(result["losses"], losses_of(alone), f"losses of {strategy} against --standalone")
            equal(result["param_hash"], json_of(alone)["param_hash"], "param_hash against --standalone")


def json_of(path):
    with open(path) as f:
        return json.load(f)


def losses_of(path):
    return json_of(path)["losses"]


@case("equal/bf16", seconds=8)
def bf16(bench):
    """bf16 parameters: one hash over strategies too, and another than fp32's."""
    hashes = {s: bench.run(2, s, bench.gpt(dtype="bf16"), param_dtype="bf16")["param_hash"] for s in STRATEGIES}
    check(len(set(hashes.values())) == 1, f"hashes differ: {hashes}")
    fp32 = bench.run(2, "zero3", bench.gpt())["param_hash"]
    check(fp32 != hashes["zero3"], "bf16 changed nothing")


@case("equal/planted_difference", seconds=4)
def planted_difference(bench):
    """The comparison can fail: another seed gives another hash."""
    hashes = {bench.run(2, "zero2", bench.gpt(steps=3, seed=seed))["param_hash"] for seed in (1, 2)}
    equal(len(hashes), 2, "hashes of two seeds")
    check(os.path.exists(bench.path("job.json")), "no JSON")
