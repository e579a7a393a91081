"""Drives headless Chromium through its debugging pipe: the standard library alone.

A call waits for a state of the page, never for a time: `until` asks until the page says so, and fails after a
limit that only a broken page reaches."""

import base64
import json
import os
import shutil
import subprocess
import time

LIMIT_S = 240
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"]


def find():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return None


class Failure(Exception):
    pass


class Browser:
    def __init__(self, program, folder, flags=()):
        to_us, from_browser = os.pipe()
        to_browser, from_us = os.pipe()
        os.makedirs(folder, exist_ok=True)

        def wire():  # in the child: 3 is read, 4 is written
            ends = os.dup(to_browser), os.dup(from_browser)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.log = open(os.path.join(folder, "browser.log"), "wb")
        self.process = subprocess.Popen(
            [program, *FLAGS, *flags, "--user-data-dir=" + os.path.join(folder, "profile"), "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=dict(os.environ, HOME=folder))
        os.close(to_browser)
        os.close(from_browser)
        self.reader, self.writer = to_us, from_us
        self.buffer = b""
        self.next = 0
        self.errors = []  # console messages of pages, and exceptions
        self.requests = []

    def close(self):
        try:
            self.call("Browser.close")
        except (Failure, OSError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        self.log.close()

    def read(self):
        while b"\0" not in self.buffer:
            part = os.read(self.reader, 1 << 20)
            if not part:
                raise Failure("the browser ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.next += 1
        mine = self.next
        message = {"id": mine, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            reply = self.read()
            if reply.get("id") == mine:
                if "error" in reply:
                    raise Failure("%s: %s" % (method, reply["error"]))
                return reply["result"]
            self.note(reply)

    def note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded":
            entry = params["entry"]
            if entry["level"] == "error":
                self.errors.append("%s %s" % (entry["text"], entry.get("url", "")))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def page(self, url, width=1440, height=900, dark=False, language="en-US"):
        return Page(self, url, width, height, dark, language)


class Page:
    def __init__(self, browser, url, width, height, dark, language):
        self.browser = browser
        context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setUserAgentOverride", userAgent="brim-test", acceptLanguage=language)
        self.call("Page.navigate", url=url)

    def call(self, method, **params):
        return self.browser.call(method, session=self.session, **params)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def run(self, script):
        """The value of a JavaScript expression; waits for promises."""
        reply = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                          userGesture=True)
        if "exceptionDetails" in reply:
            details = reply["exceptionDetails"]
            raise Failure("%s: %s" % (script, details.get("exception", {}).get("description") or details["text"]))
        return reply["result"].get("value")

    def until(self, script, limit=LIMIT_S):
        """Waits until the expression is true, and returns its value."""
        end = time.monotonic() + limit
        while True:
            try:
                value = self.run(script)
            except Failure:
                value = None  # the page is being replaced
            if value:
                return value
            if time.monotonic() > end:
                text = self.run("document.body ? document.body.innerText.slice(0, 2000) : ''")
                raise Failure("never true: %s\nerrors: %s\nthe page: %s" % (script, self.browser.errors, text))
            time.sleep(0.05)

    def click(self, selector):
        self.until("!!document.querySelector(%s)" % json.dumps(selector))
        self.run("document.querySelector(%s).click()" % json.dumps(selector))

    def click_text(self, selector, text):
        script = "[...document.querySelectorAll(%s)].find(e => e.textContent.trim().startsWith(%s))" % (
            json.dumps(selector), json.dumps(text))
        self.until("!!" + script)
        self.run(script + ".click()")

    def type(self, selector, text):
        self.until("!!document.querySelector(%s)" % json.dumps(selector))
        self.run("document.querySelector(%s).focus()" % json.dumps(selector))
        self.call("Input.insertText", text=text)

    def key(self, key):
        params = {"key": key, "code": key}
        codes = {"Enter": 13, "Escape": 27}
        if key in codes:
            params["windowsVirtualKeyCode"] = codes[key]
        if key == "Enter":
            params["text"] = "\r"
        if len(key) == 1:
            params["text"] = key
        self.call("Input.dispatchKeyEvent", type="keyDown", **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))
