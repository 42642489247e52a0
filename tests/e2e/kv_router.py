"""A router's view of a server: subscribes to cache events as routers do, and tracks which blocks the server has."""
import hashlib
from typing import Any

import msgspec
import zmq

PATIENCE_MS = 60000


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class Event(msgspec.Struct, omit_defaults=True, tag=True):
    pass


class BlockStored(Event):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(Event):
    block_hashes: list[int | bytes]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event):
    pass


class Batches(Batch):
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


def cbor(value):
    """Canonical CBOR of the values that block hashes cover."""
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        size = next(size for size in (1, 2, 4, 8) if number < 1 << (8 * size))
        return bytes([major << 5 | 24 + size.bit_length() - 1]) + number.to_bytes(size, "big")

    if value is None:
        return b"\xf6"
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, int):
        return head(0, value)
    return head(4, len(value)) + b"".join(map(cbor, value))


def hashes(tokens, block_size, salt=""):
    """Names of the full blocks of a sequence, as docs/operations.md specifies."""
    digest = hashlib.sha256(cbor("vllm-none-hash")).digest()
    names = []
    for begin in range(0, len(tokens) - len(tokens) % block_size, block_size):
        keys = [["cache_salt", salt]] if salt and begin == 0 else None
        digest = hashlib.sha256(cbor([digest, tokens[begin:begin + block_size], keys])).digest()
        names.append(int.from_bytes(digest[-8:], "big"))
    return names


def of_each(event):
    """(hash, hash of the parent, tokens) of the blocks of a BlockStored."""
    parent = event.parent_block_hash
    for i, name in enumerate(event.block_hashes):
        yield name, parent, event.token_ids[i * event.block_size:(i + 1) * event.block_size]
        parent = name


class Router:
    def __init__(self, endpoint, topic="", rank=0):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self.socket.connect(endpoint)
        self.decoder = msgspec.msgpack.Decoder(type=Batches)
        self.topic, self.rank = topic, rank
        self.blocks = set()  # (group, hash) in the KV cache
        self.tiers = {"CPU": set(), "STORAGE": set()}
        self.next = None     # number of the next batch; None before the first
        self.cleared = 0
        self.salts = set()
        self.tokens = {}  # (parent, tokens) of each block that was ever reported

    def close(self):
        self.socket.close(linger=0)
        self.context.term()

    def take(self, number, payload):
        if self.next is not None and number < self.next:
            return  # already received by a replay
        assert self.next is None or number == self.next, "batch %d came in place of %d" % (number, self.next)
        self.next = number + 1
        batch = self.decoder.decode(payload)
        assert batch.data_parallel_rank == self.rank and batch.ts > 1.7e9
        for event in batch.events:
            self.apply(event)

    def apply(self, event):
        if isinstance(event, AllBlocksCleared):
            for blocks in (self.blocks, *self.tiers.values()):
                blocks.clear()
            self.cleared += 1
        elif isinstance(event, BlockRemoved):
            for name in event.block_hashes:
                self.of(event.medium).remove((event.group_idx, name))
        else:
            blocks = self.of(event.medium)
            assert len(event.token_ids) == event.block_size * len(event.block_hashes)
            assert len(event.extra_keys) == len(event.block_hashes)
            assert event.medium != "GPU" or event.parent_block_hash is None or (0, event.parent_block_hash) in self.blocks
            self.salts.update(key for keys in event.extra_keys if keys for key in keys)
            for name in event.block_hashes:
                assert (event.group_idx, name) not in blocks
                blocks.add((event.group_idx, name))
            # Events of other tiers describe a block in the same way as events of the KV cache.
            for name, parent, tokens in of_each(event):
                assert self.tokens.setdefault(name, (parent, tokens)) == (parent, tokens)

    def of(self, medium):
        return self.blocks if medium == "GPU" else self.tiers[medium]

    def read(self, up_to):
        """Reads until batch `up_to - 1` has been applied."""
        while (self.next or 0) < up_to:
            assert self.socket.poll(PATIENCE_MS), "no batch %s" % self.next
            topic, number, payload = self.socket.recv_multipart()
            assert topic.decode() == self.topic
            self.take(int.from_bytes(number, "big"), payload)

    def catch_up(self, endpoint):
        """Requests a replay of all missed batches, and applies them."""
        with self.context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(endpoint)
            socket.send_multipart([b"", (self.next or 0).to_bytes(8, "big")])
            while True:
                assert socket.poll(PATIENCE_MS), "no answer to a replay"
                empty, topic, number, payload = socket.recv_multipart()
                assert empty == b""
                if number == b"\xff" * 8:
                    assert topic == b"" and payload == b""
                    return
                assert topic.decode() == self.topic
                self.take(int.from_bytes(number, "big"), payload)

    def skip(self):
        """Reads batches that have arrived meanwhile and were already received by a replay."""
        while self.socket.poll(0):
            _, number, payload = self.socket.recv_multipart()
            self.take(int.from_bytes(number, "big"), payload)

    def hit(self, tokens, block_size, salt=""):
        """Number of tokens of a prompt that the server has cached; the last token is always computed."""
        blocks = 0
        for name in hashes(tokens, block_size, salt)[:(len(tokens) - 1) // block_size]:
            if not any((0, name) in held for held in (self.blocks, *self.tiers.values())):
                break
            blocks += 1
        return blocks * block_size
