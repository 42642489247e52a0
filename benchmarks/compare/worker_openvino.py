"""OpenVINO GenAI with continuous batching."""
import worker


def load(options):
    import numpy
    import openvino
    import openvino_genai as genai
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_seqs = options["max_streams"]
    scheduler.max_num_batched_tokens = 2048
    scheduler.enable_prefix_caching = False
    pipe = genai.ContinuousBatchingPipeline(options["folder"], scheduler, "CPU", {
        "INFERENCE_NUM_THREADS": options["threads"], "INFERENCE_PRECISION_HINT": "bf16"})

    def measure(prompts, tokens):
        config = genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        streams = worker.Streams(len(prompts), tokens)
        handles = [pipe.add_request(number, openvino.Tensor(numpy.array([prompt], dtype=numpy.int64)), config)
                   for number, prompt in enumerate(prompts)]
        while pipe.has_non_finished_requests():
            pipe.step()
            for number, handle in enumerate(handles):
                if handle.can_read():
                    streams.add(number, sum(len(output.generated_ids) for output in handle.read().values()))
        streams.finish()
        return streams

    return measure, options["vocabulary"]


if __name__ == "__main__":
    worker.serve(load)
