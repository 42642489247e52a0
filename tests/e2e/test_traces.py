"""Trace spans of requests: OpenTelemetry's own classes decode what a collector receives."""
import contextlib
import http.server
import socket
import threading
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from test_start import streaming

from serving import DATA, deaf_port, run, serving, wait_until

LLAMA = DATA / "checkpoints" / "llama-bf16"
COMMON = ("--max-model-len", 256, "--threads", 2)
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
LATENCIES = ["time_in_queue", "time_to_first_token", "e2e", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference"]


class Collector(http.server.ThreadingHTTPServer):
    def __init__(self):
        self.received = []  # (path, headers, message)
        super().__init__(("127.0.0.1", 0), Handler)

    def spans(self):
        return [span for _, _, message in self.received for resource in message.resource_spans
                for scope in resource.scope_spans for span in scope.spans]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        message = ExportTraceServiceRequest()
        message.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append((self.path, dict(self.headers), message))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def collecting():
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    try:
        yield collector, "http://127.0.0.1:%d" % collector.server_port
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def test_a_span_of_each_request():
    environment = {"OTEL_SERVICE_NAME": "chat", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=for%20the%20collector"}
    with collecting() as (collector, url):
        with serving(LLAMA, *COMMON, "--otlp-traces-endpoint", url, env=environment) as server:
            began = time.time_ns()
            sent = {"traceparent": "00-%s-%s-01" % (TRACE, CALLER), "tracestate": "vendor=1", "X-Request-Id": "mine"}
            body = {"model": "m", "prompt": "Tom has", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "n": 2, "ignore_eos": True}
            assert server.post("/v1/completions", body, headers=sent)[0] == 200
            wait_until(lambda: collector.spans(), server.log)
            path, headers, message = collector.received[0]
            assert path == "/v1/traces"
            assert headers["Content-Type"] == "application/x-protobuf" and headers["api-key"] == "for the collector"
            resource = message.resource_spans[0]
            assert attributes(resource.resource.attributes)["service.name"] == "chat"
            (span,) = collector.spans()
            assert span.name == "llm_request" and span.kind == Span.SPAN_KIND_SERVER
            assert span.trace_id.hex() == TRACE and span.parent_span_id.hex() == CALLER and span.trace_state == "vendor=1"
            assert len(span.span_id) == 8 and span.span_id.hex() not in (CALLER, "0" * 16) and span.flags & 1
            assert began <= span.start_time_unix_nano < span.end_time_unix_nano <= time.time_ns()
            told = attributes(span.attributes)
            assert told["gen_ai.request.id"] == "cmpl-mine" and told["gen_ai.response.model"] == "m"
            assert (told["gen_ai.request.n"], told["gen_ai.request.max_tokens"]) == (2, 5)
            assert (told["gen_ai.request.temperature"], told["gen_ai.request.top_p"]) == (0.5, 0.9)
            assert told["gen_ai.usage.completion_tokens"] == 10 and told["gen_ai.usage.prompt_tokens"] > 0
            seconds = {name: told["gen_ai.latency." + name] for name in LATENCIES}
            assert all(value >= 0 for value in seconds.values()) and seconds["time_in_model_decode"] > 0
            assert seconds["time_to_first_token"] <= seconds["e2e"]
            assert abs(seconds["e2e"] - (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9) < 1e-3

            # A request without traceparent begins a trace. A request whose traceparent is not sampled has no span.
            # Each prompt has a span.
            not_sampled = {"traceparent": "00-%s-%s-00" % (TRACE, CALLER)}
            assert server.post("/v1/completions", {**body, "n": 1}, headers=not_sampled)[0] == 200
            assert server.post("/v1/completions", {**body, "n": 1, "prompt": ["Tom", "Ann"]})[0] == 200
            chat = {"model": "m", "messages": [{"role": "user", "content": "Tom"}], "max_tokens": 3, "stream": True}
            assert server.request("POST", "/v1/chat/completions", chat, headers={"traceparent": "nonsense"})[0] == 200
            assert server.post("/v1/completions", {**body, "n": 0}, headers=sent)[0] == 400
            wait_until(lambda: len(collector.spans()) >= 4, server.log)
            rest = collector.spans()[1:]
            assert len(rest) == 3 and len({span.span_id for span in rest}) == 3
            assert not any(span.parent_span_id for span in rest)
            ids = {span.trace_id for span in rest}
            assert len(ids) == 2 and bytes.fromhex(TRACE) not in ids
            # A request whose client disconnects also has a span.
            with streaming(server, max_tokens=200):
                pass
            wait_until(lambda: len(collector.spans()) == 5, server.log)
            assert server.metric("sluice:trace_spans_sent_total") == 5 and server.metric("sluice:trace_spans_dropped_total") == 0
            assert server.post("/v1/completions", {**body, "n": 1})[0] == 200
            assert server.stop() == 0
        # The last span is sent when the server ends.
        assert len(collector.spans()) == 6


def test_a_dead_collector_holds_nothing_up():
    """A collector that refuses connections, or accepts them but never answers, delays neither answers nor the server's end."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for port in (deaf_port(), silent.getsockname()[1]):
            with serving(LLAMA, *COMMON, "--otlp-traces-endpoint", "http://127.0.0.1:%d" % port) as server:
                begin, told = time.monotonic(), "WARN tracing spans were not accepted by http://127.0.0.1:%d/v1/traces: " % port
                for _ in range(20):
                    server.complete("Tom", max_tokens=2)
                assert time.monotonic() - begin < 60
                if port == deaf_port():
                    wait_until(lambda server=server, told=told: told in server.log(), server.log)
                assert server.get("/health")[0] == 200
                begin = time.monotonic()
                assert server.stop() == 0
                assert time.monotonic() - begin < 30


def test_under_the_name_vllm():
    with collecting() as (collector, url):
        with serving(LLAMA, "--max_model_len", 256, "--otlp_traces_endpoint", url + "/custom", "--collect-detailed-traces", "all",
                     program="vllm") as server:
            assert "the parts of a step are not measured" in server.log()
            server.complete("Tom", max_tokens=2)
            wait_until(lambda: collector.spans(), server.log)
            assert collector.received[0][0] == "/custom"


def test_what_cannot_be_used_is_refused_at_start():
    for endpoint, environment, words in [("grpc://localhost:4317", {}, ["--otlp-traces-endpoint", "gRPC"]),
                                         ("http://localhost:4318", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
                                          ["OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"])]:
        result = run("serve", LLAMA, "--host", "127.0.0.1", "--port", 0, "--otlp-traces-endpoint", endpoint, env=environment)
        assert result.returncode == 2, result
        assert all(word in result.stderr for word in words), result.stderr
