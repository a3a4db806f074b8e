// A request as a command and as a program. They name the key's variable, never the key.

import { by } from "../elements.js";
import { key } from "../server.js";

const FILE = "speech.mp3";
const address = (path) => new URL(path, document.baseURI).href;
const inShell = (text) => `'${text.replaceAll("'", String.raw`'\''`)}'`;

function curl(request) {
  const body = JSON.stringify({ ...request, response_format: "mp3" });
  return [
    `curl --fail ${inShell(address("v1/audio/speech"))}`,
    ...(key.get() ? [`  --header "Authorization: Bearer $COSYSERVE_KEY"`] : []),
    "  --header 'Content-Type: application/json'",
    `  --data ${inShell(body)}`,
    `  --output ${FILE}`,
  ].join(" \\\n");
}

function python({ seed, ...request }) {
  const fields = Object.entries({ ...request, response_format: "mp3" })
    .map(([name, value]) => `    ${name}=${JSON.stringify(value)},`);
  if (seed) fields.push(`    extra_body={"seed": ${seed}},`);
  const secret = key.get() ? `os.environ["COSYSERVE_KEY"]` : `"none"`;
  return [
    ...(key.get() ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(address("v1"))}, api_key=${secret})`,
    "with client.audio.speech.with_streaming_response.create(",
    ...fields,
    ") as answer:",
    `    answer.stream_to_file("${FILE}")`,
  ].join("\n");
}

/** Keeps the snippet on the page that of the form. */
export function openSnippets(form) {
  const shown = by("snippet");
  const languages = [...document.querySelectorAll("[data-language]")];
  const copy = by("copy");
  let write = curl;

  const show = () => { shown.textContent = write(form.request); };
  for (const button of languages) {
    button.addEventListener("click", () => {
      write = button.dataset.language === "curl" ? curl : python;
      for (const other of languages) other.setAttribute("aria-pressed", String(other === button));
      show();
    });
  }
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      copy.textContent = "Copied";
    } catch { // pages that came over plain HTTP have no clipboard
      getSelection().selectAllChildren(shown);
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 2000);
  });
  return { show };
}
