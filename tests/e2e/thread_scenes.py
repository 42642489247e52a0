"""Servers in which certain threads have work, to inject faults into those threads (thread_faults.py).

A scene is a context manager that yields a server and `act`, which gives the threads work and returns the outcomes of its requests:
[(status, content)]; status 0: the connection was cut; content None: it differs from time to time. After `act`, the server answers again."""
import contextlib
import dataclasses
import http.client
import json
import signal
import time
import typing

from ranks import MPI
from test_image_options import image_host
from test_images import write_eyes
from test_kv_offloading import CACHE, files, prompts
from test_models import CHECKPOINTS, door
from test_shadow import shadowing

from serving import ABACUS, DATA, at_once, serving, wait_until

PROMPT = "Anna has 12 pens and buys 7."
# A request that takes longer counts as hanging, in seconds.
PATIENCE_S = 120
QWEN3 = CHECKPOINTS / "qwen3-bf16"
SMALL = ("--max-model-len", 512, "--threads", 1)
KEY = "sk-a-key-of-the-test"
WEIGHTS = '{"backend": "disk"}'


@dataclasses.dataclass
class Scene:
    start: typing.Callable
    threads: tuple
    # The threads continue to work for this long after the requests.
    settle_s: float = 0.1
    # Whether a fault changes the server permanently, for example ends its recording. Each fault then needs a
    # new server.
    is_once: bool = False
    # Whether the threads allocate no memory after the start.
    only_calls: bool = False
    # Statuses of failed requests, in addition to the 5xx of server errors.
    refusals: tuple = ()
    headers: typing.Optional[dict] = None


def post(server, path, body, read, headers=None):
    try:
        status, _, text = server.request("POST", path, body, headers=headers, timeout=PATIENCE_S)
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException):
        return 0, None
    if status != 200:
        return status, None
    try:
        return 200, read(text)
    except (ValueError, KeyError, IndexError):  # a stream that ended with an error
        return 0, None


def complete(server, model="m", prompt=PROMPT, headers=None, **fields):
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 8, "ignore_eos": True, **fields}
    return post(server, "/v1/completions", body, lambda text: json.loads(text)["choices"][0]["text"], headers)


@contextlib.contextmanager
def adapters(folder, env):
    """Two adapters take turns in one slot, so that requests wait for a thread that loads them."""
    names = {"linear": "qwen3-linear", "stable": "qwen3-stabilized"}
    modules = ["%s=%s" % (name, DATA / "adapters" / place) for name, place in names.items()]
    with serving(QWEN3, "--dtype", "float32", *SMALL, "--enable-lora", "--max-loras", 1, "--max-cpu-loras", 1, "--lora-modules", *modules, env=env) as server:
        yield server, lambda: at_once([lambda name=name: complete(server, name, max_tokens=200) for name in [*names, *names]])


@contextlib.contextmanager
def disk_tier(folder, env):
    """Few blocks, so that blocks of earlier prompts are written to files and read back."""
    tier = folder / "kv"
    with serving(ABACUS, *CACHE, "--threads", 1, "--kv-offloading-size", 0.0001, "--kv-offloading-path", tier, env=env) as server:
        def act():
            return [complete(server, prompt=prompt, max_tokens=2) for prompt in prompts(1, 3)]

        act()
        wait_until(lambda: len(files(tier)) >= 30, "blocks are written")
        yield server, act


@contextlib.contextmanager
def recorder(folder, env):
    with serving(ABACUS, *SMALL, "--record", folder / "recording", env=env) as server:
        yield server, lambda: [complete(server)]


@contextlib.contextmanager
def idle_sleep(folder, env):
    with serving(ABACUS, *SMALL, "--enable-sleep-mode", "--sleep-idle-seconds", 0.2, env=env) as server:
        def act():
            found = [complete(server)]
            time.sleep(0.5)
            return [*found, complete(server)]

        yield server, act


@contextlib.contextmanager
def media(folder, env):
    write_eyes(folder)
    body = {"model": "m", "temperature": 0, "max_tokens": 4, "ignore_eos": True}
    with image_host() as (address, _), serving(folder, "--dtype", "float32", *SMALL, "--allowed-media-domains", "127.0.0.1", env=env) as server:
        def ask(name):
            parts = [{"type": "image_url", "image_url": {"url": address + name}}, {"type": "text", "text": "What is it?"}]
            return post(server, "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": parts}]},
                        lambda text: json.loads(text)["choices"][0]["message"]["content"])

        for _ in range(4):
            at_once([lambda: ask("/rgb.png")] * 8)  # threads are started on demand
        yield server, lambda: [ask("/to/rgb.png")]


@contextlib.contextmanager
def several_models(folder, env):
    """Three models in memory for two: a request for the third loads it and unloads another."""
    models = {"m": {"path": str(ABACUS)}, "llama": {"path": str(CHECKPOINTS / "llama-bf16")}, "qwen": {"path": str(QWEN3)}}
    with door(folder, models, env=env) as server:
        yield server, lambda: [complete(server, name) for name in ("qwen", "llama", "m")]


@contextlib.contextmanager
def shadow(folder, env):
    with serving(ABACUS, *SMALL) as upstream, shadowing(folder / "report", upstream.url, "--max-model-len", 512, "--threads", 1, env=env) as server:
        def act():
            streamed = post(server, "/v1/completions", {"model": "m", "prompt": PROMPT, "temperature": 0, "max_tokens": 8, "stream": True},
                            lambda text: None)
            return [complete(server), streamed]

        wait_until(lambda: "ready in" in server.log(), "the model is loaded")
        yield server, act


@contextlib.contextmanager
def keep_alive(folder, env):
    with serving(ABACUS, *SMALL, "--sse-keep-alive-interval", 0.02, env=env) as server:
        body = {"model": "m", "prompt": PROMPT, "temperature": 0, "max_tokens": 200, "ignore_eos": True, "stream": True}
        yield server, lambda: [post(server, "/v1/completions", body, lambda text: None)]


@contextlib.contextmanager
def matchers(folder, env):
    """An ambiguous grammar, which takes longer than a step may wait for."""
    with serving(ABACUS, *SMALL, env=env) as server:
        fields = {"n": 4, "max_tokens": 60, "temperature": 1, "seed": 1,
                  "structured_outputs": {"grammar": "root ::= s\ns ::= s s | [a-z] | [^a] | s s s"}}
        # Whether the matcher finishes in time varies; if not, the request gets 400.
        yield server, lambda: [(200, None) if status in (200, 400) else (status, None) for status, _ in [complete(server, **fields)]]


@contextlib.contextmanager
def hangups(folder, env):
    (folder / "keys").write_text(KEY + "\n")
    with serving(ABACUS, *SMALL, "--api-key-file", folder / "keys", env=env) as server:
        def act():
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            return [complete(server, headers={"Authorization": "Bearer " + KEY})]

        yield server, act


@contextlib.contextmanager
def upkeep(folder, env):
    """The main thread, which logs the throughput."""
    with serving(ABACUS, *SMALL, "--log-stats-interval", 0.1, env=env) as server:
        def act():
            found = [complete(server)]
            time.sleep(1.5)
            return found

        yield server, act


@contextlib.contextmanager
def rank_processes(folder, env):
    with serving(ABACUS, *SMALL, "-tp", 2, *MPI, env=env) as server:
        def act():
            found = [complete(server)]
            time.sleep(0.5)
            return found

        yield server, act


@contextlib.contextmanager
def new_weights(folder, env):
    """Weights are replaced while two ranks serve; the loading threads have the same name as the worker's threads."""
    with serving(ABACUS, *SMALL, "-tp", 2, "--tensor-parallel-mode", "exact", "--weight-transfer-config", WEIGHTS,
                 env={**env, "VLLM_SERVER_DEV_MODE": "1"}) as server:
        def act():
            steps = [("/start_weight_update", None), ("/update_weights", {"update_info": {"path": str(ABACUS)}}),
                     ("/finish_weight_update", {"weight_version": None})]
            statuses = [post(server, path, body, lambda text: None)[0] for path, body in steps]
            # After a step of the update has failed, the server refuses the following steps.
            status = 200 if statuses == [200] * 3 else next((status for status in statuses if status not in (200, 400)), 503)
            return [(status, None), complete(server)]

        yield server, act


SCENES = {
    "adapters": Scene(adapters, ("adapters",)),
    "disk tier": Scene(disk_tier, ("kv-disk",), settle_s=0.3),
    "recorder": Scene(recorder, ("recorder",), settle_s=0.3, is_once=True),
    "idle sleep": Scene(idle_sleep, ("idle-sleep",)),
    "media": Scene(media, ("media-fetch",), refusals=(400,)),  # an image that cannot be fetched
    "several models": Scene(several_models, ("models", "load-model")),
    "shadow": Scene(shadow, ("relay", "compare"), settle_s=0.5),
    "keep alive": Scene(keep_alive, ("keep-alive",)),
    "matchers": Scene(matchers, ("matchers",)),
    "hangups": Scene(hangups, ("sluice",), headers={"Authorization": "Bearer " + KEY}),
    "upkeep": Scene(upkeep, ("sluice",)),
    "rank processes": Scene(rank_processes, ("rank-watch",), only_calls=True),
    "new weights": Scene(new_weights, ("worker",)),
}
