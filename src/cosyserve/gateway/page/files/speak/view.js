// The view that speaks: from a click to the last word, and whatever stops it between.

import { by, write } from "../elements.js";
import { openDownloads } from "./downloads.js";
import { SpeechForm } from "./form.js";
import { Player } from "./player.js";
import { openSnippets } from "./snippets.js";
import { RATE, speech } from "./stream.js";
import { Voices } from "./voices.js";
import { Waveform } from "./waveform.js";
import { expectedSeconds, Mirror, placed } from "./words.js";

const inSeconds = (value) => `${value.toFixed(1)} s`;

export function openSpeakView() {
  const form = new SpeechForm();
  const snippets = openSnippets(form);
  const mirror = new Mirror(by("mirror"), by("text"));
  let current = null; // the utterance that is made or heard

  const explain = (error) => {
    by("problem").textContent = error?.message ?? "";
    by("problem").hidden = !error;
  };
  const voices = new Voices(form, () => snippets.show(), explain);
  openDownloads(form, explain);

  const show = (state) => {
    const busy = state !== "idle";
    by("speak").textContent = busy ? "Stop" : "Speak";
    by("speak").setAttribute("aria-keyshortcuts", busy ? "Escape" : "Control+Enter");
    by("pause").hidden = state !== "heard";
    by("pause").textContent = "Pause";
    by("speech-form").dataset.state = state;
  };
  const stop = (words) => {
    current?.close();
    current = null;
    mirror.clear();
    by("status").textContent = words;
    show("idle");
  };
  const start = async () => {
    explain(null);
    if (!form.text.trim()) {
      explain({ message: "There is nothing to say yet." });
      by("text").focus();
      return;
    }
    const utterance = new Utterance(form, mirror, (words) => current === utterance && stop(words));
    current = utterance;
    by("status").textContent = "Waiting for the first audio …";
    show("waiting");
    try {
      await utterance.run(() => {
        by("status").textContent = `Speaking. First audio after ${by("first-audio").textContent}.`;
        show("heard");
      });
    } catch (error) {
      if (current !== utterance) return; // stopped: what it says now is nobody's concern
      stop("");
      explain(error);
    }
  };

  by("speech-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (current) stop("Stopped.");
    else start();
  });
  by("pause").addEventListener("click", async () => {
    await current.player.pause();
    by("pause").textContent = current?.player.paused ? "Resume" : "Pause";
  });
  document.addEventListener("keydown", (event) => {
    if (by("speak-view").hidden || by("voice-dialog").open) return;
    if (event.key === "Escape" && current) stop("Stopped.");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault(); // in a field of one line it would submit the form, too
      if (!current) start();
    }
  });

  const showExamples = () => { by("examples").hidden = form.text !== ""; };
  by("speech-form").addEventListener("input", () => {
    snippets.show();
    showExamples();
    mirror.clear(); // its text is no longer that of the field
  });
  for (const example of by("examples").querySelectorAll("button")) {
    example.addEventListener("click", () => {
      by("text").value = example.dataset.text;
      by("text").dispatchEvent(new Event("input", { bubbles: true }));
      by("text").focus();
    });
  }
  showExamples();
  show("idle");

  return {
    explain,
    connect: async (models) => {
      form.models = models;
      explain(null);
      await voices.load();
    },
  };
}

/** One text being spoken: its request, its sound, its picture. */
class Utterance {
  #asking = new AbortController();
  #waveform = new Waveform(by("waveform"), RATE);
  #form;
  #mirror;
  #over;
  #text;
  #words = [];
  #expected;

  constructor(form, mirror, over) {
    this.#form = form;
    this.#mirror = mirror;
    this.#over = over;
    this.#text = form.text;
    this.#expected = expectedSeconds(form.text, form.speed);
    this.player = new Player(RATE);
  }

  /** Plays the speech as it comes; `heard` is called with the first audio. */
  async run(heard) {
    const asked = performance.now();
    by("listening").hidden = false;
    for (const id of ["first-audio", "played", "length", "gaps"]) by(id).textContent = "–";
    this.#waveform.draw(0, 1);
    for await (const item of speech(this.#form.request, this.#asking.signal)) {
      if (item.words) {
        this.#words.push(...placed(item, this.#text, this.#words.at(-1)));
        continue;
      }
      const first = this.player.received === 0;
      this.player.push(item.samples);
      this.#waveform.push(item.samples);
      if (!first) continue;
      by("first-audio").textContent = `${Math.round(performance.now() - asked)} ms`;
      heard();
      this.#follow();
    }
    if (!this.player.received) throw new Error("The server sent no audio.");
    this.player.ended = true;
  }

  close() {
    this.#asking.abort(); // the server stops computing
    this.player.close();
    this.#draw();
  }

  /** Seconds that the picture is wide: as long as more may come, at least what is expected. */
  get #seconds() {
    const { received, ended } = this.player;
    return ended ? received : Math.max(received, this.#expected);
  }

  #follow() {
    if (this.#asking.signal.aborted) return;
    this.#draw();
    if (this.#form.text === this.#text) {
      this.#mirror.show(this.#text, this.#words, this.player.played);
      this.#scroll();
    }
    if (this.player.finished) this.#over(`Spoken: ${inSeconds(this.player.received)}.`);
    else requestAnimationFrame(() => this.#follow());
  }

  #draw() {
    const { played, received, gaps } = this.player;
    this.#waveform.draw(played, this.#seconds);
    write(by("played"), inSeconds(played));
    write(by("length"), inSeconds(received) + (this.player.ended ? "" : " …"));
    write(by("gaps"), String(gaps));
  }

  /** The field follows the word that is heard, unless somebody writes in it. */
  #scroll() {
    const field = by("text");
    const { top, bottom } = this.#mirror.place;
    const seen = top >= field.scrollTop && bottom <= field.scrollTop + field.clientHeight;
    if (!seen && document.activeElement !== field) field.scrollTop = top - field.clientHeight / 3;
  }
}
