"""Downloads whose process is killed again and again, and whose disk refuses to keep what was written."""
import errno
import os
import random
import signal
import struct
import subprocess

from loopback_hub import Repository, serving_hub
from test_download import WEIGHTS, Place, same, small_model

from serving import command, wait_until

KILLS = 20
MEGABYTES = 1000


def test_b10_a_gigabyte_after_twenty_kills(tmp_path):
    """The store falls silent somewhere, the process is killed there, and so on; in the end there is no byte that is wrong or came twice."""
    source = random.Random(15)
    files = {**small_model(), WEIGHTS: b"".join(source.randbytes(1_000_000) for _ in range(MEGABYTES))}
    with serving_hub({"a/b": Repository(files)}) as hub:
        place = Place(hub, tmp_path)
        place.env["HF_HUB_DOWNLOAD_TIMEOUT"] = "600"  # silence is no reason to connect anew here
        incomplete = place.repository() / "blobs" / (hub.repositories["a/b"].etag(WEIGHTS) + ".incomplete")
        size = 0
        for _ in range(KILLS):
            hub.most_served = hub.served + source.randrange(1 << 20, MEGABYTES * 1_000_000 // KILLS)
            least = size + (hub.most_served - hub.served) // 2
            process = subprocess.Popen(command("pull", "a/b"), env={**os.environ, **place.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until(lambda least=least: incomplete.exists() and incomplete.stat().st_size >= least, "no progress")
            process.send_signal(signal.SIGKILL)
            process.wait()
            begin, size = size, incomplete.stat().st_size
            with open(incomplete, "rb") as file:
                file.seek(begin)
                assert file.read() == files[WEIGHTS][begin:size], "a beginning of the file, at any time"
            assert not (place.repository() / "refs").exists(), "nothing is taken for whole"
        hub.most_served = 1 << 62
        asked = len(hub.taken("store"))
        assert asked >= KILLS and size < len(files[WEIGHTS])
        assert same(place.pulled(), files)
        assert hub.taken("store")[asked][3].startswith("bytes=%d-" % size), "what came is not fetched again"
        assert not [name for name in place.blobs() if "incomplete" in name]


def test_b10_f02_a_disk_that_does_not_keep_what_was_written(fault_shim, tmp_path):
    """Each sync fails once: what is not surely on the disk gets no name of a whole file, and the next attempt brings it there."""
    with serving_hub({"a/b": Repository(small_model())}) as hub:
        place = Place(hub, tmp_path)
        switch = tmp_path / "switch"

        def pull(nth):
            switch.write_bytes(b"1" + bytes(15))
            return place.pull(**fault_shim, FAULT_CALL="fsync", FAULT_ERRNO=str(errno.EIO), FAULT_SWITCH=str(switch), FAULT_NTH=str(nth))

        files = hub.repositories["a/b"].files
        for left in (("config.json", "tokenizer.json", WEIGHTS), ("tokenizer.json", WEIGHTS), (WEIGHTS,), ()):
            result = pull(1)
            assert result.returncode == 5 and "Input/output error" in result.stderr, result.stderr
            etags = [hub.repositories["a/b"].etag(name) for name in left]
            assert not place.blobs() & set(etags[:1]), "no name for what the disk may lose"
            assert not (place.repository() / "refs" / "main").exists()
            if left:  # one file more gets through the next time
                assert pull(2).returncode == 5
        assert same(place.pulled(), files)
        assert struct.unpack("<Q", switch.read_bytes()[8:])[0] > 0
