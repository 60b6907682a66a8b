"""However a job ends, nothing of it stays (issue part 5, item 5)."""
import os
import signal
import subprocess
import time

from harness import case, check, equal


def running(bench, strategy="zero3"):
    job = bench.start(3, strategy, bench.gpt(steps=100000))
    job.step_reached(3)
    equal(len(job.pids("zerod")), 3, "daemons")
    equal(len(job.pids("zerocoord")), 1, "coordinators")
    return job


def new_lines(job, before):
    return [line for line in job.err()[len(before):].splitlines() if not line.startswith("zerorun: step ")]


@case("leftovers/done")
def done(bench):
    bench.run(2, "zero2", bench.gpt(steps=3))


def signalled(bench, number):
    job = running(bench)
    os.kill(job.process.pid, number)
    equal(job.wait(12), 1, "exit status")
    check("the job ends" in job.err(), job.err())
    bench.nothing_left()


case("leftovers/zerorun_sigterm", number=signal.SIGTERM)(signalled)
case("leftovers/zerorun_sigint", number=signal.SIGINT)(signalled)


@case("leftovers/trainers_ignore_signals", seconds=8)
def deaf_trainers(bench):
    """Lightning-AI/pytorch-lightning#15008: what does not end by itself keeps the job's place for ever."""
    words = " ".join(bench.gpt(steps=100000))
    job = bench.start(3, "zero3", ["/bin/sh", "-c", f"trap '' TERM INT HUP; {words}; sleep 1000"])
    job.step_reached(2)
    job.process.terminate()
    equal(job.wait(12), 1, "exit status")
    bench.nothing_left()


@case("leftovers/two_jobs_at_once")
def two_jobs(bench):
    """mosaicml/streaming#781: a fixed name, and the second job of a user fails. Here both go on."""
    first = bench.start(2, "zero3", bench.gpt(steps=100000))
    first.step_reached(2)
    second = subprocess.run([bench.program("zerorun"), "-n", "2", "--strategy", "zero3", "--",
                             *bench.gpt(steps=5)], env=bench.environment, capture_output=True, text=True,
                            timeout=10 * bench.slow)
    equal(second.returncode, 0, second.stderr)
    check(first.process.poll() is None, first.err())
    at = bench.status(first)["job"]["steps"]
    first.step_reached(at + 2)
    first.process.terminate()
    equal(first.wait(12), 1, "exit status")
    bench.nothing_left()


@case("leftovers/zerorun_sigkill")
def sigkill(bench):
    job = running(bench)
    os.kill(job.process.pid, signal.SIGKILL)
    job.wait()
    start = time.monotonic()
    bench.nothing_left()
    bench.note(f"gone after {time.monotonic() - start:.2f} s")


@case("leftovers/zerorun_sigkill_trainer_with_children")
def sigkill_children(bench):
    """The trainer is a shell that started others in its process group."""
    words = " ".join(bench.gpt(steps=100000))
    job = bench.start(2, "ddp", ["/bin/sh", "-c", f"sleep 1000 & {words}; wait"])
    job.step_reached(2)
    os.kill(job.process.pid, signal.SIGKILL)
    job.wait()
    bench.nothing_left()


def one_dies(bench, program, rank, name):
    job = running(bench)
    before, pid = job.err(), job.pids(program)[rank]
    start = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    equal(job.wait(3), 1, "exit status")
    seconds = time.monotonic() - start
    bench.nothing_left()
    check(seconds < 2 * bench.slow, f"the job ended after {seconds:.2f} s")
    lines = new_lines(job, before)
    check(len(lines) == 1 and name in lines[0] and str(pid) in lines[0] and "signal 9" in lines[0],
          f"expected one message naming {name}, pid {pid}, signal 9:\n" + "\n".join(lines))
    bench.note(f"ended after {seconds:.2f} s")


for _rank in (0, 2):
    case(f"leftovers/daemon_{_rank}_sigkill", program="zerod", rank=_rank, name=f"rank {_rank}")(one_dies)
case("leftovers/coordinator_sigkill", program="zerocoord", rank=0, name="coordinator")(one_dies)


@case("leftovers/daemon_dies_before_trainers_attach")
def early(bench):
    job = bench.start(2, "zero3", ["/bin/sh", "-c", "sleep 1000"])
    job.poll(lambda: len(job.pids("zerod")) == 2 and job.processes().count("sleep 1000") > 2, "all processes")
    os.kill(job.pids("zerod")[1], signal.SIGKILL)
    equal(job.wait(3), 1, "exit status")
    bench.nothing_left()


@case("leftovers/trainer_cannot_start")
def cannot_start(bench):
    script = bench.path("broken")
    with open(script, "w") as f:
        f.write("#!/no/such/interpreter\n")
    os.chmod(script, 0o755)
    text = bench.fail(2, "zero3", [script])
    check("cannot start" in text and "No such file" in text, text)
