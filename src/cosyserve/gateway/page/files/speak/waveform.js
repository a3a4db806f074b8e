// Draws sound as bars: what was heard in the accent colour, what is still to come in grey.

const BAR = 3;
const STEP = 5; // pixels from bar to bar
const FLOOR = 0.04; // of the height, so that silence is seen, too

export class Waveform {
  #canvas;
  #block; // samples of one peak
  #peaks = [];
  #rest = 0; // samples in the last peak

  constructor(canvas, rate) {
    this.#canvas = canvas;
    this.#block = rate / 100;
  }

  push(samples) {
    for (const sample of samples) {
      if (this.#rest === 0) this.#peaks.push(0);
      const last = this.#peaks.length - 1;
      this.#peaks[last] = Math.max(this.#peaks[last], Math.abs(sample));
      this.#rest = (this.#rest + 1) % this.#block;
    }
  }

  /** Draws all that came on a width of so many seconds. */
  draw(heard, seconds) {
    const canvas = this.#canvas;
    const scale = devicePixelRatio;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const { color, accentColor } = getComputedStyle(canvas);
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const bars = Math.max(1, Math.floor(width / STEP));
    const share = (100 * seconds) / bars; // peaks of one bar
    for (let bar = 0; bar < bars && bar * share < this.#peaks.length; bar += 1) {
      const peak = Math.max(...this.#peaks.slice(Math.floor(bar * share), Math.ceil((bar + 1) * share)));
      const tall = Math.max(BAR, height * Math.max(FLOOR, Math.sqrt(Math.min(1, peak))));
      pen.fillStyle = (bar + 0.5) * share <= 100 * heard ? accentColor : color;
      pen.beginPath();
      pen.roundRect(bar * STEP, (height - tall) / 2, BAR, tall, BAR / 2);
      pen.fill();
    }
  }
}
