"""What end-to-end cases share: registering, running with a limit, starting jobs, and looking for
what a job left behind.

Every process of a case carries a mark in its environment (ZEROD_E2E), so a case can find, and in the
end kill, all that it started however deep, and nothing else. Each case has a TMPDIR of its own that
must be empty again when its jobs are over.
"""
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
import uuid

HANG = 10  # seconds beyond what a case is expected to take
_cases = []


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


class Case:
    def __init__(self, name, seconds, function):
        self.name, self.seconds, self.function = name, seconds, function


def case(name, /, seconds=5, **arguments):
    """Registers a function of one argument, the Bench, and of |arguments|; |seconds|: expected."""
    def add(function):
        _cases.append(Case(name, seconds, lambda bench: function(bench, **arguments)))
        return function
    return add


def cases():
    return list(_cases)


def check(ok, text):
    if not ok:
        raise Failed(text)


def first_seed():
    """Where a case's randomness starts: $ZEROD_SEED (tests/run sets one), else drawn."""
    return int(os.environ.get("ZEROD_SEED") or int.from_bytes(os.urandom(4), "little"))


def equal(got, want, what):
    if got != want:
        raise Failed(f"{what}: {got!r}, expected {want!r}")


# ---- processes -------------------------------------------------------------------------------------

def marked(mark):
    """{pid: command line} of live processes that carry |mark|, ourselves left out."""
    found, wanted = {}, f"ZEROD_E2E={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if wanted not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                found[int(entry)] = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, IndexError):
            continue
    return found


def kill_marked(mark):
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Job:
    """A zerorun that runs. |out| and |err| are files that fill up."""

    def __init__(self, bench, command, environment):
        self.bench, self.command = bench, command
        self.out_path, self.err_path = bench.path("out"), bench.path("err")
        self.started = time.monotonic()
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env={**bench.environment, **environment},
                                            start_new_session=True)

    def out(self):
        with open(self.out_path, errors="replace") as f:
            return f.read()

    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def poll(self, condition, what, limit=HANG):
        """Waits until |condition()| is true; returns it. Fails when the job ends before."""
        end = time.monotonic() + limit * self.bench.slow
        while True:
            value = condition()
            if value:
                return value
            check(self.process.poll() is None,
                  f"{what}: the job ended with {self.process.returncode}:\n{self.err()}{self.out()}")
            check(time.monotonic() < end, f"{what}: not within {limit} s:\n{self.err()}")
            time.sleep(0.005)

    def step_reached(self, step):
        return self.poll(lambda: self.status_at(step), f"step {step}")

    def status_at(self, step):
        status = self.bench.status(self)
        return status if status and status["job"]["steps"] >= step else None

    def wait(self, limit=HANG):
        try:
            return self.process.wait(limit * self.bench.slow)
        except subprocess.TimeoutExpired:
            raise Failed(f"zerorun runs for more than {limit} s:\n{self.err()}\n{self.processes()}") from None

    def processes(self):
        return "\n".join(f"{pid}: {line}" for pid, line in marked(self.bench.mark).items())

    def pids(self, program):
        """Of this job's processes whose program is called so, by rank (0 for a coordinator)."""
        found = {}
        for pid, line in marked(self.bench.mark).items():
            words = line.split(" ")
            if os.path.basename(words[0]) == program:
                found[int(words[words.index("--rank") + 1]) if "--rank" in words else 0] = pid
        return found


class Bench:
    """What a case works with: programs, a folder, data, and limits."""

    def __init__(self, root, build, slow):
        self.root, self.build, self.slow = root, build, slow
        self.bin = os.path.join(build, "bin")
        with open(os.path.join(build, "CMakeCache.txt")) as f:
            self.sanitized = any(line.startswith("ZEROD_SANITIZE:") and line.split("=")[1].strip() for line in f)
        self.mark = uuid.uuid4().hex
        self.folder = tempfile.mkdtemp(prefix="ze-", dir="/tmp")
        self.tmp = os.path.join(self.folder, "t")
        os.mkdir(self.tmp)
        # To files: a process that is killed, or whose exit status nobody asks for, is heard too.
        log = "log_path=" + self.path("sanitizer")
        self.environment = {**os.environ, "ZEROD_E2E": self.mark, "TMPDIR": self.tmp,
                            "ASAN_OPTIONS": f"detect_stack_use_after_return=1:exitcode=99:{log}",
                            "TSAN_OPTIONS": f"exitcode=99:{log}:suppressions={root}/tests/e2e/tsan.supp",
                            "UBSAN_OPTIONS": f"print_stacktrace=1:{log}"}
        for name in ("ZEROD_ISA", "ZEROD_COORDINATOR", "RANK", "WORLD_SIZE", "OMP_NUM_THREADS",
                     "OPENBLAS_NUM_THREADS"):
            self.environment.pop(name, None)
        self.shm = set(glob.glob("/dev/shm/*"))
        self.notes = []
        self.text = write_text(self.path("text"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name):
        return os.path.join(self.bin, name)

    def note(self, text):
        self.notes.append(text)

    # ---- jobs ----

    def gpt(self, **options):
        """gpt's words for a tiny model; options override, None leaves one out."""
        words = {"data": self.text, "layers": 2, "heads": 2, "channels": 32, "seq": 32, "batch": 2,
                 "steps": 20, "warmup": 4, "seed": 3, "quiet": True, **options}
        out = [self.program("gpt")]
        for name, value in words.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                out.append(flag)
            elif value is not None and value is not False:
                out += [flag, str(value)]
        return out

    def start(self, ranks, strategy, trainer, env=None, **options):
        command = [self.program("zerorun"), "-n", str(ranks), "--strategy", strategy,
                   "--json", self.path("job.json")]
        for name, value in options.items():
            command += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
        if os.path.exists(self.path("job.json")):
            os.unlink(self.path("job.json"))
        return Job(self, command + ["--"] + trainer, env or {})

    def run(self, ranks, strategy, trainer, env=None, limit=HANG, **options):
        """A whole job that must succeed and leave nothing. Its JSON."""
        job = self.start(ranks, strategy, trainer, env, **options)
        code = job.wait(limit)
        if code:
            raise Failed(f"{' '.join(job.command)}\nexit status {code}:\n{job.err()}{job.out()}")
        self.nothing_left()
        with open(self.path("job.json")) as f:
            result = json.load(f)
        result["err"], result["out"] = job.err(), job.out()
        return result

    def fail(self, ranks, strategy, trainer, code=1, limit=HANG, env=None, **options):
        """A job that must end with |code| and leave nothing. What it said on standard error."""
        job = self.start(ranks, strategy, trainer, env, **options)
        got = job.wait(limit)
        check(got == code, f"{' '.join(job.command)}\nexit status {got}, expected {code}:\n{job.err()}{job.out()}")
        self.nothing_left()
        return job.err()

    def status(self, job):
        """`zeroctl status --json` of the job that runs, or None while there is none."""
        sockets = glob.glob(os.path.join(self.tmp, "zerorun-*", "coordinator.sock"))
        if len(sockets) != 1:
            return None
        done = subprocess.run([self.program("zeroctl"), "status", "--json", "--address", sockets[0]],
                              env=self.environment, capture_output=True, timeout=HANG * self.slow)
        return json.loads(done.stdout) if done.returncode == 0 else None

    # ---- afterwards ----

    def left(self):
        found = [f"process {pid}: {line}" for pid, line in marked(self.mark).items()]
        found += [f"file {p}" for p in glob.glob(os.path.join(self.tmp, "*"))]
        found += [f"shared memory {p}" for p in set(glob.glob("/dev/shm/*")) - self.shm if "zero" in p]
        return found

    def reports(self):
        """What sanitizers said of any process of the case."""
        said = ""
        for path in sorted(glob.glob(self.path("sanitizer.*"))):
            with open(path, errors="replace") as f:
                said += f"\n{os.path.basename(path)}:\n{f.read(4000)}"
        return said

    def nothing_left(self, within=2.0):
        end = time.monotonic() + within * self.slow
        while self.left() and time.monotonic() < end:
            time.sleep(0.01)
        left = self.left()
        check(not left, "left behind:\n" + "\n".join(left))

    def close(self):
        kill_marked(self.mark)
        shutil.rmtree(self.folder, ignore_errors=True)


def write_text(path):
    """Some 60 kB of words that a model can learn something from; always the same."""
    chooser = random.Random(7)
    words = ["and", "the", "light", "was", "good", "upon", "earth", "water", "day", "night", "made", "said"]
    with open(path, "w") as f:
        for _ in range(1000):
            f.write(" ".join(chooser.choice(words) for _ in range(12)) + ".\n")
    return path


# ---- running ---------------------------------------------------------------------------------------

def _too_long(*_):
    raise Failed("the case took too long")


def _run_one(one, root, build, slow):
    """Returns (outcome, text)."""
    bench = Bench(root, build, slow)
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, (one.seconds + HANG) * slow)
    try:
        one.function(bench)
        bench.nothing_left()
        check(not bench.reports(), "a sanitizer's report")
        return "ok", "; ".join(bench.notes)
    except Skipped as reason:
        return "skipped", str(reason)
    except Failed as reason:
        return "FAILED", str(reason) + bench.reports()
    except Exception:  # a bug of the case, or a file that is not there
        return "FAILED", traceback.format_exc() + bench.reports()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        bench.close()


def run(chosen, root, build, slow):
    counts = {"ok": 0, "FAILED": 0, "skipped": 0}
    for one in chosen:
        start = time.monotonic()
        outcome, text = _run_one(one, root, build, slow)
        counts[outcome] += 1
        seconds = time.monotonic() - start
        extra = "" if not text else ("\n    " + text.strip().replace("\n", "\n    ") if outcome == "FAILED"
                                     else f"  ({text})")
        print(f"{outcome:<7} {seconds:6.1f} s  {one.name}{extra}", flush=True)
    print(f"e2e: {counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] else 0
