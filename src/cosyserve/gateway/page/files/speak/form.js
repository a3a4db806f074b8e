// The form's fields as the body of a request.

import { by } from "../elements.js";

const AROUND_ONE = 0.02; // in powers of two: the middle of the slider is speed 1

const inWords = ({ id, description }) => (description.includes("not speech") ? `${id}: not speech` : id);

export class SpeechForm {
  constructor() {
    by("speed").addEventListener("input", () => this.#showSpeed());
    by("another-seed").addEventListener("click", () => {
      by("seed").value = Math.floor(Math.random() * 1e6);
      by("seed").dispatchEvent(new Event("input", { bubbles: true }));
    });
    this.#showSpeed();
  }

  /** The models to choose from; a single one is no choice, and is told above. */
  set models(models) {
    const several = models.length > 1;
    by("models").replaceChildren(...models.map((model) => new Option(inWords(model), model.id)));
    by("model-choice").hidden = !several;
    by("model").textContent = several ? "" : inWords(models[0]);
  }

  get model() {
    return by("models").value;
  }

  get text() {
    return by("text").value;
  }

  get speed() {
    const power = Number(by("speed").value);
    return Math.abs(power) < AROUND_ONE ? 1 : Number((2 ** power).toFixed(2));
  }

  /** The request, without the fields that have their usual values. */
  get request() {
    const request = { model: this.model, voice: by("voice").value, input: this.text };
    const instructions = by("instructions").value.trim();
    const seed = Number(by("seed").value);
    if (instructions) request.instructions = instructions;
    if (this.speed !== 1) request.speed = this.speed;
    if (seed) request.seed = seed;
    return request;
  }

  #showSpeed() {
    by("speed-value").textContent = this.speed.toFixed(2);
    by("speed").setAttribute("aria-valuetext", `${this.speed.toFixed(2)} times`);
  }
}
