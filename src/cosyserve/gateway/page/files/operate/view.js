// The view for operators: figures of the last minute, read from /metrics while it is seen.

import { by, make } from "../elements.js";
import { ask } from "../server.js";
import { figures } from "./figures.js";
import { Reading } from "./metrics.js";

const EVERY = 2; // seconds
const WINDOW = 60; // seconds that rates and quantiles are of
const KEPT = 150; // readings: five minutes

export function openOperateView() {
  const readings = [];
  const lines = new Map(); // past values by figure
  let timer = 0;

  const read = async () => {
    if (document.hidden) return;
    try {
      const text = await (await ask("metrics", { cache: "no-store" })).text();
      readings.push(new Reading(text, performance.now() / 1000));
      if (readings.length > KEPT) readings.shift();
      show();
      by("no-figures").hidden = true;
    } catch (error) {
      by("no-figures").textContent = error.message;
      by("no-figures").hidden = false;
    }
  };
  const show = () => {
    const now = readings.at(-1);
    const before = readings.find(({ at }) => at >= now.at - WINDOW);
    const cards = figures(before === now ? null : before, now);
    by("figures").replaceChildren(...cards.map((figure) => card(figure, remember(figure))));
    by("metrics").replaceChildren(...rows(now));
  };
  const remember = ({ title, level }) => {
    if (level === undefined) return [];
    const line = lines.get(title) ?? [];
    lines.set(title, [...line, level].slice(-KEPT));
    return lines.get(title);
  };

  document.addEventListener("visibilitychange", () => timer && read());
  return {
    /** Begins to read, or leaves off. */
    watch(on) {
      clearInterval(timer);
      timer = on ? setInterval(read, 1000 * EVERY) : 0;
      if (on) read();
    },
  };
}

function card({ title, value, unit = "", detail = "", bad = false }, line) {
  const number = make("dd", { className: "number" }, value);
  if (unit) number.append(" ", make("small", { textContent: unit }));
  const made = make("dl", { className: bad ? "figure bad" : "figure" }, make("dt", { textContent: title }), number);
  if (detail) made.append(make("dd", { className: "quiet", textContent: detail }));
  if (line.length > 1) made.append(make("dd", { ariaHidden: "true" }, sparkline(line)));
  return made;
}

function sparkline(values) {
  const space = "http://www.w3.org/2000/svg";
  const [drawing, path] = ["svg", "polyline"].map((name) => document.createElementNS(space, name));
  const most = Math.max(1, ...values);
  drawing.setAttribute("viewBox", `0 0 ${KEPT} 24`);
  drawing.setAttribute("preserveAspectRatio", "none");
  const begin = KEPT - values.length;
  path.setAttribute("points", values.map((value, x) => `${begin + x},${23 - (22 * value) / most}`).join(" "));
  drawing.append(path);
  return drawing;
}

/** Every metric but the buckets of histograms, which are for programs. */
function rows({ samples, help, types }) {
  const family = (name) => [name, name.replace(/_(total|count|sum|created)$/, "")].find((one) => types.has(one));
  return samples
    .filter(({ name }) => !/_(bucket|created)$/.test(name))
    .map(({ name, labels, value }) => make("tr", {},
      make("th", { scope: "row" }, make("code", {}, name), ...tags(labels)),
      make("td", { textContent: help.get(family(name) ?? name) ?? "" }),
      make("td", { className: "count", textContent: value.toLocaleString("en", { maximumFractionDigits: 3 }) })));
}

const tags = (labels) => Object.entries(labels).map(([name, value]) =>
  make("span", { className: "tag", textContent: `${name} ${value}` }));
