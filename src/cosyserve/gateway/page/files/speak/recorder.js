// A recording of the microphone, as it is heard: browsers otherwise polish it for telephone calls.

import { Waveform } from "./waveform.js";

export const MOST_SECONDS = 30; // of a voice's recording
const BLOCKS = 100; // a second, in the waveform

export class Recorder {
  #stream;
  #recorder;
  #context;
  #drawing = 0;

  /** Begins to record; `ended` gets the recording, `tick` the seconds so far. */
  async start(canvas, tick, ended) {
    if (!navigator.mediaDevices) {
      throw new Error("Browsers record only on https pages and on localhost. Choose a file instead.");
    }
    const context = new AudioContext(); // in the user's gesture, else it would be silent
    try {
      this.#stream = await microphone();
    } catch (error) {
      context.close();
      throw error;
    }
    this.#context = context;
    const parts = [];
    this.#recorder = new MediaRecorder(this.#stream);
    this.#recorder.ondataavailable = ({ data }) => parts.push(data);
    this.#recorder.onstop = () => {
      this.#release();
      ended(new Blob(parts, { type: this.#recorder.mimeType }));
    };
    this.#recorder.start();
    this.#draw(canvas, tick);
  }

  get running() {
    return this.#recorder?.state === "recording";
  }

  stop() {
    if (this.running) this.#recorder.stop();
  }

  /** Draws the sound that comes in, until the time is over. */
  #draw(canvas, tick) {
    const analyser = new AnalyserNode(this.#context, { fftSize: 2048 });
    this.#context.createMediaStreamSource(this.#stream).connect(analyser);
    const waveform = new Waveform(canvas, BLOCKS);
    const heard = new Float32Array(analyser.fftSize);
    const begun = performance.now();
    let drawn = 0;
    const frame = () => {
      const seconds = (performance.now() - begun) / 1000;
      analyser.getFloatTimeDomainData(heard);
      const peak = heard.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
      for (; drawn < BLOCKS * seconds; drawn += 1) waveform.push([peak]);
      waveform.draw(seconds, Math.max(8, seconds));
      tick(seconds);
      if (seconds >= MOST_SECONDS) this.stop();
      else this.#drawing = requestAnimationFrame(frame);
    };
    frame();
  }

  #release() {
    cancelAnimationFrame(this.#drawing);
    this.#context.close();
    for (const track of this.#stream.getTracks()) track.stop();
  }
}

async function microphone() {
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  try {
    return await navigator.mediaDevices.getUserMedia({ audio });
  } catch (error) {
    throw new Error(error.name === "NotFoundError"
      ? "No microphone was found. Choose a file instead."
      : "The browser doesn't let this page use the microphone. Allow it, or choose a file.");
  }
}
