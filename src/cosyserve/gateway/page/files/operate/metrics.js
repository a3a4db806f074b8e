// Prometheus' text format, and what can be computed of two readings of it.

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** One reading of /metrics. */
export class Reading {
  samples = []; // { name, labels, value }
  help = new Map();
  types = new Map();

  constructor(text, at) {
    this.at = at; // seconds
    for (const line of text.split("\n")) {
      const [, kind, name, rest] = /^# (HELP|TYPE) (\S+) (.*)/.exec(line) ?? [];
      if (kind) (kind === "HELP" ? this.help : this.types).set(name, rest);
      const sample = kind ? null : SAMPLE.exec(line);
      if (sample) this.#add(sample);
    }
  }

  #add([, name, labels = "", value]) {
    const pairs = [...labels.matchAll(LABEL)].map(([, label, text]) => [label, text]);
    this.samples.push({ name, labels: Object.fromEntries(pairs), value: Number(value.replace("Inf", "Infinity")) });
  }

  /** The samples of a name whose labels pass. */
  of(name, passes = () => true) {
    return this.samples.filter((sample) => sample.name === name && passes(sample.labels));
  }

  has(name) {
    return this.samples.some((sample) => sample.name === name);
  }

  sum(name, passes) {
    return this.of(name, passes).reduce((total, { value }) => total + value, 0);
  }
}

/** How much a counter grew; one that began anew has grown from zero. */
export function growth(before, now, name, passes) {
  const [old, current] = [before?.sum(name, passes) ?? 0, now.sum(name, passes)];
  return current < old ? current : current - old;
}

/** A quantile of what a histogram saw between two readings, as Prometheus estimates it. */
export function quantile(before, now, name, share) {
  const bounds = [...new Set(now.of(`${name}_bucket`).map(({ labels }) => labels.le))];
  const upTo = (bound) => growth(before, now, `${name}_bucket`, ({ le }) => le === bound);
  const counts = bounds.map((bound) => [Number(bound.replace("+Inf", "Infinity")), upTo(bound)]);
  const rank = share * (counts.at(-1)?.[1] ?? 0);
  if (!rank) return null;
  const place = counts.findIndex(([, count]) => count >= rank);
  const [low, below] = place ? counts[place - 1] : [0, 0];
  const [high, count] = counts[place];
  return high === Infinity ? low : low + ((high - low) * (rank - below)) / (count - below);
}
