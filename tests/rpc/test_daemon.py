#!/usr/bin/python3
"""Stock grpcio at a real daemon: reflection, and a drain at SIGTERM:
python3 test_daemon.py ZEROCOORD"""
import importlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool

GRPC_PROTO = "/usr/share/grpc-proto"
FILES = ("grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto",
         "grpc/reflection/v1alpha/reflection.proto")
OURS = ["zerod_admin.proto", "zerod_coordinator.proto", "zerod_model.proto", "zerod_trainer.proto", "zerod_words.proto"]
SERVICES = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection", "zerod.v1.Admin", "zerod.v1.Coordinator"]


def reflection_messages(folder):
    subprocess.run(["protoc", f"-I{GRPC_PROTO}/grpc/reflection/v1", f"--python_out={folder}", "reflection.proto"],
                   check=True)
    sys.path.insert(0, folder)
    return importlib.import_module("reflection_pb2")


class Daemon:
    def __init__(self, program, folder):
        self.path = f"{folder}/coord.sock"
        self.process = subprocess.Popen([program, "--listen", self.path, "--job", "test", "--world", "1"])
        until = time.monotonic() + 10
        while not os.path.exists(self.path) and time.monotonic() < until:
            time.sleep(0.01)
        self.channel = grpc.insecure_channel(f"unix:{self.path}")
        grpc.channel_ready_future(self.channel).result(timeout=10)


def ask(daemon, m, version, *requests):
    method = daemon.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=m.ServerReflectionRequest.SerializeToString,
        response_deserializer=m.ServerReflectionResponse.FromString)
    replies = list(method(iter(requests), timeout=5))
    assert len(replies) == len(requests)
    for request, reply in zip(requests, replies):
        assert reply.original_request == request and reply.valid_host == request.host
    return replies


def test_lists(daemon, m, version):
    reply, = ask(daemon, m, version, m.ServerReflectionRequest(host="h", list_services="*"))
    assert sorted(s.name for s in reply.list_services_response.service) == SERVICES, reply


def described(reply):
    files = []
    for data in reply.file_descriptor_response.file_descriptor_proto:
        files.append(descriptor_pb2.FileDescriptorProto.FromString(data))
    return files


def add_to(pool, files, name):
    """Adds a file after what it imports; |files| by name, those that are added are taken out."""
    f = files.pop(name, None)
    if f:
        for imported in f.dependency:
            add_to(pool, files, imported)
        pool.Add(f)


def test_files(daemon, m, version):
    """What is listed can be fetched, and a client can build all its messages from that alone."""
    pool = descriptor_pool.DescriptorPool()
    asked = [m.ServerReflectionRequest(file_containing_symbol=s) for s in SERVICES]
    for name, reply in zip(SERVICES, ask(daemon, m, version, *asked)):
        files = {f.name: f for f in described(reply)}
        for file in list(files):
            add_to(pool, files, file)
        assert pool.FindServiceByName(name).methods, name
    request = m.ServerReflectionRequest(file_by_filename="zerod.proto")
    reply, = ask(daemon, m, version, request)
    assert sorted(f.name for f in described(reply)) == sorted(["zerod.proto", *OURS])
    assert pool.FindMessageTypeByName("zerod.v1.RankStatus").fields_by_name["isa"].number == 25


def test_symbols(daemon, m, version):
    found = {"zerod.v1.Admin.Status": "zerod_admin.proto", "zerod.v1.Model": "zerod_model.proto",
             "zerod.v1.Model.units": "zerod_model.proto", "zerod.v1.OutcomeKind": "zerod_words.proto",
             "grpc.health.v1.HealthCheckResponse.ServingStatus": FILES[0],
             "grpc.reflection.v1.ServerReflectionRequest.message_request": FILES[1],
             "grpc.reflection.v1alpha.ErrorResponse": FILES[2]}
    lost = ["", ".", "zerod", "zerod.v1", "zerod.v1.", "zerod.v1.Adm", "zerod.v1.Admin.Stat", "zerod.v1.Admin.",
            "zerod.v1.Admin.Status.x", ".zerod.v1.Admin", "Admin", "x" * 5000]
    for name, reply in zip(found, ask(daemon, m, version, *(
            m.ServerReflectionRequest(file_containing_symbol=s) for s in found))):
        assert described(reply)[0].name == found[name], name  # what it imports comes after it
    requests = [m.ServerReflectionRequest(file_containing_symbol=s) for s in lost]
    requests += [m.ServerReflectionRequest(file_by_filename=s) for s in ("", "zerod", "/etc/passwd")]
    requests += [m.ServerReflectionRequest(all_extension_numbers_of_type="zerod.v1.Model"),
                 m.ServerReflectionRequest(file_containing_extension=m.ExtensionRequest(
                     containing_type="zerod.v1.Model", extension_number=5))]
    for request, reply in zip(requests, ask(daemon, m, version, *requests)):
        assert reply.error_response.error_code == 5, request


def test_many(daemon, m, version):
    """A client that asks 700 times before the first answer (the daemon was stopped) gets them all, 4 MB."""
    request = m.ServerReflectionRequest(file_containing_symbol="zerod.v1.Trainer").SerializeToString()
    daemon.process.send_signal(signal.SIGSTOP)
    replies = daemon.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")(iter([request] * 700), timeout=10)
    time.sleep(0.3)
    daemon.process.send_signal(signal.SIGCONT)
    assert len(list(replies)) == 700


def test_nothing_asked(daemon, m, version):
    try:
        ask(daemon, m, version, m.ServerReflectionRequest())
        assert False, "was answered"
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e


def trap_15_zero_means_nothing(daemon, m):
    """protobuf-c knows no proto3 `optional`, and proto3 does not send zeros: no enum of ours may
    mean something by 0 that an absent field does not mean."""
    absent = {"InitKind": "INIT_LOADED"}  # a tensor without an initializer is loaded by the trainer
    reply, = ask(daemon, m, "v1", m.ServerReflectionRequest(file_by_filename="zerod.proto"))
    files = described(reply)
    enums = [enum for f in files for enum in f.enum_type]
    assert len(enums) >= 4
    for enum in enums:
        assert enum.value[0].number == 0 and enum.value[0].name in (
            absent.get(enum.name), enum.value[0].name.split("_")[0] + "_UNSPECIFIED"), enum
    for message in (m for f in files for m in f.message_type):
        assert not message.enum_type and not message.nested_type, message.name
        for field in message.field:
            assert not field.proto3_optional, (message.name, field.name)


def trap_16_socket_is_private(daemon):
    mode = os.lstat(daemon.path).st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600, oct(mode)


def trap_10_drain(daemon):
    """SIGTERM: watchers of health hear NOT_SERVING, watchers of steps get their OK, the program ends
    well and soon although health is still watched."""
    health = daemon.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    assert next(health) == b"\x08\x01"
    steps = daemon.channel.unary_stream("/zerod.v1.Admin/Watch")(b"")
    heard = []
    reader = threading.Thread(target=lambda: heard.extend(steps))
    reader.start()
    time.sleep(0.2)
    start = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert next(health) == b"\x08\x02"
    reader.join(5)
    assert not reader.is_alive() and heard == [] and steps.code() == grpc.StatusCode.OK, steps.code()
    assert daemon.process.wait(timeout=5) == 0
    assert time.monotonic() - start < 1.4  # not the last resort's doing
    assert not os.path.exists(daemon.path)
    try:
        daemon.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=2)
        assert False, "was answered"
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.UNAVAILABLE, e


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="zd-daemon-") as folder:
        m = reflection_messages(folder)
        os.mkdir(f"{folder}/run")  # the daemon takes its folder with it
        daemon = Daemon(program, f"{folder}/run")
        try:
            for version in ("v1", "v1alpha"):
                for test in (test_lists, test_files, test_symbols, test_many, test_nothing_asked):
                    test(daemon, m, version)
                    print(f"{test.__name__} {version} ok")
            trap_15_zero_means_nothing(daemon, m)
            print("trap_15_zero_means_nothing ok")
            trap_16_socket_is_private(daemon)
            print("trap_16_socket_is_private ok")
            trap_10_drain(daemon)
            print("trap_10_drain ok")
            daemon.channel.close()
        finally:
            daemon.process.kill()
            daemon.process.wait()


if __name__ == "__main__":
    main()
