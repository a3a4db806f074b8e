// Speech of the server as samples, while it is being made.

import { ask, Refusal } from "../server.js";

export const RATE = 24000;

const FORM = { response_format: "pcm", sample_rate: RATE, stream_format: "sse", timestamps: "word" };

/** Yields { samples } of a speech, piece by piece, from -1 to 1, and { words, start, end } in them. */
export async function* speech(request, signal) {
  const json = { ...request, ...FORM };
  for await (const event of events(await ask("v1/audio/speech", { json, signal }))) {
    if (event.type === "speech.audio.delta") yield { samples: samples(event.audio) };
    else if (event.type === "speech.audio.words") yield event;
    else if (event.type === "speech.audio.done") return;
    else if (event.type === "error") throw new Refusal(event.error);
  }
  throw new Refusal({ message: "The speech was cut off before its end." });
}

/** Yields the Server-Sent Events of an answer: each is one line of JSON. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) yield JSON.parse(block.slice("data: ".length));
  }
}

function samples(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return Float32Array.from(new Int16Array(bytes.buffer), (value) => value / 32768);
}
