// Plays samples as they come, one piece exactly behind the other.

// Seconds between scheduling and hearing: at first few, so that no beginning is lost; behind a gap
// more, so that the next piece is not late, too.
const LEAD = 0.03;
const LEAD_BEHIND_GAP = 0.3;

export class Player {
  #context;
  #rate;
  #pieces = []; // { at, from, to }: time of the context, and seconds of the speech
  #sources = new Set();

  /** Call it in a user's gesture: browsers let no page make a sound before. */
  constructor(rate) {
    this.#rate = rate;
    this.#context = new AudioContext({ sampleRate: rate });
    this.gaps = 0;
    this.ended = false; // no more samples will come
  }

  /** Seconds of the speech that have come. */
  get received() {
    return this.#pieces.at(-1)?.to ?? 0;
  }

  /** Seconds of the speech that have been heard. */
  get played() {
    const now = this.#context.currentTime - (this.#context.outputLatency || 0);
    const piece = this.#pieces.findLast(({ at }) => at <= now);
    return piece ? Math.min(piece.to, piece.from + now - piece.at) : 0;
  }

  get finished() {
    return this.ended && this.played >= this.received;
  }

  get paused() {
    return this.#context.state === "suspended";
  }

  push(samples) {
    const buffer = this.#context.createBuffer(1, samples.length, this.#rate);
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(this.#context, { buffer });
    source.connect(this.#context.destination);
    const last = this.#pieces.at(-1);
    const behind = last ? last.at + last.to - last.from : 0;
    const now = this.#context.currentTime;
    const late = last && behind < now;
    if (late) this.gaps += 1;
    const at = late ? now + LEAD_BEHIND_GAP : last ? behind : now + LEAD;
    source.start(at);
    source.onended = () => this.#sources.delete(source);
    this.#sources.add(source);
    this.#pieces.push({ at, from: this.received, to: this.received + buffer.duration });
  }

  pause() {
    return this.paused ? this.#context.resume() : this.#context.suspend();
  }

  close() {
    for (const source of this.#sources) source.stop();
    if (this.#context.state !== "closed") this.#context.close();
  }
}
