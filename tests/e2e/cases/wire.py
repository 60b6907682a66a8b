"""A stock gRPC client talks to the daemons, and garbage does them no harm (issue part 2 and 5.6)."""
import glob
import importlib
import os
import random
import signal
import socket
import subprocess
import sys

from harness import Skipped, case, check, equal, first_seed


def messages(bench):
    """zerod's messages for Python, made from the .proto here and now."""
    folder = bench.path("py")
    os.mkdir(folder)
    source = os.path.join(bench.root, "proto")
    subprocess.run(["protoc", "-I", source, f"--python_out={folder}", *glob.glob(os.path.join(source, "*.proto"))],
                   check=True)
    sys.path.insert(0, folder)
    try:
        import grpc
        return grpc, importlib.import_module("zerod_pb2")
    except ImportError as e:
        raise Skipped(f"{e} (python3-grpcio, python3-protobuf)") from None
    finally:
        sys.path.remove(folder)


def call(grpc, channel, method, request, reply, timeout=5):
    return channel.unary_unary(method, request_serializer=type(request).SerializeToString,
                               response_deserializer=reply.FromString)(request, timeout=timeout)


def running(bench, steps=100000):
    job = bench.start(2, "zero3", bench.gpt(steps=steps))
    job.step_reached(2)
    return job, sorted(glob.glob(os.path.join(bench.tmp, "zerorun-*", "rank*.sock")))


def finish(job):
    job.process.terminate()
    equal(job.wait(12), 1, "exit status after SIGTERM")


@case("wire/grpcio", seconds=8)
def grpcio(bench):
    grpc, pb = messages(bench)
    job, sockets = running(bench)
    for rank, path in enumerate(sockets):
        with grpc.insecure_channel("unix:" + path) as channel:
            health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=5)
            equal(health, b"\x08\x01", "health of the whole server: SERVING")
            reply = call(grpc, channel, "/zerod.v1.Admin/Status", pb.StatusRequest(), pb.StatusReply)
            equal(reply.WhichOneof("of"), "rank", "kind of status")
            equal(reply.rank.rank, rank, "rank")
            equal(reply.rank.strategy, "zero3", "strategy")
            check(reply.rank.trainer_pid > 0 and reply.rank.memory_total > 0, str(reply))
            try:
                call(grpc, channel, "/zerod.v1.Admin/NoSuchMethod", pb.StatusRequest(), pb.StatusReply)
                check(False, "an unknown method was answered")
            except grpc.RpcError as e:
                equal(e.code(), grpc.StatusCode.UNIMPLEMENTED, "an unknown method's status")
    coordinator = os.path.join(os.path.dirname(sockets[0]), "coordinator.sock")
    with grpc.insecure_channel("unix:" + coordinator) as channel:
        reply = call(grpc, channel, "/zerod.v1.Admin/Status", pb.StatusRequest(), pb.StatusReply)
        equal(len(reply.job.members), 2, "members")
        watch = channel.unary_stream("/zerod.v1.Admin/Watch", request_serializer=pb.WatchRequest.SerializeToString,
                                     response_deserializer=pb.StepEvent.FromString)(pb.WatchRequest(), timeout=5)
        first, second = next(watch), next(watch)
        equal(second.fence.step, first.fence.step + 1, "the next step told")
        watch.cancel()
    finish(job)


@case("wire/zeroctl_status")
def zeroctl_status(bench):
    job, _ = running(bench)
    done = subprocess.run([bench.program("zeroctl"), "status"], env=bench.environment, capture_output=True, text=True,
                          timeout=10)
    equal(done.returncode, 0, "exit status: " + done.stderr)
    for word in ("zero3", "params", "optimizer", "in huge pages", "all-gather", "ddp's formula", "attempt"):
        check(word in done.stdout, f"no \"{word}\" in\n{done.stdout}")
    check("differs" not in done.stdout, "memory differs from the formula:\n" + done.stdout)
    finish(job)


# What another user is told, a line for each socket and method: the code's name and the text.
STRANGER = """
import grpc, socket, sys
for path in sys.argv[1:]:
    if path.endswith(".fd"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(path)
            s.send(bytes(16))
            answer = s.recv(256)
        print({7: "PERMISSION_DENIED"}.get(answer[0], answer[0]), answer[1:].decode())
        continue
    with grpc.insecure_channel("unix:" + path) as channel:
        for method in ("Admin/Status", "Admin/Hash", "Trainer/Attach", "Coordinator/Join", "Admin/Nothing"):
            try:
                list(channel.stream_stream("/zerod.v1." + method)(iter([b""]), timeout=5))
                print("OK", method)
            except grpc.RpcError as e:
                print(e.code().name, e.details())
"""


@case("wire/another_user", seconds=8)
def another_user(bench):
    """Somebody opened every folder and socket by hand: another user is still refused everywhere, with his uid and
    the rule, and the job does not notice."""
    messages(bench)  # is grpcio here?
    if os.geteuid():
        raise Skipped("only root can be another user")
    job, sockets = running(bench)
    folder = os.path.dirname(sockets[0])
    sockets += glob.glob(os.path.join(folder, "*.fd")) + [os.path.join(folder, "coordinator.sock")]
    for path in sockets:
        equal(oct(os.stat(path).st_mode & 0o777), "0o600", path)
        os.chmod(path, 0o666)
    equal(oct(os.stat(folder).st_mode & 0o777), "0o700", folder)
    for path in (bench.folder, bench.tmp, folder):
        os.chmod(path, 0o755)
    done = subprocess.run(["/usr/bin/python3", "-c", STRANGER, *sockets], user=65534, group=65534, extra_groups=[],
                          env=bench.environment, cwd="/", capture_output=True, text=True, timeout=20 * bench.slow)
    said = done.stdout.splitlines()
    equal(len(said), 2 + 3 * 5, "answers:\n" + done.stdout + done.stderr)
    for line in said:
        for part in ("PERMISSION_DENIED user 65534", f"user {os.geteuid()} and root"):
            check(part in line, f"no \"{part}\" in: {line}")
    at = bench.status(job)["job"]["steps"]
    job.step_reached(at + 3)
    check("void" not in job.err() and "restart" not in job.err(), job.err())
    finish(job)


@case("wire/drain")
def drain(bench):
    """SIGTERM to a rank's daemon: who watches its health hears NOT_SERVING before the end."""
    grpc, _ = messages(bench)
    job, sockets = running(bench)
    with grpc.insecure_channel("unix:" + sockets[1]) as channel:
        health = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=5)
        equal(next(health), b"\x08\x01", "health: SERVING")
        os.kill(job.pids("zerod")[1], signal.SIGTERM)
        equal(next(health), b"\x08\x02", "health: NOT_SERVING")
    equal(job.wait(3), 1, "exit status")
    check("rank 1" in job.err(), job.err())


@case("wire/garbage", seconds=8)
def garbage(bench):
    """Random bytes, half a preface, a preface and rubbish, on each socket: the job goes on."""
    seed = first_seed()
    bench.note(f"seed {seed}")
    chooser = random.Random(seed)
    job, sockets = running(bench)
    folder = os.path.dirname(sockets[0])
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for path in sockets + [os.path.join(folder, "coordinator.sock")]:
        for start in (b"", preface[:11], preface, preface + b"\0\0\0\4\0\0\0\0\0"):
            for _ in range(8):
                send(socket.SOCK_STREAM, path, start + chooser.randbytes(chooser.randrange(1, 4000)))
    for path in glob.glob(os.path.join(folder, "rank*.fd")):
        for size in (1, 15, 16, 17, 3000):
            send(socket.SOCK_SEQPACKET, path, chooser.randbytes(size))
    at = bench.status(job)["job"]["steps"]
    job.step_reached(at + 3)
    check("void" not in job.err() and "restart" not in job.err(), job.err())
    finish(job)


def send(kind, path, content):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.settimeout(2)
        try:
            s.connect(path)
            s.sendall(content)
            s.recv(4096)
        except OSError:
            pass  # hung up on: right so
