"""vLLM's CPU build in this process, without its server."""
import os

import worker


def load(options):
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0-%d" % (options["threads"] - 1))
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine
    engine = LLMEngine.from_engine_args(EngineArgs(
        model=options["folder"], load_format="dummy", dtype="bfloat16", skip_tokenizer_init=True,
        max_model_len=options["max_len"], max_num_seqs=options["max_streams"], enable_prefix_caching=False))

    def measure(prompts, tokens):
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        streams = worker.Streams(len(prompts), tokens)
        seen = {}
        for number, prompt in enumerate(prompts):
            name = "%d-%04d" % (id(streams), number)  # no name is a prefix of another
            seen[name] = [number, 0]
            engine.add_request(name, {"prompt_token_ids": prompt}, sampling)
        while engine.has_unfinished_requests():
            for output in engine.step():
                entry = seen[next(name for name in seen if output.request_id.startswith(name))]
                count = len(output.outputs[0].token_ids)
                streams.add(entry[0], count - entry[1])
                entry[1] = count
        streams.finish()
        return streams

    return measure, options["vocabulary"]


if __name__ == "__main__":
    worker.serve(load)
