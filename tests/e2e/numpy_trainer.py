#!/usr/bin/python3
"""A trainer in Python without libzerod: stock grpcio, the descriptor socket, mmap and numpy.

    zerorun -n N -- numpy_trainer.py FOLDER       FOLDER: of zerod_pb2.py, made by protoc

Trains the network of reach/network.c for three steps with the same numbers in the same order, so
that the job's param_hash is that of reach_trainer: any language can do it. What a trainer must know
of the protocol is all here: register, take the descriptors, begin; in a try gathers that were pushed
along the plan, releases, slots that were granted in order, reduces; step.
"""
import array
import mmap
import os
import queue
import socket
import struct
import sys

sys.path.insert(0, sys.argv[1])

import grpc  # noqa: E402
import numpy as np  # noqa: E402
import zerod_pb2 as pb  # noqa: E402

IN, HIDDEN, OUT, BATCH, STEPS = 4, 8, 3, 5, 3
SHAPES = ((HIDDEN, IN), (OUT, HIDDEN))
M64 = (1 << 64) - 1


# ---- numbers: reach/network.c ------------------------------------------------------------------------

def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M64
    return x ^ x >> 31


def noise(what, step, rank, shape):
    key = mix(what << 48 ^ step << 24 ^ rank)
    values = [(mix(key ^ i) >> 51) * 2.0**-12 - 1 for i in range(int(np.prod(shape)))]
    return np.array(values).reshape(shape)


def apply(weight, bias, x):
    """W x + b, column after column, in double."""
    out = bias.astype(np.float64)
    for c in range(weight.shape[1]):
        out = out + weight[:, c].astype(np.float64) * x[c]
    return out


def network(layers, x, target):
    """Loss and gradients of a batch, samples in order."""
    (w1, b1), (w2, b2) = layers
    grads = [[np.zeros(s), np.zeros(s[0])] for s in SHAPES]
    total = 0.0
    for s in range(BATCH):
        z = apply(w1, b1, x[s])
        h = np.where(z > 0, z, 0)
        y = apply(w2, b2, h) - target[s]
        loss, dh = 0.0, np.zeros(HIDDEN)
        for i in range(OUT):
            loss += float(y[i] * y[i])
            dh = dh + y[i] * w2[i].astype(np.float64)
        dh = np.where(z > 0, dh, 0)
        for grad, d, value in ((grads[1], y, h), (grads[0], dh, x[s])):
            grad[0] += np.outer(d, value)
            grad[1] += d
        total += loss
    return total, grads


# ---- the wire ----------------------------------------------------------------------------------------

class Void(Exception):
    """The try is over; begin() comes next."""


class Trainer:
    def __init__(self, address):
        channel = grpc.insecure_channel("unix:" + address)
        attach = channel.stream_stream("/zerod.v1.Trainer/Attach",
                                       request_serializer=pb.TrainerRequest.SerializeToString,
                                       response_deserializer=pb.TrainerReply.FromString)
        self.requests, self.id, self.fence = queue.Queue(), 0, None
        self.gathered, self.granted = [], []
        self.replies = attach(iter(self.requests.get, None))

    def tell(self, **call):
        """One-way."""
        self.requests.put(pb.TrainerRequest(fence=self.fence, **call))

    def ask(self, answer, **call):
        self.id += 1
        self.requests.put(pb.TrainerRequest(id=self.id, fence=self.fence, **call))
        while True:
            reply = self.hear()
            if reply.id == self.id:
                assert reply.WhichOneof("answer") == answer, reply
                return getattr(reply, answer)

    def hear(self):
        """The daemon's next message; pushes of the open try are put aside."""
        reply = next(self.replies)
        kind = reply.WhichOneof("answer")
        if kind == "refused":
            raise Void(reply.refused.text) if reply.refused.void else SystemExit(reply.refused.text)
        if kind in ("gathered", "granted") and getattr(reply, kind).fence == self.fence:
            getattr(self, kind).append(getattr(reply, kind))
        return reply

    def register(self, model):
        self.registered = r = self.ask("registered", register=pb.Register(model=model))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(r.ticket.socket_path)
            s.send(r.ticket.token)
            _, ancillary, _, _ = s.recvmsg(64, socket.CMSG_SPACE(2 * 4), socket.MSG_CMSG_CLOEXEC)
        (_, _, data), = ancillary
        params, grads = array.array("i", data)
        self.params = mmap.mmap(params, r.param_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
        self.grads = mmap.mmap(grads, r.grad_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(params)
        os.close(grads)

    def begin(self):
        self.fence = None
        self.gathered, self.granted = [], []
        entered = self.ask("entered", begin=pb.Begin())
        self.enter(entered.fence)
        return entered

    def enter(self, fence):
        self.fence, self.gathered, self.granted = fence, [], []

    def view(self, memory, start, offsets, unit):
        """The unit's two tensors as numpy arrays on the lent memory."""
        return [np.frombuffer(memory, np.float32, int(np.prod(shape)), start + offset).reshape(shape)
                for offset, shape in zip(offsets, (SHAPES[unit], SHAPES[unit][:1]))]

    def gather(self, unit):
        self.tell(gather=pb.Gather(unit=unit))
        while not self.gathered:
            self.hear()
        push = self.gathered.pop(0)
        assert push.unit == unit, push
        return self.view(self.params, push.offset, self.registered.places[unit].param_offsets, unit)

    def slot(self, unit, load=False):
        while not self.granted:
            self.hear()
        place = self.registered.places[unit]
        return self.view(self.grads, self.granted.pop(0).offset, place.load_offsets if load else place.grad_offsets,
                         unit)

    def step(self, **numbers):
        outcome = self.ask("outcome", step=pb.Step(micro_batches=1, **numbers))
        self.enter(outcome.next)
        return outcome


# ---- training ----------------------------------------------------------------------------------------

def model():
    units = [pb.Unit(name=name, tensors=[pb.Tensor(name=f"w{i}", shape=shape, weight_decay_multiplier=1),
                                         pb.Tensor(name=f"b{i}", shape=shape[:1])])
             for i, (name, shape) in enumerate(zip(("first", "second"), SHAPES), 1)]
    order = ((pb.COLLECTIVE_GATHER, 0), (pb.COLLECTIVE_GATHER, 1), (pb.COLLECTIVE_REDUCE, 1), (pb.COLLECTIVE_REDUCE, 0))
    return pb.Model(units=units, plans=[pb.Plan(name="train", ops=[pb.PlanOp(kind=k, unit=u) for k, u in order])],
                    micro_batches=1, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1)


def load(t):
    for unit, shape in enumerate(SHAPES):
        weight, bias = t.slot(unit, load=True)
        weight[:], bias[:] = noise(3, unit, 0, shape), 0
        t.tell(load=pb.Load(unit=unit))
    t.step()


def train(t, step):
    layers = [[a.copy() for a in t.gather(unit)] for unit in (0, 1)]
    x, target = (noise(what, step, t.registered.rank, (BATCH, n)) for what, n in ((1, IN), (2, OUT)))
    loss, grads = network(layers, x, target)
    for unit in (1, 0):
        t.tell(release=pb.Release(unit=unit))
        for to, grad in zip(t.slot(unit), grads[unit]):
            to[:] = grad
        t.tell(reduce=pb.Reduce(unit=unit))
    t.step(learning_rate=0.05 / step, clip=1, user=[loss], rank_cursor=struct.pack("<Q", step))


def main():
    t = Trainer(os.environ["ZEROD_ADDRESS"])
    t.register(model())
    entered = t.begin()
    if entered.rank_cursor:
        assert struct.unpack("<Q", entered.rank_cursor)[0] + 1 == entered.fence.step, entered
    while t.fence.step <= STEPS:
        try:
            train(t, t.fence.step) if t.fence.step else load(t)
        except Void:
            t.begin()
    t.ask("done", detach=pb.Detach(finished=True))
    t.requests.put(None)


main()
