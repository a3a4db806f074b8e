// The speech as a file, in the formats that somebody may want to keep.

import { by, make } from "../elements.js";
import { ask } from "../server.js";

const SUFFIXES = {
  mp3: "mp3", opus: "opus", aac: "aac", flac: "flac", wav: "wav", pcm: "pcm", mulaw: "ul",
};

/** A button for each format; what goes wrong is explained by the view. */
export function openDownloads(form, explain) {
  const status = by("download-status");
  for (const format of Object.keys(SUFFIXES)) {
    const button = make("button", { type: "button", ariaLabel: `Download as ${format}` }, format);
    button.addEventListener("click", async () => {
      button.disabled = true;
      status.textContent = `Making ${format} …`;
      try {
        await save(form.request, format);
        status.textContent = `speech.${SUFFIXES[format]} is saved.`;
      } catch (error) {
        status.textContent = "";
        explain(error);
      } finally {
        button.disabled = false;
      }
    });
    by("downloads").append(button);
  }
}

async function save(request, format) {
  const answer = await ask("v1/audio/speech", { json: { ...request, response_format: format } });
  const href = URL.createObjectURL(await answer.blob());
  const link = make("a", { href, download: `speech.${SUFFIXES[format]}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
