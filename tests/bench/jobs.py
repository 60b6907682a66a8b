#!/usr/bin/python3
"""Benchmarks of whole jobs: real daemons under zerorun, beside PyTorch's on gloo.

    jobs.py wait | breakdown | registration | recovery | gpt-3m | gpt-25m

Peers that stay alive are started once, then asked in turn with ours (class Group)."""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import table  # noqa: E402
from groups import Group, Missing, cause, children, resident_mib  # noqa: E402

RANKS = 4
HERE = os.path.dirname(os.path.abspath(__file__))
APT = "/usr/bin/python3"
# shape: gpt's words, steps that are measured together, ours and the peers'
SHAPES = {"3.3M": ({"layers": 4, "heads": 4, "channels": 256, "seq": 128, "batch": 4}, 6, 3),
          "25M": ({"layers": 8, "heads": 8, "channels": 512, "seq": 64, "batch": 1}, 6, 2)}


def words(options):
    return [w for name, value in options.items() for w in ("--" + name, str(value))]


class Job:
    """zerorun's runs, in a folder of their own. |resident|: the most MiB a rank that the last one had."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="zb-")
        self.resident = 0.0

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, trainer, ranks=RANKS, strategy="zero3", **options):
        """zerorun's JSON and the trainer's."""
        command = [table.program("zerorun"), "-n", str(ranks), "--strategy", strategy, "--json", self.path("job"),
                   *words(options), "--", *trainer, "--json", self.path("trainer")]
        with open(self.path("log"), "w+") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env={**os.environ, "TMPDIR": self.folder})
            self.resident = 0.0
            while process.poll() is None:
                time.sleep(0.25)
                self.resident = max(self.resident, resident_mib(children(process.pid)) / ranks)
            if process.returncode:
                log.seek(0)
                sys.exit(f"{' '.join(command)}\nfailed:\n{log.read()}")
        with open(self.path("job")) as job, open(self.path("trainer")) as trained:
            return json.load(job), json.load(trained)

    def text(self):
        """What gpt trains on: bytes will do."""
        path = self.path("text")
        with open(path, "w") as f:
            f.write("In the beginning God created the heaven and the earth. " * 4000)
        return path

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- what a trainer waits for ------------------------------------------------------------------------

PARTS = ("prefetch", "gather", "release", "grad", "reduce", "step")


def joint_wait(job, ranks=RANKS):
    """From the last rank's call of zerod_step to the outcome, the median of ranks and steps, ms; and how much
    earlier rank 0 called it."""
    moments = []
    for rank in range(ranks):
        with open(job.path(f"trainer.{rank}")) as f:
            moments.append(json.load(f)[1:])
    last = [max(rank[step][0] for rank in moments) for step in range(len(moments[0]))]
    joint = [back - last[step] for rank in moments for step, (_, back) in enumerate(rank)]
    return (statistics.median(joint) / 1e6,
            statistics.median(all_in - called for all_in, (called, _) in zip(last, moments[0])) / 1e6)


def wait(job):
    """Its data ready, 4 ranks, steps of 100 ms without a core in use: all that zerod takes of a step.
    Less is better. Ranks, daemons and the coordinator share this machine's cores and are ready at the same
    moments; what a trainer waits for a core that others have is a row of its own."""
    units, tensors, elements = 6, 4, 131072  # 3.1M parameters
    trainer = [table.program("paced_trainer"), *words({"units": units, "tensors": tensors, "elements": elements,
                                                       "step-ms": 100, "steps": 12})]
    runs, joint = [], []
    for _ in range(3):
        runs.append(job.run(trainer)[1])
        joint.append(joint_wait(job))
    wall = [1e3 * r["wall"] for r in runs]
    waits = [1e3 * sum(r[p] for p in PARTS) for r in runs]
    bare = [w - 1e3 * r["no_core"] for w, r in zip(waits, runs)]
    table.row("a trainer's wait in a step", "ms", waits, wall, "the step")
    table.row("  of it for want of a core", "ms", [1e3 * r["no_core"] for r in runs], wall, "the step")
    table.row("  the rest of it: zerod", "ms", bare, wall, "the step")
    for part in PARTS + ("compute",):
        table.row(f"  in {part}" if part in PARTS else "  beside it computing (asleep)", "ms",
                  [1e3 * r[part] for r in runs], wall, "the step")
    table.row("  waits and computing", "ms", [1e3 * sum(r[p] for p in PARTS + ("compute",)) for r in runs], wall,
              "the step")
    table.row("step(): until the last rank calls", "ms", [skew for _, skew in joint], wall, "the step")
    table.row("step(): all ready to outcome", "ms", [all_in for all_in, _ in joint], wall, "the step")


def breakdown(job):
    """Where a step of the GPT job goes, as rank 0's daemon sees it, beside gpt's own clock: a long run less a
    short one, so that loading and the first step are in neither."""
    shape, _, _ = SHAPES["3.3M"]
    parts, wall = [], []
    for _ in range(3):
        ends = []
        for steps in (2, 10):
            whole, trained = job.run([table.program("gpt"), "--quiet", "--data", job.text(),
                                      *words({**shape, "steps": steps})])
            ends.append({**whole["ranks"][0]["seconds"], "wall": trained["seconds"], "steps": trained["steps"]})
        steps = ends[1]["steps"] - ends[0]["steps"]
        parts.append({k: 1e3 * (ends[1][k] - ends[0][k]) / steps for k in ends[0]})
        wall.append(parts[-1]["wall"])
    for part, text in (("compute", "computing"), ("gather", "waits in gather"), ("wait", "waits in step")):
        table.row("gpt 3.3M step: " + text, "ms", [r[part] for r in parts], wall, "the step")
    table.row("  the three together", "ms", [r["compute"] + r["gather"] + r["wait"] for r in parts], wall, "the step")
    table.row("  meanwhile: summing", "ms", [r["reduce"] for r in parts], wall, "the step")
    table.row("  meanwhile: updating", "ms", [r["update"] for r in parts], wall, "the step")


# ---- many tensors ------------------------------------------------------------------------------------

UNITS, TENSORS, ELEMENTS = 1000, 10, 64


def many(job):
    """paced_trainer's seconds by what, 2 ranks."""
    trainer = [table.program("paced_trainer"), *words({"units": UNITS, "tensors": TENSORS, "elements": ELEMENTS,
                                                       "steps": 4})]
    r = job.run(trainer, ranks=2)[1]
    return {"register, load": r["attach"] + r["load"], "first step": r["first_step"], "a step": r["wall"]}


def peers_many():
    """The same of FSDP2, and its name."""
    group = Group(table.peers_python(), "peers_many.py", (str(UNITS), str(TENSORS), str(ELEMENTS)), 2, limit=120)
    try:
        facts = group.facts
        return ({"register, load": facts["setup"], "first step": facts["first"], "a step": group.ask(1)},
                f"torch {table.short(facts['torch'])} FSDP2")
    finally:
        group.close()


def registration(job):
    """10,000 tensors in 1,000 units against FSDP2's wrapping of them and its first steps. Less is better."""
    ours, theirs, against, missing = [], [], "FSDP2", None
    for _ in range(3):
        ours.append(many(job))
        try:
            if not missing:
                seconds, against = peers_many()
                theirs.append(seconds)
        except Missing as e:
            missing = str(e)
    for name in ours[0]:
        mine, what = [r[name] for r in ours], f"10,000 tensors, {name}"
        if missing:
            table.not_run(what, against, missing, "s", mine)
        else:
            table.row(what, "s", mine, [r[name] for r in theirs], against)


# ---- recovery ----------------------------------------------------------------------------------------

def recovery(job):
    """From a trainer's death to the next one's first gather; the peer's: to its first step after. Less
    is better."""
    trainer = [table.program("gpt"), "--quiet", "--data", job.text(), "--layers", "8", "--heads", "8", "--channels",
               "256", "--seq", "32", "--batch", "1", "--steps", "16"]

    ours, theirs, again = [], [], []
    try:
        for _ in range(3):
            whole = job.run(trainer, drill="kill-trainer:rank=1,step=12,phase=reduce")[0]
            ours.append(whole["recoveries"][0]["kill_to_first_gather_ms"] / 1e3)
            seconds, steps, version = torchrun()
            theirs.append(seconds)
            again.append(steps)
    except Missing as e:
        table.not_run("kill to first gather", "torchrun, FSDP2, DCP", str(e), "s", ours)
        return
    table.row("kill to first gather", "s", ours, theirs, f"torchrun {version}, DCP")
    table.line(f"    finished steps taken again by torchrun: {max(again)}; ours needed {whole['attempts']} tries for "
               f"loading and {whole['steps']} steps, each committed once")


def torchrun():
    """Seconds from the kill to the first step, steps done again, torch's version.

    torchrun 2.15 gives all its restarts one store, in which restarted ranks find gloo's addresses of
    their dead predecessors and connect to those until no restarts are left; so each restart gets a
    store of its own (the variable below)."""
    python = table.peers_python()
    if not python:
        raise Missing(table.NO_PEERS)
    folder = tempfile.mkdtemp(prefix="zb-")
    command = [python, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "3", "--nproc-per-node",
               str(RANKS), os.path.join(HERE, "peers_recover.py"), folder]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    try:
        out, err = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        for pid in children(process.pid) | {process.pid}:  # its ranks would live on
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        raise Missing("it did not come back within 90 s") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = re.search(r"^recovered ([\d.]+) (\d+) (\S+)", out, re.M)
    if not found:
        raise Missing(cause(err))
    return float(found[1]), int(found[2]), table.short(found[3])


# ---- the whole job -----------------------------------------------------------------------------------

def standalone(job, shape, steps):
    done = subprocess.run([table.program("gpt-standalone"), "--quiet", "--data", job.text(), "--json",
                           job.path("alone"), *words({**shape, "steps": steps})], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    with open(job.path("alone")) as f:
        return json.load(f)["tokens_per_second"]


def gpt_pair(job, size, strategy, python, mode, name, rounds=3):
    shape, ours_steps, peer_steps = SHAPES[size]
    what = f"gpt {size}, {strategy}"
    try:
        group = Group(python, "peers_gpt.py", ["--mode", mode, *words(shape)], RANKS)
    except Missing as e:
        table.not_run(what, name, str(e))
        return
    tokens = RANKS * shape["batch"] * shape["seq"]
    trainer = [table.program("gpt"), "--quiet", "--data", job.text(), *words({**shape, "steps": ours_steps})]
    memory, theirs = [], []

    def ours():
        speed = job.run(trainer, strategy=strategy)[1]["tokens_per_second"]
        memory.append(job.resident)
        return speed

    def peer():
        speed = tokens * peer_steps / group.ask(peer_steps)
        theirs.append(group.resident())
        return speed

    try:
        a, b = table.alternate(ours, peer, rounds)
        against = f"torch {table.short(group.facts['torch'])} {name}"
        table.row(what, "t/s", a, b, against)
        table.row("  resident a rank", "MiB", memory[-rounds:], theirs[-rounds:], against)
    except Missing as e:
        table.not_run(what, name, str(e))
    finally:
        group.close()


def gpt(job, size, apt):
    shape, steps, _ = SHAPES[size]
    trainer = [table.program("gpt"), "--quiet", "--data", job.text(), *words({**shape, "steps": steps})]
    pair = table.alternate(lambda: job.run(trainer)[1]["tokens_per_second"], lambda: standalone(job, shape, steps), 3)
    table.row(f"gpt {size}, zero3, 4 ranks", "t/s", *pair, "gpt-standalone, 1 proc.")
    pypi = table.peers_python()
    for strategy, mode, name in (("zero3", "fsdp2", "FSDP2"), ("ddp", "ddp", "DDP"), ("zero1", "zero1", "ZeRO-1")):
        gpt_pair(job, size, strategy, pypi, mode, name)
    if apt:
        for strategy, mode, name in (("ddp", "ddp", "DDP"), ("zero1", "zero1", "ZeRO-1")):
            gpt_pair(job, size, strategy, APT, mode, name)


BENCHES = {"wait": wait, "breakdown": breakdown, "registration": registration, "recovery": recovery,
           "gpt-3m": lambda job: gpt(job, "3.3M", True), "gpt-25m": lambda job: gpt(job, "25M", False)}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in BENCHES:
        sys.exit(f"usage: jobs.py {' | '.join(BENCHES)}")
    job = Job()
    try:
        BENCHES[sys.argv[1]](job)
    finally:
        job.close()


main()
