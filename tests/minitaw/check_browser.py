"""Report pages in a real browser: on a phone nothing is wider than the screen and letters stay readable, nobody complains, nothing is
fetched, print is A4 and cuts no figure. Called with a Chromium and the folder of pages that check_report.py has left."""

import pathlib
import re
import sys
import time

CHROMIUM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
sys.dont_write_bytecode = True

from browser import Browser  # noqa: E402

# Elements that stick out of the page; what lies in a box that scrolls by itself may.
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre'))
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(e => e.tagName + '.' + (e.className.baseVal ?? e.className)).slice(0, 5).join(' ')"""
# Height in pixels of the smallest letters of figures that a phone shows at its width.
SMALLEST = """Math.min(...[...document.querySelectorAll('figure svg[role=img] text')].filter(e => !e.closest('.wide')
  && e.textContent).map(e => parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b)))"""
# Texts of figures that are drawn over other texts of the same figure.
COLLISIONS = """[...document.querySelectorAll('figure svg[role=img]')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2
    && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4).map(([b]) => a + ' | ' + b)); }).slice(0, 5).join('; ')"""
# Smallest contrast of texts against their background (WCAG: 4.5 and more).
CONTRAST = """(() => {
  const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/rgba\\(.*, 0\\)/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('p, li, td, th, span, b, a, h1, h2, h3, figcaption, caption, summary, pre, svg text')) {
    if (!e.textContent.trim() || !e.getClientRects().length || e.closest('.wide svg')) continue; // a timeline writes into its boxes
    const style = getComputedStyle(e), ink = e.tagName === 'text' ? style.fill : style.color;
    const [a, b] = [light(ink), light(back(e))].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.tagName + ' ' + e.textContent.slice(0, 40)];
  }
  return worst; })()"""


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def check_screen(browser, url, width, dark=False):
    browser.open(url, width, dark=dark)
    where = f"{url} at {width} px{', dark' if dark else ''}"
    wide = browser.value("document.documentElement.scrollWidth")
    check(wide <= width, f"{where}: {wide} px wide because of {browser.value(TOO_WIDE)}")
    check(not browser.value(TOO_WIDE), f"{where}: {browser.value(TOO_WIDE)}")
    check(not browser.complaints(), f"{where}: {browser.complaints()}")
    smallest = browser.value(SMALLEST)
    check(smallest is None or smallest >= 9, f"{where}: letters of {smallest} px")
    check(not browser.value(COLLISIONS), f"{where}: texts over each other: {browser.value(COLLISIONS)}")
    ratio, text = browser.value(CONTRAST)
    check(ratio >= 4.5, f"{where}: contrast {ratio:.2f} of {text!r}")


def check_print(browser, url):
    browser.open(url, 1280)
    pdf = browser.pdf()
    check(pdf.startswith(b"%PDF"), "no PDF")
    sizes = {tuple(round(float(v)) for v in box) for box in re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)}
    check(sizes and all(abs(min(size) - 595) <= 1 and abs(max(size) - 842) <= 1 for size in sizes), f"not A4: {sizes}")
    browser.page("Emulation.setEmulatedMedia", media="print")
    browser.page("Emulation.setDeviceMetricsOverride", width=703, height=1017, deviceScaleFactor=1, mobile=False)  # A4 without its margins
    check(not browser.value(TOO_WIDE), f"{url} in print: {browser.value(TOO_WIDE)}")
    for boxes, limit in ((".scroll > :not(.cases)", 703), (".scroll > .cases", 1031)):  # the cases lie across
        wide = browser.value(f"Math.max(0, ...[...document.querySelectorAll('{boxes}')].map(e => e.getBoundingClientRect().right))")
        check(wide <= limit + 1, f"{url} in print: {boxes} ends at {wide} px")
    tall = browser.value("Math.max(0, ...[...document.querySelectorAll('figure')].map(e => e.getBoundingClientRect().height))")
    check(tall <= 1017, f"{url} in print: a figure is {tall} px high, more than a page")
    browser.page("Emulation.setEmulatedMedia", media="")


pages = sorted(FOLDER.glob("*.html"))
check(len(pages) > 5, f"no pages in {FOLDER}")
with Browser(CHROMIUM, timeout=300) as browser:
    for page in pages:
        began = time.monotonic()
        for width in (390, 1280):
            check_screen(browser, page.as_uri(), width)
        check_screen(browser, page.as_uri(), 390, dark=True)
        check_print(browser, page.as_uri())
        print(page.name, f"{time.monotonic() - began:.1f} s", flush=True)
