"""What people see of zerorun and zeroctl (issue part 4)."""
import glob
import os
import pty
import re
import select
import signal
import subprocess
import time

from harness import HANG, Failed, Skipped, case, check, equal

TWO_LINES = "echo out $RANK; echo err $RANK >&2; "


def shell(bench, script):
    """A trainer that says something and then trains: rank 0's lines come first."""
    return ["/bin/sh", "-c", script + " ".join(bench.gpt(steps=3))]


@case("output/prefixes")
def prefixes(bench):
    got = bench.run(2, "zero3", shell(bench, TWO_LINES))
    equal(sorted(got["out"].splitlines()), ["[rank 1] out 1", "out 0"], "standard output")
    for line in ("[rank 0] err 0", "[rank 1] err 1"):
        check(line in got["err"].splitlines(), f"no \"{line}\" in:\n{got['err']}")


@case("output/binary_goes_through")
def binary(bench):
    """Rank 0's standard output is not touched, not even bytes that are no text."""
    wanted = bytes(range(256)) * 300
    with open(bench.path("bytes"), "wb") as f:
        f.write(wanted)
    bench.run(2, "zero3", shell(bench, f"[ $RANK = 0 ] && cat {bench.path('bytes')}; "))
    with open(bench.path("out"), "rb") as f:
        equal(f.read(), wanted, "rank 0's bytes")


@case("output/log_lines")
def log_lines(bench):
    got = bench.run(2, "zero3", bench.gpt(steps=30))
    lines = [line for line in got["err"].splitlines() if line.startswith("zerorun: step ")]
    check(2 <= len(lines) <= 12, f"{len(lines)} lines of steps in a short job:\n{got['err']}")
    check(lines[0].startswith("zerorun: step 1:") and lines[-1].startswith("zerorun: step 30:"), got["err"])
    check("\r" not in got["err"] and "\033" not in got["err"], "terminal codes in a log")
    check(re.search(r"done: 30 steps in .*last loss .*param_hash [0-9a-f]{16}", got["err"]), got["err"])
    equal(len(got["losses"]), 30, "losses")
    equal(len(got["grad_norms"]), 30, "grad norms")
    for key in ("gather", "compute", "reduce", "update", "wait"):
        check(got["seconds"][key] >= 0, f"no seconds of {key}")


def on_terminal(bench, command):
    """Runs it with a terminal for all its streams; (exit status, what the terminal got)."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(command[0], command, bench.environment)
    seen, end = b"", time.monotonic() + HANG * bench.slow
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                data = os.read(fd, 65536)
            except OSError:
                data = b""
            if not data:
                os.close(fd)
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode(errors="replace")
            seen += data
    raise Failed(f"zerorun runs for more than {HANG} s on a terminal:\n{seen.decode(errors='replace')}")


@case("output/terminal")
def terminal(bench):
    command = [bench.program("zerorun"), "-n", "2", "--"] + shell(bench, TWO_LINES)
    code, seen = on_terminal(bench, command)
    equal(code, 0, "exit status:\n" + seen)
    check("\r\x1b[K" + "step " in seen, f"no progress line:\n{seen!r}")
    check("zerorun: step" not in seen, f"plain lines beside the progress line:\n{seen!r}")
    for line in re.sub(r"[^\n]*\x1b\[K", "", seen).splitlines():
        if "out " in line or "err " in line:
            check(re.fullmatch(r"(\[rank \d\] )?(out|err) \d", line.strip()), f"mixed with the progress line: {line!r}")


@case("output/environment")
def environment(bench):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    script = "echo " + " ".join(f"{n}=${n}" for n in names) + " ${ZEROD_ADDRESS##*/}; "
    got = bench.run(3, "zero3", shell(bench, script), env={"OMP_NUM_THREADS": "7"})
    each = max(1, len(os.sched_getaffinity(0)) // 3)
    for rank in range(3):
        want = (f"RANK={rank} WORLD_SIZE=3 LOCAL_RANK={rank} LOCAL_WORLD_SIZE=3 OPENBLAS_NUM_THREADS={each} "
                f"OMP_NUM_THREADS=7 rank{rank}.sock")
        line = want if rank == 0 else f"[rank {rank}] {want}"
        check(line in got["out"].splitlines(), f"no \"{line}\" in:\n{got['out']}")


def say(bench, program, *words):
    return subprocess.run([bench.program(program), *words], env=bench.environment, capture_output=True, text=True,
                          timeout=HANG * bench.slow)


@case("output/help")
def help_texts(bench):
    for program in ("zerod", "zerocoord", "zerorun", "zeroctl", "gpt"):
        done = say(bench, program, "--help")
        equal(done.returncode, 0, f"{program} --help")
        check("Usage" in done.stdout or "--listen" in done.stdout, done.stdout)
        if program in ("zerorun", "zeroctl"):
            check("Examples:" in done.stdout, f"no examples in {program} --help")
        equal(say(bench, program, "--no-such-thing").returncode, 2, f"{program} with an unknown option")
    check(re.fullmatch(r"zeroctl \d+\.\d+\.\d+\n", say(bench, "zeroctl", "version").stdout), "zeroctl version")
    equal(say(bench, "zeroctl").returncode, 2, "zeroctl alone")
    equal(say(bench, "zeroctl", "status", "--help").returncode, 0, "zeroctl status --help")


@case("output/which_job")
def which_job(bench):
    none = say(bench, "zeroctl", "status")
    equal(none.returncode, 1, "zeroctl status without a job")
    check("no running job" in none.stderr and bench.tmp in none.stderr, none.stderr)
    jobs = [bench.start(1, "ddp", bench.gpt(steps=100000)) for _ in range(2)]
    end = time.monotonic() + HANG * bench.slow
    while True:
        two = say(bench, "zeroctl", "status")
        if two.returncode == 2 or time.monotonic() > end:
            break
        time.sleep(0.02)
    equal(two.returncode, 2, "zeroctl status with two jobs")
    equal(two.stderr.count("--address "), 2, "jobs listed:\n" + two.stderr)
    for job in jobs:
        job.process.terminate()
    for job in jobs:
        equal(job.wait(12), 1, "exit status after SIGTERM")


def as_another(bench, words, groups):
    """Runs a program as user 65534, in |groups|."""
    if os.geteuid() != 0:
        raise Skipped("needs root, to become another user")
    os.chmod(bench.folder, 0o755)
    os.chmod(bench.tmp, 0o1777)
    try:
        return subprocess.run(words, capture_output=True, text=True, user=65534, group=65534, extra_groups=groups,
                              cwd="/", env=bench.environment, timeout=HANG * bench.slow)
    except PermissionError as e:
        raise Skipped(f"the build folder is closed to other users: {e}") from None


@case("output/observers")
def observers(bench):
    """Another user in the group sees the job's status, nobody else does, and of the sockets only the coordinator's and
    the daemons' are open to it."""
    job = bench.start(2, "zero3", bench.gpt(steps=100000), observers=os.getgid())
    job.step_reached(1)
    address, = glob.glob(os.path.join(bench.tmp, "zerorun-*", "coordinator.sock"))
    folder = os.path.dirname(address)
    equal(oct(os.stat(folder).st_mode & 0o777), "0o710", "the folder's mode")
    for name in os.listdir(folder):
        equal(oct(os.stat(os.path.join(folder, name)).st_mode & 0o777), "0o600" if name.endswith(".fd") else "0o660", name)
    words = [bench.program("zeroctl"), "status", "--address", address]
    seen = as_another(bench, words, [os.getgid()])
    equal(seen.returncode, 0, f"status of an observer: {seen.stderr}")
    check("zero3" in seen.stdout, seen.stdout)
    refused = as_another(bench, words, [])
    check(refused.returncode != 0 and "Permission denied" in refused.stderr, f"{refused.stdout}{refused.stderr}")
    os.kill(job.process.pid, signal.SIGTERM)
    job.wait(12)


@case("output/no_member_of_observers")
def no_member(bench):
    """Who is no member of a group cannot open a job to it."""
    refused = as_another(bench, [bench.program("zerorun"), "-n", "1", "--observers", "4242", "--", "gpt"], [])
    equal(refused.returncode, 2, f"exit status: {refused.stderr}")
    check("--observers 4242" in refused.stderr and "not permitted" in refused.stderr, refused.stderr)
