# SPDX-License-Identifier: BSD-3-Clause
"""Report pages in a real browser: on a phone the first table shows its figures, nothing is wider
than the screen and letters stay readable; on a screen of 1280 px no table is cut; print is as wide
as A4 and cuts no figure. Called with a Chromium and the folder of pages that check_report.py has
left."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Elements that stick out of the page; what lies in a box that scrolls by itself may.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre'))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + '.' + (e.className.baseVal ?? e.className)).slice(0, 5).join(' ')"""
# Figures of the first row of the first table that a screen shows without scrolling, and tables that
# have to be scrolled.
SHOWN = """[...(document.querySelector('tbody tr') ?? document.body).querySelectorAll('td')]
  .filter(e => e.getBoundingClientRect().right <= document.documentElement.clientWidth).length"""
CUT = """[...document.querySelectorAll('.scroll')]
  .filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.getAttribute('aria-label')).join(', ')"""
# Tables whose last figures cannot be scrolled into sight.
HIDDEN = """[...document.querySelectorAll('.scroll')]
  .filter(e => {
    e.scrollLeft = 1e6;
    const last = e.querySelector('tr:last-child td:last-child');
    return last && last.getBoundingClientRect().right > document.documentElement.clientWidth;
  })
  .map(e => e.getAttribute('aria-label')).join(', ')"""
# Height in pixels of the letters of 9 points in figures that a phone shows at its width. CSS takes
# 3/4 of a point for a pixel.
SMALLEST = """Math.min(99, ...[...document.querySelectorAll('figure:not(.wide) img')]
  .map(e => 12 * e.clientWidth / e.naturalWidth))"""
# Texts of a drawing that are drawn over other texts of it.
COLLISIONS = """(() => {
  const boxes = [...document.querySelectorAll('text')]
    .map(t => [t.textContent, t.getBoundingClientRect()]);
  const overlap = (p, q) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2
    && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4;
  const pairs = boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
    .filter(([b, q]) => overlap(p, q)).map(([b]) => a + ' | ' + b));
  return pairs.slice(0, 5).join('; ');
})()"""
# Smallest contrast of texts against their background (WCAG: 4.5 and more).
CONTRAST = """(() => {
  const light = c => {
    const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const back = e => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(c)) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = 'p, li, td, th, span, b, a, h1, h2, h3, figcaption, caption, summary, pre';
  let worst = [99, ''];
  for (const e of document.querySelectorAll(texts)) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.tagName + ' ' + e.textContent.slice(0, 40)];
  }
  return worst; })()"""


class Browser:
    """A headless Chromium, driven through its debugging pipe: no package is needed for that."""

    def __init__(self, program):
        self.profile, self.last, self.rest = (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True),
            0,
            b"",
        )
        commands, self.to_browser = os.pipe()
        self.answers, results = os.pipe()
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            f"--user-data-dir={self.profile.name}",
            "--remote-debugging-pipe",
            "about:blank",
        ]
        # Chromium reads commands from descriptor 3 and writes to 4; one that hangs ends by itself.
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec 3<&{commands} 4>&{results}; exec timeout 300 "$0" "$@"',
                program,
                *options,
            ],
            pass_fds=(commands, results),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(results)
        self.session = None
        target = next(
            t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"
        )
        self.session = self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        self.call("Page.enable")

    def message(self):
        while b"\0" not in self.rest:
            self.rest += os.read(self.answers, 1 << 16) or sys.exit(
                "the browser has ended, or was ended because it hung"
            )
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, until="id", **parameters):
        """The answer of a command, or the event that it waits for."""
        self.last += 1
        command = {"id": self.last, "method": method, "params": parameters} | (
            {"sessionId": self.session} if self.session else {}
        )
        os.write(self.to_browser, json.dumps(command).encode() + b"\0")
        while True:
            answer = self.message()
            assert "error" not in answer, f"{method}: {answer}"
            if answer.get("method") == until or (until == "id" and answer.get("id") == self.last):
                return answer.get("result")

    def open(self, url, width, dark=False):
        """Loads a page as a screen of that width shows it."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call(
            "Emulation.setEmulatedMedia",
            media="",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Page.navigate", until="Page.loadEventFired", url=url)

    def value(self, expression):
        """Of a JavaScript expression in the page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)[
            "result"
        ].get("value")


def check_screen(browser, url, width, dark=False):
    def check(condition, message):
        assert condition, f"{url} at {width} px{', dark' if dark else ''}: {message}"

    browser.open(url, width, dark)
    check(
        browser.value("document.documentElement.scrollWidth") <= width
        and not browser.value(TOO_WIDE),
        f"too wide: {browser.value(TOO_WIDE)}",
    )
    check(browser.value(SMALLEST) >= 9, f"letters of {browser.value(SMALLEST)} px")
    check(browser.value(CONTRAST)[0] >= 4.5, f"contrast {browser.value(CONTRAST)}")
    if browser.value("!!document.querySelector('tbody tr td')"):
        check(browser.value(SHOWN) >= 2, "the first table hides its figures")
    check(not browser.value(HIDDEN), f"figures out of reach: {browser.value(HIDDEN)}")
    check(width < 1280 or not browser.value(CUT), f"cut: {browser.value(CUT)}")


def check_print(browser, url):
    browser.open(url, 1280)
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        width=703,
        height=1017,
        deviceScaleFactor=1,
        mobile=False,
    )  # A4 without its margins
    assert not browser.value(TOO_WIDE), f"{url} in print: {browser.value(TOO_WIDE)}"
    for boxes, limit in (
        ("section:not([aria-labelledby=cases]) .scroll > *", 703),
        ("[aria-labelledby=cases] .scroll > *", 1031),
    ):  # the cases lie across
        wide = browser.value(
            f"Math.max(0, ...[...document.querySelectorAll('{boxes}')]"
            ".map(e => e.getBoundingClientRect().right))"
        )
        assert wide <= limit + 1, f"{url} in print: {boxes} ends at {wide} px"
    tall = browser.value(
        "Math.max(0, ...[...document.querySelectorAll('figure')]"
        ".map(e => e.getBoundingClientRect().height))"
    )
    assert tall <= 1017, f"{url} in print: a figure is {tall} px high, more than a page"


def check_drawings(browser, url):
    browser.open(url, 1280)
    for number, drawing in enumerate(
        browser.value("[...document.querySelectorAll('img')].map(e => e.src)")
    ):
        browser.open(drawing, 1280)
        assert not browser.value(
            COLLISIONS
        ), f"{url}, drawing {number}: texts over each other: {browser.value(COLLISIONS)}"


browser = Browser(sys.argv[1])
try:
    pages = sorted(pathlib.Path(sys.argv[2]).resolve().glob("*.html"))
    assert len(pages) > 5, f"no pages in {sys.argv[2]}"
    for page in pages:
        for width, dark in ((390, False), (1280, False), (390, True)):
            check_screen(browser, page.as_uri(), width, dark)
        check_print(browser, page.as_uri())
        check_drawings(browser, page.as_uri())
finally:
    browser.process.kill()
    browser.process.wait()
    browser.profile.cleanup()
