"""Whom the page shuts out: nobody by eyes, hands, light, or a small screen."""

from __future__ import annotations

import pytest

from tests.gateway.page.chromium import Page
from tests.gateway.serving import Running

OPEN = {
    "operate": ("location.hash = '#operate'", "document.querySelector('.figure')"),
    "speak": ("location.hash = '#speak'", "!document.querySelector('#speak-view').hidden"),
    "dialog": ("document.querySelector('#add-voice').click()", "document.querySelector('[open]')"),
}
# Every text that is seen with less contrast to what lies behind it than WCAG's AA asks for.
PALE = """(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => channels(color).slice(0, 3)
    .map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    const clear = channels(color)[3] === 0 && element.parentElement;
    return clear ? behind(element.parentElement) : color;
  };
  const pale = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const seen = element.checkVisibility() && !element.closest(".unseen, [aria-hidden], noscript");
    if (!walk.currentNode.textContent.trim() || !seen) continue;
    const [one, other] = [light(getComputedStyle(element).color), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) pale.push([walk.currentNode.textContent, ratio]);
  }
  return pale;
})()"""
NEED_NAMES = {"button", "link", "textbox", "combobox", "slider", "spinbutton", "checkbox", "image"}


def show(page: Page, view: str) -> None:
    script, shown = OPEN[view]
    page.run(script)
    page.wait_for(shown)


def test_everything_has_a_role_and_a_name(server: Running, page: Page) -> None:
    for view in OPEN:
        show(page, view)
        tree = page.call("Accessibility.getFullAXTree")["nodes"]
        seen = [node for node in tree if not node["ignored"]]
        roles = {node["role"]["value"] for node in seen}
        named = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in seen]
        assert [role for role, name in named if role in NEED_NAMES and not name] == []
        expected = {"dialog"} if view == "dialog" else {"banner", "navigation", "main"}
        assert {"heading"} | expected <= roles
    assert (
        page.run(
            """[...document.querySelectorAll("[id]")].filter(
            (element, _, all) => all.some((other) => other !== element && other.id === element.id)
        ).length"""
        )
        == 0
    )
    assert (
        page.run(
            """["aria-labelledby", "aria-describedby", "for"].flatMap((name) =>
            [...document.querySelectorAll(`[${name}]`)].map((element) => element.getAttribute(name))
        ).filter((id) => !document.getElementById(id))"""
        )
        == []
    )


def test_texts_stand_out_by_day_and_by_night(server: Running, page: Page) -> None:
    server.behave(ready=False)  # a figure that is bad news
    page.click("#speak")  # a problem is shown
    for view in OPEN:
        show(page, view)
        grounds = set()
        for scheme in ("light", "dark"):
            page.prefer(scheme)
            page.run("Promise.all(document.getAnimations().map((one) => one.finished))")
            assert page.run(PALE) == []
            grounds.add(page.run("getComputedStyle(document.body).backgroundColor"))
        assert len(grounds) == 2


def test_it_fits_a_telephone(server: Running, page: Page) -> None:
    page.resize(width=360, height=720)
    page.click("#text")
    page.type("Averylongwordwithoutanyplacewhereitcouldbreakatall " * 5)
    page.click("#speak")
    for view in OPEN:
        show(page, view)
        wide = page.run(
            """[...document.querySelectorAll("body *")]
            .filter((e) => e.checkVisibility() && !e.closest(".skip, .scroll, .unseen, svg"))
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5)
            .map((e) => e.outerHTML.slice(0, 99))"""
        )
        assert wide == []
        assert page.run("document.documentElement.scrollWidth <= innerWidth")


def test_the_keyboard_reaches_everything_in_order(page: Page) -> None:
    page.run(
        """window.reachable = [...document.querySelectorAll(
            "a, button, input, select, textarea, summary, [tabindex='0']"
        )].filter((e) => e.checkVisibility() && !e.closest("dialog"))"""
    )
    reached = []
    for _ in range(page.run("window.reachable.length")):
        page.press("Tab", 9)
        place, name, seen = page.run(
            """(() => {
                const element = document.activeElement;
                const { outlineStyle, outlineWidth } = getComputedStyle(element);
                const sheet = getComputedStyle(document.querySelector(".sheet"));
                const seen = element.id === "text"
                    ? sheet.borderColor === getComputedStyle(document.querySelector("a")).color
                    : outlineStyle === "solid" && outlineWidth === "2px";
                return [window.reachable.indexOf(element), element.outerHTML.slice(0, 99), seen];
            })()"""
        )
        assert seen, f"{name}: the focus is not seen"
        reached.append(place)
    assert reached == list(range(len(reached)))  # as they are read
    assert len(reached) > 20


def test_figures_of_the_server(server: Running, page: Page) -> None:
    show(page, "operate")
    for _ in range(3):
        server.say()
    server.say(speed=9)
    page.wait_for("/Requests\\s+4 in/.test(document.querySelector('.figures').innerText)")
    figures = page.run(
        """Object.fromEntries([...document.querySelectorAll(".figure")].map(
            (one) => [one.querySelector("dt").textContent, one.innerText]))"""
    )
    assert "Ready" in figures["Engine"]
    assert " ms" in figures["First audio"]
    assert "1 in " in figures["Refused"]
    assert "invalid_value" in figures["Refused"]
    page.click("summary")
    rows = page.text("#metrics")
    assert "cosyserve_refusals_total" in rows
    assert "Requests answered with an error." in rows
    server.behave(ready=False)
    page.wait_for("document.querySelector('.bad')?.innerText.includes('Not ready')")
    page.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
    page.wait_for("!document.querySelector('#no-figures').hidden")
    assert page.text("#no-figures").startswith("The server doesn't answer.")


def test_quantiles_are_those_of_prometheus(page: Page) -> None:
    values = page.run(
        """import("/page/operate/metrics.js").then(({ Reading, growth, quantile }) => {
            const text = (...counts) => ["0.1", "0.2", "+Inf"]
                .map((le, i) => `h_bucket{le="${le}"} ${counts[i]}.0`).join("\\n");
            const [before, now] = [new Reading(text(1, 1, 1), 0), new Reading(text(1, 5, 6), 1)];
            const odd = new Reading('c_total{reason="a\\\\"}b"} 2.0\\nc_total{reason="x"} 1e3', 0);
            return [
                quantile(null, now, "h", 0.5), quantile(before, now, "h", 0.5),
                quantile(before, now, "h", 0.99), quantile(now, now, "h", 0.5),
                quantile(now, now, "none", 0.5), odd.sum("c_total"), odd.samples[0].labels.reason,
                growth(now, before, "h_bucket"),
            ];
        })"""
    )
    assert values == pytest.approx([0.15, 0.1625, 0.2, None, None, 1002, 'a\\"}b', 3])
