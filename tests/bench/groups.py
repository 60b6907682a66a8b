"""Processes that benchmarks in Python start and ask: peers' ranks, OpenMPI's, servers of our own."""
import glob
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import table

HERE = os.path.dirname(os.path.abspath(__file__))


class Missing(Exception):
    """Why a peer is not run."""


def cause(text):
    """The last line that names an error."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    return next((x for x in reversed(lines) if "Error" in x), lines[-1] if lines else "it ended without a word")


def children(pid):
    """|pid|'s descendants."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as f:
                fields = f.read().rsplit(")", 1)[1].split()
            parents[int(path.split("/")[2])] = int(fields[1])
        except (OSError, IndexError):
            pass
    found = {pid}
    while True:
        more = {p for p, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


def resident_mib(pids):
    """Memory of processes, what they share counted once (Pss)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += int(re.search(r"^Pss: +(\d+)", f.read(), re.M)[1])
        except (OSError, TypeError):
            pass
    return total / 1024


class Group:
    """Ranks of a peer's job (peers_serve.py) that wait to be asked."""

    def __init__(self, python, script, arguments, ranks, limit=90):
        if not python:
            raise Missing(table.NO_PEERS)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.errors = tempfile.TemporaryFile("w+")
        self.ranks = [subprocess.Popen(
            [python, os.path.join(HERE, script), *arguments], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors,
            env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"})
            for r in range(ranks)]
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        try:
            for p in self.ranks[1:]:
                threading.Thread(target=p.stdout.read, daemon=True).start()
            self.facts = json.loads(self.line(limit).split(" ", 1)[1])
        except BaseException:
            self.close()
            raise

    def read(self):
        for line in self.ranks[0].stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self, limit):
        try:
            line = self.lines.get(timeout=limit)
        except queue.Empty:
            raise Missing(f"no answer in {limit} s") from None
        if line is None:
            raise Missing(cause(self.said()))
        return line

    def ask(self, question):
        """Tells all ranks a line; the number with which rank 0 answers."""
        try:
            for p in self.ranks:
                p.stdin.write(f"{question}\n")
                p.stdin.flush()
        except OSError:
            raise Missing(cause(self.said())) from None
        return float(self.line(120))

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def resident(self):
        return resident_mib([p.pid for p in self.ranks]) / len(self.ranks)

    def close(self):
        for p in self.ranks:
            p.kill()
            p.wait()


class Server:
    """A process of ours that answers lines."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, question):
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Mpi:
    """Ranks of peers_mpi.c under mpirun; each has a connection of its own to read from."""

    def __init__(self, folder, ranks, limit=60):
        if not shutil.which("mpicc") or not shutil.which("mpirun"):
            raise Missing("no mpicc and mpirun; " + table.NO_PEERS)
        program, path = os.path.join(folder, "peers_mpi"), os.path.join(folder, f"mpi-{ranks}")
        done = subprocess.run(["mpicc", "-O2", "-o", program, os.path.join(HERE, "peers_mpi.c")],
                              capture_output=True, text=True)
        if done.returncode:
            raise Missing(cause(done.stderr))
        self.errors = tempfile.TemporaryFile("w+")
        self.files = {}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen(ranks)
            listening.settimeout(limit)
            self.process = subprocess.Popen(
                ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), program,
                 path], stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors)
            try:
                for _ in range(ranks):
                    connection = listening.accept()[0]
                    connection.settimeout(limit)
                    f = connection.makefile("rw")
                    connection.close()
                    self.files[int(f.readline())] = f
            except (OSError, ValueError):
                self.close()
                self.errors.seek(0)
                raise Missing(cause(self.errors.read())) from None

    def ask(self, question):
        try:
            for f in self.files.values():
                f.write(f"{question}\n")
                f.flush()
            return float(self.files[0].readline())
        except (OSError, ValueError) as e:
            raise Missing(f"no answer from OpenMPI to {question}: {e}") from None

    def close(self):
        for f in self.files.values():
            f.close()
        try:
            self.process.wait(20 if self.files else 0)  # killed, they would leave shared memory behind
            return
        except subprocess.TimeoutExpired:
            pass
        for pid in children(self.process.pid) | {self.process.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
