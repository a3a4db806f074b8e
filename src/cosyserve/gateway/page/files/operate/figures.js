// What an operator wants to know first, from two readings of the metrics.

import { growth, quantile } from "./metrics.js";

const rounded = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const inMilliseconds = (seconds) => Math.round(1000 * seconds).toLocaleString("en");

/** Figures as { title, value, unit, detail, level, bad }; one whose metric is missing is left out. */
export function figures(before, now) {
  return [
    engine(now),
    running(now),
    firstAudio(before, now),
    factor(before, now),
    requests(before, now),
    audio(before, now),
    refusals(before, now),
    late(now),
    connections(now),
  ].filter(Boolean);
}

function engine(now) {
  if (!now.has("cosyserve_ready")) return null;
  const away = now.of("cosyserve_ready").filter(({ value }) => !value).map(({ labels }) => labels.model);
  const sessions = `sessions since its start: ${rounded(now.sum("cosyserve_sessions_total"))}`;
  const detail = away.length ? away.join(", ") : sessions;
  return { title: "Engine", value: away.length ? "Not ready" : "Ready", detail, bad: away.length > 0 };
}

function running(now) {
  if (!now.has("cosyserve_running")) return null;
  const value = now.sum("cosyserve_running");
  const waiting = now.sum("cosyserve_waiting");
  return { title: "Running", value: rounded(value), detail: `${rounded(waiting)} waiting`, level: value };
}

/** Quantiles of the last minute, or since the start where nothing was heard in it. */
function seen(before, now, name) {
  const recent = before && growth(before, now, `${name}_count`) > 0;
  const at = (share) => quantile(recent ? before : null, now, name, share);
  return { median: at(0.5), tail: at(0.95), when: recent ? "last minute" : "since the start" };
}

function firstAudio(before, now) {
  const { median, tail, when } = seen(before, now, "cosyserve_first_audio_seconds");
  if (median === null) return { title: "First audio", value: "–", detail: "nothing was spoken yet" };
  return {
    title: "First audio",
    value: inMilliseconds(median),
    unit: "ms",
    detail: `95 % within ${inMilliseconds(tail)} ms, ${when}`,
    level: 1000 * median,
  };
}

function factor(before, now) {
  const { median, tail, when } = seen(before, now, "cosyserve_real_time_factor");
  if (median === null) return null;
  return {
    title: "Real-time factor",
    value: median.toFixed(2),
    detail: `95 % within ${tail.toFixed(2)}, ${when}`,
    bad: median > 1,
  };
}

/** How much a counter grew between the readings, and in how many seconds that was. */
function grown(before, now, name, passes) {
  if (!before) return { value: "–" };
  const level = growth(before, now, name, passes);
  return { value: rounded(level), unit: `in ${Math.round(now.at - before.at)} s`, level };
}

function requests(before, now) {
  const name = "cosyserve_request_seconds_count";
  const spoken = ({ route = "" }) => route.startsWith("/v1/audio/speech");
  const detail = `for speech; ${rounded(now.sum(name, spoken))} since the start`;
  return { title: "Requests", ...grown(before, now, name, spoken), detail };
}

function audio(before, now) {
  const name = "cosyserve_audio_seconds_total";
  const { unit = "", ...rest } = grown(before, now, name);
  const detail = `sent; ${rounded(now.sum(name))} s since the start`;
  return { title: "Audio", ...rest, unit: `s ${unit}`, detail };
}

function refusals(before, now) {
  const name = "cosyserve_refusals_total";
  const reasons = now.of(name).sort((a, b) => b.value - a.value).slice(0, 3)
    .map(({ labels, value }) => `${labels.reason} ${rounded(value)}`);
  const detail = reasons.join(", ") || "none since the start";
  return { title: "Refused", ...grown(before, now, name), detail };
}

function late(now) {
  const value = now.sum("cosyserve_underruns_total");
  return { title: "Late chunks", value: rounded(value), detail: "heard as gaps, since the start" };
}

function connections(now) {
  if (!now.has("cosyserve_connections")) return null;
  const value = now.sum("cosyserve_connections");
  return { title: "WebSockets", value: rounded(value), detail: "open now", level: value };
}
