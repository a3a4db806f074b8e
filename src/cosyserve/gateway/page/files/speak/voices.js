// The voices of the server: choosing one, adding one from a recording, removing it.

import { by, make, write } from "../elements.js";
import { ask, askJson, sentence } from "../server.js";
import { MOST_SECONDS, Recorder } from "./recorder.js";

export class Voices {
  #shipped = new Map(); // by name
  #form;
  #changed;
  #explain;

  constructor(form, changed, explain) {
    this.#form = form;
    this.#changed = changed;
    this.#explain = explain;
    by("models").addEventListener("change", () => this.load().catch(explain));
    by("voice").addEventListener("change", () => this.#showRemoval());
    by("remove-voice").addEventListener("click", () => this.#remove());
    openVoiceDialog(form, (name) => this.load(name), (message) => explain({ message }));
  }

  /** Reads the names that the form's model can speak with, and chooses one. */
  async load(chosen = by("voice").value) {
    const { model } = this.#form;
    const { data } = await askJson(`v1/audio/voices?model=${encodeURIComponent(model)}`);
    if (model !== this.#form.model) return; // meanwhile another was chosen
    this.#shipped = new Map(data.map(({ id, shipped }) => [id, shipped]));
    const names = [...this.#shipped.keys()];
    by("voice").replaceChildren(
      ...(names.includes("default") ? [] : [new Option("Default", "default")]),
      ...group("Yours", names.filter((name) => !this.#shipped.get(name))),
      ...group("Of the model", names.filter((name) => this.#shipped.get(name))),
    );
    by("voice").value = names.includes(chosen) ? chosen : "default";
    this.#showRemoval();
    this.#changed();
  }

  #showRemoval() {
    by("remove-voice").hidden = this.#shipped.get(by("voice").value) !== false;
  }

  async #remove() {
    const name = by("voice").value;
    if (!confirm(`Remove the voice “${name}” from the server?`)) return;
    try {
      await ask(`v1/audio/voices/${encodeURIComponent(name)}`, { method: "DELETE" });
      this.#explain(null); // perhaps it was a warning about this voice
      await this.load();
      by("voice").focus();
    } catch (error) {
      this.#explain(error);
    }
  }
}

function group(label, names) {
  if (!names.length) return [];
  return [make("optgroup", { label }, ...names.map((name) => new Option(name)))];
}

/** The dialog in which a voice is recorded or chosen, named, and agreed to. */
function openVoiceDialog(form, added, warn) {
  const dialog = by("voice-dialog");
  const recorder = new Recorder();
  let recording = null; // a blob

  const explain = (message) => {
    by("voice-problem").textContent = message;
    by("voice-problem").hidden = !message;
  };
  const take = (blob, words) => {
    recording = blob;
    by("recorded").textContent = words;
    by("record").textContent = "Record";
    by("listen").hidden = !blob;
    if (by("listen").src) URL.revokeObjectURL(by("listen").src);
    if (blob) by("listen").src = URL.createObjectURL(blob);
    else by("listen").removeAttribute("src");
  };

  by("add-voice").addEventListener("click", () => {
    by("voice-form").reset();
    by("level").hidden = true;
    take(null, "");
    explain("");
    dialog.showModal();
  });
  by("close-voice").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => recorder.stop());

  by("record").addEventListener("click", async () => {
    if (recorder.running) {
      recorder.stop();
      return;
    }
    explain("");
    take(null, "");
    by("level").hidden = false;
    try {
      const tick = (seconds) => write(by("record"), `Stop, ${Math.floor(seconds)} s`);
      await recorder.start(by("level"), tick, (blob) => take(blob, "Recorded."));
      by("recorded").textContent = `Recording, at most ${MOST_SECONDS} seconds.`;
    } catch (error) {
      by("level").hidden = true;
      explain(error.message);
    }
  });

  by("recording").addEventListener("change", () => {
    const [file] = by("recording").files;
    by("level").hidden = true;
    if (file) take(file, file.name);
  });

  by("voice-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!recording) {
      explain("Record something, or choose a file.");
      return;
    }
    const name = by("voice-name").value.trim();
    const body = new FormData();
    body.append("name", name);
    body.append("model", form.model);
    body.append("text", by("said").value.trim());
    body.append("consent", `The speaker agrees: ticked on the page, ${new Date().toISOString()}`);
    body.append("file", recording, "recording");
    by("save-voice").disabled = true;
    explain("");
    try {
      const { warning } = await askJson("v1/audio/voices", { method: "POST", body });
      await added(name);
      dialog.close(); // first: a screen reader is told nothing from behind it
      if (warning) warn(`“${name}” was added. ${sentence(warning)} For that, remove it and add it again.`);
    } catch (error) {
      explain(error.message);
    } finally {
      by("save-voice").disabled = false;
    }
  });
}
