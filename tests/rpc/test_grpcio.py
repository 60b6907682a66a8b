#!/usr/bin/python3
"""Stock grpcio drives our server, and our client a stock server:
python3 test_grpcio.py SERVE_HEALTH CALL_STOCK SOURCE_FOLDER"""
import glob
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

import grpc

HEALTH_DIR = "/usr/share/grpc-proto/grpc/health/v1"
MIB = 1 << 20


def messages(source, folder):
    """Python messages of zerod.proto, with what it imports, and health.proto, generated into folder."""
    for path in (*glob.glob(f"{source}/proto/*.proto"), f"{HEALTH_DIR}/health.proto"):
        subprocess.run(["protoc", f"-I{os.path.dirname(path)}", f"--python_out={folder}", path], check=True)
    sys.path.insert(0, folder)
    return importlib.import_module("zerod_pb2"), importlib.import_module("health_pb2")


def status(call):
    """The code that a call ends with."""
    try:
        call()
    except grpc.RpcError as e:
        return e.code(), e.details()
    return grpc.StatusCode.OK, ""


class Peer:
    def __init__(self, path, zerod, health, options=()):
        options = [("grpc.max_receive_message_length", 16 * MIB), *options]
        self.channel = grpc.insecure_channel(f"unix:{path}", options=options)
        grpc.channel_ready_future(self.channel).result(timeout=10)
        self.zerod, self.health = zerod, health
        ticket = dict(request_serializer=zerod.Ticket.SerializeToString,
                      response_deserializer=zerod.Ticket.FromString)
        state = dict(request_serializer=health.HealthCheckRequest.SerializeToString,
                     response_deserializer=health.HealthCheckResponse.FromString)
        self.echo = self.channel.unary_unary("/test.Echo/Unary", **ticket)
        self.fail = self.channel.unary_unary("/test.Echo/Fail", **ticket)
        self.hold = self.channel.unary_unary("/test.Echo/Hold", **ticket)
        self.flood = self.channel.unary_stream("/test.Echo/Flood", **ticket)
        self.bidi = self.channel.stream_stream("/test.Echo/Bidi", **ticket)
        self.sink = self.channel.stream_unary("/test.Echo/Sink", **ticket)
        self.check = self.channel.unary_unary("/grpc.health.v1.Health/Check", **state)
        self.watch = self.channel.unary_stream("/grpc.health.v1.Health/Watch", **state)
        self.nothing = self.channel.unary_unary("/test.Echo/Nothing", **ticket)

    def ticket(self, n=0, text=""):
        return self.zerod.Ticket(token=bytes(n), socket_path=text)


def test_health(p):
    ask = p.health.HealthCheckRequest
    assert p.check(ask(service="")).status == p.health.HealthCheckResponse.SERVING
    assert status(lambda: p.check(ask(service="x")))[0] == grpc.StatusCode.NOT_FOUND
    stream = p.watch(ask(service="x"))
    assert next(stream).status == p.health.HealthCheckResponse.SERVICE_UNKNOWN
    stream.cancel()


def test_echo(p):
    for n in (0, 1, 100, 70000, 3 * MIB):
        assert len(p.echo(p.ticket(n, "abc"), timeout=10).token) == n


def test_statuses(p):
    code, text = status(lambda: p.fail(p.ticket(0, "100 % Größe: rank 3\n")))
    assert (code, text) == (grpc.StatusCode.ABORTED, "100 % Größe: rank 3\n"), (code, text)
    code, text = status(lambda: p.nothing(p.ticket()))
    assert code == grpc.StatusCode.UNIMPLEMENTED and "/test.Echo/Nothing" in text, (code, text)
    assert status(lambda: p.echo(p.ticket(5 * MIB)))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    headers = (("x-long", "v" * 7000), ("y-long", "v" * 7000))
    code, text = status(lambda: p.echo(p.ticket(1), metadata=headers))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED, (code, text)
    p.echo(p.ticket(1))


def test_garbage(p):
    raw = p.channel.unary_unary("/test.Echo/Unary")
    assert status(lambda: raw(b"\xff\xff\xff"))[0] == grpc.StatusCode.INVALID_ARGUMENT


def test_deadline(p):
    start = time.monotonic()
    assert status(lambda: p.hold(p.ticket(), timeout=0.1))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert status(lambda: list(p.bidi(wait(0.5), timeout=0.1)))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - start < 5


def wait(seconds):
    time.sleep(seconds)
    return
    yield


def test_cancel(p):
    call = p.hold.future(p.ticket())
    call.cancel()
    assert call.cancelled()
    stream = p.flood(p.ticket(100000))
    for _ in range(10):
        next(stream)
    stream.cancel()
    p.echo(p.ticket(1))


def test_streams(p):
    assert sum(1 for _ in p.flood(p.ticket(3000))) == 3000
    replies = p.bidi(p.ticket(i % 100) for i in range(2000))
    assert [len(r.token) for r in replies] == [i % 100 for i in range(2000)]
    # a client stream that ends without a reply is OK for the wire and an error for grpcio
    assert status(lambda: p.sink(p.ticket(i) for i in range(10)))[0] != grpc.StatusCode.UNIMPLEMENTED


def trap_07_gzip(p):
    squeezed = Peer(p.path, p.zerod, p.health, [("grpc.default_compression_algorithm", 2)])
    assert status(lambda: squeezed.echo(p.ticket(100000)))[0] == grpc.StatusCode.UNIMPLEMENTED
    squeezed.channel.close()


def trap_11_keepalive(p):
    """Pings of a stock client 20 times a second, for longer than it waits for an answer; no strikes."""
    options = {"keepalive_time_ms": 50, "keepalive_timeout_ms": 500, "keepalive_permit_without_calls": 1,
               "http2.max_pings_without_data": 0, "http2.min_time_between_pings_ms": 50}
    pinging = Peer(p.path, p.zerod, p.health, [(f"grpc.{name}", value) for name, value in options.items()])
    assert status(lambda: pinging.hold(p.ticket(), timeout=1.5))[0] == grpc.StatusCode.DEADLINE_EXCEEDED
    time.sleep(0.5)
    assert status(lambda: pinging.echo(p.ticket(1), timeout=5))[0] == grpc.StatusCode.OK
    pinging.channel.close()


def test_many(p):
    calls = [p.echo.future(p.ticket(i)) for i in range(500)]  # over the limit of 128
    assert [len(c.result(timeout=20).token) for c in calls] == list(range(500))


def test_stalled_reader(p):
    stalled = p.flood(p.ticket(20000))
    next(stalled)
    slowest = 0
    for _ in range(50):
        start = time.monotonic()
        p.echo(p.ticket(64))
        slowest = max(slowest, time.monotonic() - start)
    assert slowest < 1, slowest
    stalled.cancel()


def trap_10_drain(p, server):
    """Last: SIGTERM lets the open call end, new ones are refused, the program ends with 0."""
    call = p.bidi(iter_later())
    first = threading.Event()
    got = []

    def read():
        for r in call:
            got.append(r)
            first.set()

    reader = threading.Thread(target=read)
    reader.start()
    queue.append(p.ticket(1))
    assert first.wait(5)
    server.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    queue.append(p.ticket(2))
    queue.append(None)
    reader.join(5)
    assert len(got) == 2, got
    assert server.wait(timeout=5) == 0


queue = []


def iter_later():
    while True:
        while not queue:
            time.sleep(0.01)
        item = queue.pop(0)
        if item is None:
            return
        yield item


class StockEcho(grpc.GenericRpcHandler):
    """The methods of tests/proto/echo.h that call_stock uses, served by grpcio."""

    def __init__(self, zerod):
        def fail(request, context):
            context.abort(grpc.StatusCode.ABORTED, request.socket_path)

        def hold(request, context):
            time.sleep(1)
            return request

        def flood(request, context):
            for _ in range(len(request.token)):
                if not context.is_active():
                    return
                yield zerod.Ticket(token=bytes(4096))

        io = dict(request_deserializer=zerod.Ticket.FromString,
                  response_serializer=zerod.Ticket.SerializeToString)
        unary = grpc.unary_unary_rpc_method_handler
        self.methods = {
            "Unary": unary(lambda request, context: request, **io),
            "Fail": unary(fail, **io),
            "Hold": unary(hold, **io),
            "Huge": unary(lambda request, context: zerod.Ticket(token=bytes(5 * MIB)), **io),
            "Flood": grpc.unary_stream_rpc_method_handler(flood, **io),
            "Bidi": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests, **io),
        }

    def service(self, details):
        return self.methods.get(details.method.removeprefix("/test.Echo/"))


def test_our_client(program, folder, zerod):
    path = f"{folder}/stock"
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=[StockEcho(zerod)],
                         options=[("grpc.max_send_message_length", 16 * MIB)])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    subprocess.run([program, path], check=True, timeout=60)
    server.stop(0).wait()


def main():
    program, client, source = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="zd-grpcio-") as folder:
        zerod, health = messages(source, folder)
        path = f"{folder}/sock"
        server = subprocess.Popen([program, path])
        try:
            while not os.path.exists(path):
                time.sleep(0.01)
            p = Peer(path, zerod, health)
            p.path = path
            for test in (test_health, test_echo, test_statuses, test_garbage, test_deadline, test_cancel,
                         test_streams, trap_07_gzip, trap_11_keepalive, test_many, test_stalled_reader):
                test(p)
                print(f"{test.__name__} ok")
            trap_10_drain(p, server)
            print("trap_10_drain ok")
            p.channel.close()
            test_our_client(client, folder, zerod)
            print("test_our_client ok")
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
