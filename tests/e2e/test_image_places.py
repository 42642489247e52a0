"""Answers about images with pipeline stages, with ranks that are processes, and on a device."""
import pytest
from ranks import MPI
from test_images import ask, data_url, write_eyes

from serving import DATA, serving

FLAGS = ("--dtype", "float32", "--max-model-len", 512)


def questions():
    return [[data_url("rgb.png")], [data_url("progressive.jpg"), data_url("lossy.webp")], [data_url("rgb.png")], []]


def answers(server):
    return [ask(server, *urls)["choices"][0]["logprobs"] for urls in questions()]


@pytest.fixture(scope="module")
def eyes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eyes")
    write_eyes(folder)
    return folder


@pytest.fixture(scope="module")
def alone(eyes):
    with serving(eyes, *FLAGS, name="eyes") as server:
        return answers(server)


@pytest.mark.parametrize("ranks", [["-pp", 2], ["-tp", 2, "-pp", 2, "--max-num-batched-tokens", 16], ["-tp", 2, *MPI], ["-pp", 2, *MPI]])
def test_ranks_answer_as_one(eyes, alone, ranks):
    with serving(eyes, *FLAGS, "--tensor-parallel-mode", "exact", *ranks, name="eyes") as server:
        assert answers(server) == alone
        assert "images are not accepted" not in server.log()


def test_a_device_answers_near_the_cpu(tmp_path):
    """The vision tower is also on the device: its heads have 16 elements, the minimum that device kernels support."""
    write_eyes(tmp_path, DATA / "checkpoints" / "tiny-qwen3-vl-wide")
    with serving(tmp_path, *FLAGS, name="eyes") as server:
        expected = answers(server)
    flags = ("--device", "emulated", "--max-model-len", 512, "--max-num-seqs", 4, "--max-num-batched-tokens", 64)
    with serving(tmp_path, *flags, name="eyes") as server:
        found = answers(server)
        log = server.log()
        assert found[0] == found[2] != found[1]
        assert "to embed patches" in log and "images are" not in log, log
    for mine, theirs in zip(found, expected):
        first, other = mine["content"][0], theirs["content"][0]
        assert first["token"] == other["token"] and abs(first["logprob"] - other["logprob"]) < 0.1
