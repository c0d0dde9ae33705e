"""A headless Chromium, driven through its debugging pipe: no package is needed for that."""

import base64
import json
import os
import subprocess
import tempfile
import threading


class Browser:
    """`with Browser(program) as browser`: one page at a time."""

    def __init__(self, program, timeout=60):
        self.program, self.timeout, self.last = program, timeout, 0

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_end, self.to_browser = os.pipe()
        self.from_browser, write_end = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4.
        shell = f'exec 3<&{read_end} 4>&{write_end}; exec "$0" "$@"'
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
                   "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(["bash", "-c", shell, self.program, *options], pass_fds=(read_end, write_end),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_end)
        os.close(write_end)
        self.answers = os.fdopen(self.from_browser, "rb", buffering=0)
        self.rest, self.events = b"", []
        self.alarm = threading.Timer(self.timeout, self.process.kill)  # a browser that hangs ends the test
        self.alarm.start()
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.page(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.alarm.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        self.answers.close()
        self.profile.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = self.answers.read(1 << 16)
            if not more:
                raise RuntimeError("the browser has ended, or was ended because it hung")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, session=None, **parameters):
        self.last += 1
        command = {"id": self.last, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.to_browser, json.dumps(command).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def page(self, method, **parameters):
        return self.call(method, self.session, **parameters)

    def open(self, url, width, height=900, scale=1, dark=False):
        """Loads a page as a screen of that width shows it."""
        self.events = []
        self.page("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.page("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.page("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def value(self, expression):
        """Of a JavaScript expression in the page."""
        return self.page("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, path, clip=None):
        """The whole page, or clip = (x, y, width, height)."""
        size = self.page("Page.getLayoutMetrics")["cssContentSize"]
        x, y, width, height = clip or (0, 0, size["width"], size["height"])
        picture = self.page("Page.captureScreenshot", captureBeyondViewport=True,
                            clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def pdf(self):
        return base64.b64decode(self.page("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def complaints(self):
        """Errors of the console, exceptions, and requests for anything but the page."""
        self.value("0")  # what happened before has been told by now
        found = []
        for event in self.events:
            what = event["params"]
            if event["method"] == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
            if event["method"] == "Runtime.exceptionThrown" or (event["method"] == "Runtime.consoleAPICalled" and what["type"] == "error"):
                found.append(str(what))
            if event["method"] == "Network.requestWillBeSent" and what["request"]["url"] != what["documentURL"]:
                found.append(f"request for {what['request']['url'][:200]}")
        return found
