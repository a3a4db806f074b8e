// Requests to the server that this page came from, with the key that this tab keeps.

const KEY = "cosyserve.key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
};

/** The server's words as a sentence. */
export const sentence = (words) =>
  words[0].toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? "" : ".");

/** An error of the server; `wait` seconds until another try. */
export class Refusal extends Error {
  constructor({ message, code = "" }, wait = null) {
    super(wait ? `${sentence(message)} Try again in ${wait} s.` : sentence(message));
    this.code = code;
  }
}

/** The answer to a request; one that is an error is thrown. A path is relative to this page. */
export async function ask(path, { json, ...options } = {}) {
  const headers = {};
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  if (json) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(json) });
  }
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal({ message: "The server doesn't answer. Is it running?", code: "unreachable" });
  }
  if (answer.ok) return answer;
  if (answer.status === 401) document.dispatchEvent(new Event("key-wanted"));
  throw await refusal(answer);
}

export const askJson = async (path, options) => (await ask(path, options)).json();

async function refusal(answer) {
  let error;
  try {
    error = (await answer.json()).error;
  } catch {
    error = { message: `the server, or a proxy before it, answered ${answer.status}` };
  }
  return new Refusal(error, answer.headers.get("retry-after"));
}
