"""Downloads that are killed repeatedly, or whose disk loses written data."""
import errno
import os
import random
import signal
import struct
import subprocess

from loopback_hub import Repository, serving_hub
from test_download import WEIGHTS, Place, as_if_the_power_failed, same, small_model

from serving import command, wait_until

KILLS = 20
MEGABYTES = 1000


def test_b10_a_gigabyte_after_twenty_kills(tmp_path):
    """Repeatedly, the store stops sending at some byte and the process is killed. In the end no byte is wrong, and none was downloaded
    twice."""
    source = random.Random(15)
    files = {**small_model(), WEIGHTS: b"".join(source.randbytes(1_000_000) for _ in range(MEGABYTES))}
    with serving_hub({"a/b": Repository(files)}) as hub:
        place = Place(hub, tmp_path)
        place.env["HF_HUB_DOWNLOAD_TIMEOUT"] = "600"  # a silent connection must not be retried here
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
    """Each sync fails once. Files that may not be on the disk have a mark and no reference, and the next attempt completes them."""
    nth = 0
    while True:
        nth += 1
        with serving_hub({"a/b": Repository(small_model())}) as hub:
            place = Place(hub, tmp_path / str(nth))
            switch = tmp_path / "switch"
            switch.write_bytes(b"1" + bytes(15))
            result = place.pull(**fault_shim, FAULT_CALL="fsync", FAULT_ERRNO=str(errno.EIO), FAULT_SWITCH=str(switch), FAULT_NTH=str(nth))
            calls, = struct.unpack("<Q", switch.read_bytes()[8:])
            if calls < nth:
                assert result.returncode == 0, result.stderr
                break
            assert result.returncode == 5 and "Input/output error" in result.stderr, result.stderr
            assert not (place.repository() / "refs" / "main").exists()
            assert unmarked(place) * SYNCS_OF_A_FILE < calls
            assert same(place.pulled(), hub.repositories["a/b"].files)
    assert nth > 8


# Number of syncs per file: the mark, its folder, and the content.
SYNCS_OF_A_FILE = 3


def unmarked(place):
    names = place.blobs() if place.repository().exists() else set()
    return len([name for name in names if "." not in name and name + ".unflushed" not in names])


def test_b10_f02_power_that_fails_at_each_flush(fault_shim, tmp_path):
    """Ends the process at its first sync, then at its second, and so on, and damages the files that have a mark at
    that moment. The next start never accepts an incomplete file as complete."""
    nth = damaged = 0
    while True:
        nth += 1
        with serving_hub({"a/b": Repository(small_model())}) as hub:
            place = Place(hub, tmp_path / str(nth))
            result = place.pull(**fault_shim, FAULT_CALL="fsync", FAULT_KILL="1", FAULT_NTH=str(nth))
            assert unmarked(place) * SYNCS_OF_A_FILE < nth, "the mark stays until the sync is done"
            blobs = place.blobs() if place.repository().exists() else set()
            damaged += len([name for name in blobs if name + ".unflushed" in blobs])
            as_if_the_power_failed(place, damage=True)
            assert same(place.pulled(), hub.repositories["a/b"].files)
            if result.returncode == 0:
                break
            assert result.returncode == -signal.SIGKILL, result.stderr
    assert nth > 8 and damaged > 4
