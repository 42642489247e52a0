"""Headless Chromium, driven by the DevTools protocol over pipes; needs only the standard library."""
import base64
import contextlib
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time

# Only hanging operations take this long.
PATIENCE_S = 60
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio", "--hide-scrollbars",
         "--remote-debugging-pipe"]


class PageError(AssertionError):
    pass


class Browser:
    """A running Chromium. Messages on its pipes end with a NUL byte; only answers have an id, events have none."""

    def __init__(self, process, to_browser, from_browser):
        self.process = process
        self._out = os.fdopen(to_browser, "wb", buffering=0)
        self._in = os.fdopen(from_browser, "rb")
        self._ids = itertools.count(1)
        self._answers = {}
        self._listeners = []
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        rest = b""
        with contextlib.suppress(OSError, ValueError):
            while chunk := self._in.read1(1 << 20):
                *messages, rest = (rest + chunk).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers[message["id"]].put(message)
                    else:
                        for listener in list(self._listeners):
                            listener(message)

    def command(self, method, session=None, **parameters):
        number = next(self._ids)
        self._answers[number] = queue.Queue()
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        with self._lock:
            self._out.write(json.dumps(message).encode() + b"\0")
        answer = self._answers[number].get(timeout=PATIENCE_S)
        del self._answers[number]
        if "error" in answer:
            raise PageError("%s: %s" % (method, answer["error"]))
        return answer["result"]

    @contextlib.contextmanager
    def page(self, width=1280, height=800, dark=False, script=None):
        """An empty page in its own profile. `script` runs before the scripts of the pages that it opens."""
        context = self.command("Target.createBrowserContext")["browserContextId"]
        target = self.command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._listeners.append(page.hear)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.command(domain + ".enable")
        page.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.prefer_dark(dark)
        if script:
            page.command("Page.addScriptToEvaluateOnNewDocument", source=script)
        try:
            yield page
        finally:
            self._listeners.remove(page.hear)
            self.command("Target.disposeBrowserContext", browserContextId=context)


class Page:
    def __init__(self, browser, session):
        self._browser = browser
        self._session = session
        self.errors = []  # errors in the console
        self.requests = []  # requested addresses

    def hear(self, message):
        if message.get("sessionId") != self._session:
            return
        method, parameters = message["method"], message["params"]
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"] + " " + parameters["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def command(self, method, **parameters):
        return self._browser.command(method, self._session, **parameters)

    def open(self, url):
        self.command("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href === %s" % json.dumps(url))

    def run(self, expression):
        """Evaluates a JavaScript expression and returns its value; awaits promises."""
        answer = self.command("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError("%s: %s" % (expression, details.get("exception", {}).get("description") or details["text"]))
        return answer["result"].get("value")

    def wait(self, expression, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > end:
                raise PageError("after %d s not true: %s; the page says:\n%s\n%s" % (
                    seconds, expression, self.run("document.body.innerText"), self.errors))
            time.sleep(0.05)

    def text(self, selector):
        return self.run("document.querySelector(%s)?.innerText ?? null" % json.dumps(selector))

    def count(self, selector):
        return self.run("document.querySelectorAll(%s).length" % json.dumps(selector))

    def click(self, selector):
        """Clicks with the mouse at the element's centre, which must be visible."""
        box = self.run("""(() => {
            const all = [...document.querySelectorAll(%s)];
            const found = all.at(-1);
            if (!found) return null;
            found.scrollIntoView({block: "nearest"});
            const {x, y, width, height} = found.getBoundingClientRect();
            return {x: x + width / 2, y: y + height / 2};
        })()""" % json.dumps(selector))
        assert box, "nothing to click at %s" % selector
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)

    def press(self, key, modifiers=0):
        """Presses a key. Modifiers: Alt is 1, Control 2, Shift 8."""
        codes = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""), "n": (78, "")}
        code, text = codes[key]
        common = {"key": key, "code": "KeyN" if key == "n" else key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.command("Input.dispatchKeyEvent", type="keyDown", **({"text": text} if text else {}), **common)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.command("Input.insertText", text=text)

    def prefer_dark(self, dark):
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path, quality=82):
        options = {"format": "png"} if path.suffix == ".png" else {"format": "webp", "quality": quality}
        image = self.command("Page.captureScreenshot", **options)["data"]
        path.write_bytes(base64.b64decode(image))


@contextlib.contextmanager
def chromium():
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no chromium: tools/install_packages.sh web"
    for_browser, to_browser = os.pipe()
    from_browser, of_browser = os.pipe()

    def place_pipes():
        # Chromium reads commands from descriptor 3 and writes to 4; duplicate the pipes' ends first, because their
        # descriptors may already be 3 or 4.
        reader, writer = os.dup(for_browser), os.dup(of_browser)
        os.dup2(reader, 3)
        os.dup2(writer, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([program, *FLAGS, "--user-data-dir=" + profile, "about:blank"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=place_pipes)
        os.close(for_browser)
        os.close(of_browser)
        try:
            yield Browser(process, to_browser, from_browser)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
