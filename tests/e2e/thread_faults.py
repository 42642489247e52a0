"""Makes each allocation, or each system call, of a thread fail once. Requests may fail, but the server continues with the same answers."""
import errno
import time

from faults import Switch
from survival import Survival
from thread_scenes import SCENES

from serving import wait_until

# A model that could not be loaded is loaded again after 10 s.
RECOVERY_S = 60
NEVER = 2**62


def failures(got, want, where, server, refusals):
    """The number of failed requests. Requests that succeeded must have the same content as without faults."""
    failed = 0
    for (status, content), (_, expected) in zip(got, want, strict=True):
        if status == 200:
            assert content == expected, where
        else:
            assert status in (0, 500, 502, 503, *refusals), "%s: %s\n%s" % (where, got, server.log()[-3000:])
            failed += 1
    return failed


def places(switch, act, settle_s):
    """The number of calls that the thread makes for the requests."""
    act()
    wait_until(switch.count, "no call on a thread of this name", RECOVERY_S)
    time.sleep(settle_s)
    count = switch.count()
    switch.set(False)
    return count


def fail_each(shim, folder, name, thread, call, most):
    """Makes up to `most` calls of a scene's thread fail, evenly spread, one at a time. Returns the number of calls that failed, and of
    requests that failed with them."""
    scene = SCENES[name]
    switch = Switch(folder / "switch", False)
    env = {**shim, "FAULT_SWITCH": str(switch.path), "FAULT_ERRNO": str(errno.EIO)}

    def serve(number):
        (folder / str(number)).mkdir()
        return scene.start(folder / str(number), env)

    def fail(server, act, want, nth, count):
        where = "%s: %s %d of %d on %s" % (name, call, nth, count, thread)
        before = len(server.log())
        switch.arm(call, thread, nth)
        try:
            got = act()
        except TimeoutError:
            raise AssertionError("%s: no answer: %s" % (where, server.log()[-3000:])) from None
        time.sleep(scene.settle_s)
        switch.set(False)
        assert server.process.poll() is None, where + ": the server ended: " + server.log()[-3000:]
        failed = failures(got, want, where, server, scene.refusals)
        if failed and call == "new":
            wait_until(lambda: "memory" in server.log()[before:], where + ": the log does not say why requests failed", RECOVERY_S)
        wait_until(lambda: failures(act(), want, where, server, scene.refusals) == 0, lambda: "%s: no recovery: %s" % (where, server.log()[-3000:]), RECOVERY_S)
        return failed

    with serve(0) as (server, act):
        for _ in range(3):
            want = act()
        assert all(status == 200 for status, _ in want), want
        survival = Survival(server, scene.headers)
        switch.arm(call, thread, NEVER)
        count = places(switch, act, scene.settle_s)
        tried = range(1, count + 1, max(1, count // most))
        failed = 0
        if not scene.is_once:
            for nth in tried:
                failed += fail(server, act, want, nth, count)
            survival.check()
    if scene.is_once:
        for nth in tried:
            with serve(nth) as (server, act):
                act()
                survival = Survival(server, scene.headers)
                failed += fail(server, act, want, nth, count)
                survival.check()
    print("%s: %d of %d calls of %s on %s failed, %d requests with them" % (name, len(tried), count, call, thread, failed))
    return len(tried), failed
