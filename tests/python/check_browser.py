# SPDX-License-Identifier: BSD-3-Clause
"""Report pages in a real browser: on a phone the first table shows its figures, nothing is wider
than the screen and letters stay readable; on a screen of 1280 px no table is cut; print is as wide
as A4 and cuts no figure. Called with a Chromium and the folder of pages that check_report.py has
left."""

import json
import pathlib
import subprocess
import sys
import tempfile

# Each of these finds what is wrong, as a text, and "" if nothing is.
# Elements that stick out of the page; what lies in a box that scrolls by itself may.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre'))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + '.' + (e.className.baseVal ?? e.className)).slice(0, 5).join(' ')
  || (document.documentElement.scrollWidth > document.documentElement.clientWidth ? 'all' : '')"""
# The first row of the first table, if a screen shows less than two of its figures.
UNSEEN = """(cells => cells.length && cells
    .filter(e => e.getBoundingClientRect().right <= document.documentElement.clientWidth)
    .length < 2 ? 'the first table' : '')(
  [...(document.querySelector('tbody tr') ?? document.head).querySelectorAll('td')])"""
# Tables that have to be scrolled.
CUT = """[...document.querySelectorAll('.scroll')]
  .filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => e.getAttribute('aria-label')).join(', ')"""
# Tables whose last figures cannot be scrolled into sight.
OUT_OF_REACH = """[...document.querySelectorAll('.scroll')]
  .filter(e => {
    e.scrollLeft = 1e6;
    const last = e.querySelector('tr:last-child td:last-child');
    return last && last.getBoundingClientRect().right > document.documentElement.clientWidth;
  })
  .map(e => e.getAttribute('aria-label')).join(', ')"""
# Figures whose letters of 9 points, which are 12 pixels of CSS, are shown with less than 9.
SMALL = """[...document.querySelectorAll('figure:not(.wide) img')]
  .filter(e => 12 * e.clientWidth / e.naturalWidth < 9).map(e => e.alt).join(', ')"""
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
# Texts with less contrast against their background than WCAG demands.
PALE = """(() => {
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
  return [...document.querySelectorAll(texts)]
    .filter(e => e.textContent.trim() && e.getClientRects().length)
    .filter(e => {
      const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05) < 4.5;
    })
    .map(e => e.tagName + ' ' + e.textContent.slice(0, 40)).slice(0, 5).join('; '); })()"""
# On paper: tables that are wider than a page (those of the cases lie across), and figures that are
# higher.
OFF_PAPER = """[...document.querySelectorAll('.scroll > *')]
  .filter(e => e.getBoundingClientRect().right
    > (e.closest('[aria-labelledby=cases]') ? 1032 : 704))
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40)).join('; ')
  + [...document.querySelectorAll('figure')]
  .filter(e => e.getBoundingClientRect().height > 1017).map(e => e.textContent).join('; ')"""
SCREEN = (TOO_WIDE, UNSEEN, OUT_OF_REACH, SMALL, PALE)
PAPER = 703, 1017  # pixels of A4 without its margins


class Browser:
    """A headless Chromium, driven through its debugging pipe: no package is needed for that."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.last, self.rest, self.session = 0, b"", {}
        # Chromium reads commands from descriptor 3 and writes to 4; one that hangs ends by itself.
        start = 'exec 3<&0 4>&1 1>&2; exec timeout 300 "$0" "$@"'
        options = (
            "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run "
            "--disable-background-networking --disable-dev-shm-usage --remote-debugging-pipe "
            f"--user-data-dir={self.profile.name} about:blank"
        )
        self.process = subprocess.Popen(
            ["bash", "-c", start, program, *options.split()],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        targets = self.call("Target.getTargets")["targetInfos"]
        (page,) = (target["targetId"] for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        self.call("Page.enable")

    def message(self):
        while b"\0" not in self.rest:
            self.rest += self.process.stdout.read(1 << 16) or sys.exit(
                "the browser has ended, or was ended because it hung"
            )
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, until="id", **parameters):
        """The answer of a command, or the event that it waits for."""
        self.last += 1
        command = {"id": self.last, "method": method, "params": parameters} | self.session
        self.process.stdin.write(json.dumps(command).encode() + b"\0")
        while True:
            answer = self.message()
            assert "error" not in answer, f"{method}: {answer}"
            if answer.get("method") == until or (until == "id" and answer.get("id") == self.last):
                return answer.get("result")

    def open(self, url, width, height=900, media="", scheme="light"):
        """Loads a page as a screen of that size, or paper, shows it."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.call("Page.navigate", until="Page.loadEventFired", url=url)

    def value(self, expression):
        """Of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"]["value"]

    def check(self, expressions, url, width, *where):
        self.open(url, width, *where)
        faults = [(one.split("\n")[0], self.value(one)) for one in expressions]
        faults = [(one, found) for one, found in faults if found]
        assert not faults, (url, width, *where, faults)


def check_page(browser, url):
    browser.check(SCREEN, url, 390)
    browser.check(SCREEN, url, 390, 900, "", "dark")
    browser.check((TOO_WIDE, OFF_PAPER), url, *PAPER, "print")
    browser.check((*SCREEN, CUT), url, 1280)
    for drawing in browser.value("[...document.querySelectorAll('img')].map(e => e.src)"):
        browser.check([COLLISIONS], drawing, 1280)


browser = Browser(sys.argv[1])
try:
    pages = sorted(pathlib.Path(sys.argv[2]).resolve().glob("*.html"))
    assert len(pages) > 5, f"no pages in {sys.argv[2]}"
    for page in pages:
        check_page(browser, page.as_uri())
finally:
    browser.process.kill()
    browser.process.wait()
    browser.profile.cleanup()
