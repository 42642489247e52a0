"""llama.cpp through the low-level functions of llama-cpp-python: a step decodes all streams in one batch."""
import worker


def load(options):
    import llama_cpp as cpp
    import numpy
    cpp.llama_backend_init()
    model_options = cpp.llama_model_default_params()
    model = cpp.llama_model_load_from_file(options["file"].encode(), model_options)
    assert model, "the model could not be loaded"
    settings = cpp.llama_context_default_params()
    settings.n_ctx = max(options["max_len"], options["max_streams"] * options["stream_len"])
    settings.n_batch = 2048
    settings.n_ubatch = 512
    settings.n_seq_max = options["max_streams"]
    settings.n_threads = settings.n_threads_batch = options["threads"]
    settings.kv_unified = True
    context = cpp.llama_init_from_model(model, settings)
    assert context, "no context could be made"
    vocabulary = options["vocabulary"]
    batch = cpp.llama_batch_init(2048, 0, 1)

    def fill(entries):
        batch.n_tokens = len(entries)
        for place, (token, position, stream, wanted) in enumerate(entries):
            batch.token[place] = token
            batch.pos[place] = position
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = stream
            batch.logits[place] = wanted
        status = cpp.llama_decode(context, batch)
        assert status == 0, "llama_decode: %d" % status

    def drawn(place):
        logits = cpp.llama_get_logits_ith(context, place)
        return int(numpy.argmax(numpy.ctypeslib.as_array(logits, shape=(vocabulary,))))

    def measure(prompts, tokens):
        cpp.llama_memory_clear(cpp.llama_get_memory(context), True)
        streams = worker.Streams(len(prompts), tokens)
        rows = [(token, position, stream, position == len(prompt) - 1)
                for stream, prompt in enumerate(prompts) for position, token in enumerate(prompt)]
        last = [0] * len(prompts)
        for begin in range(0, len(rows), 2048):
            entries = rows[begin:begin + 2048]
            fill(entries)
            for place, (_, _, stream, wanted) in enumerate(entries):
                if wanted:
                    last[stream] = drawn(place)
                    streams.add(stream)
        for step in range(1, tokens):
            fill([(last[stream], len(prompt) + step - 1, stream, True) for stream, prompt in enumerate(prompts)])
            for stream in range(len(prompts)):
                last[stream] = drawn(stream)
                streams.add(stream)
        streams.finish()
        return streams

    return measure, vocabulary


if __name__ == "__main__":
    worker.serve(load)
