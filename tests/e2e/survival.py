"""The survival check of docs/security.md: the server's state and answers must be unchanged after hostile input."""
import pathlib

from serving import wait_until

# Greedy answers of the bundled model with logprobs: a single changed bit shows.
PROBES = ["Anna has 12 pens and buys 7.", "Tom has 3 apples. ", "A box holds 24 eggs, 5 break."]
MORE_MEMORY_FACTOR = 1.05
MORE_MEMORY_BYTES = 64 << 20
SECONDS = 30


def resident_bytes(pid):
    return int(pathlib.Path("/proc/%d/statm" % pid).read_text().split()[1]) * 4096


def counts(pid):
    """(open files, threads) of a process."""
    return tuple(len(list(pathlib.Path("/proc/%d/%s" % (pid, folder)).iterdir())) for folder in ("fd", "task"))


class Survival:
    """Records the state of a server that is idle now, for comparison. One test at a time."""

    def __init__(self, server, headers=None):
        self.server, self.headers = server, headers
        for _ in range(3):  # allocations of the first requests are not leaks
            self.answers = [self.ask(prompt) for prompt in PROBES]
        self.settle()
        self.resident = resident_bytes(server.process.pid)
        self.counts = counts(server.process.pid)

    def ask(self, prompt):
        status, answer = self.server.post("/v1/completions", {"model": "m", "prompt": prompt, "temperature": 0, "max_tokens": 12,
                                                              "logprobs": 2, "ignore_eos": True}, headers=self.headers)
        assert status == 200, answer
        return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]["token_logprobs"]

    def settle(self):
        """Waits until there is no running or waiting request, and no block is in use."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        found = {}

        def idle():
            found.update({name: self.server.metric(name) for name in names})
            return not any(found.values())

        wait_until(idle, lambda: "not idle: %s" % found, SECONDS)

    def check(self):
        pid = self.server.process.pid
        assert self.server.process.poll() is None, "the server ended: " + self.server.log()[-3000:]
        assert self.server.get("/health")[0] == 200
        self.settle()
        assert [self.ask(prompt) for prompt in PROBES] == self.answers
        limit = self.resident * MORE_MEMORY_FACTOR + MORE_MEMORY_BYTES
        wait_until(lambda: resident_bytes(pid) <= limit,
                   lambda: "%d MiB resident, %d before" % (resident_bytes(pid) >> 20, self.resident >> 20), SECONDS)
        # Idle kept-alive connections are closed after a timeout.
        wait_until(lambda: all(now <= before for now, before in zip(counts(pid), self.counts)),
                   lambda: "files and threads: %s, %s before" % (counts(pid), self.counts), SECONDS)
        log = self.server.log()
        assert "runtime error" not in log and "AddressSanitizer" not in log, log[-3000:]
