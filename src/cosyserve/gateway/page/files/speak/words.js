// Which word of a text is heard at a time.

import { make } from "../elements.js";

const SECONDS = 0.062; // of a letter of weight 1, at speed 1

/** How long something takes, in letters: ideographs are syllables, marks are pauses. */
function weight(segment) {
  let sum = 0;
  for (const letter of segment) {
    if (/[.!?…。！？\n]/.test(letter)) sum += 6;
    else if (/[,;:–—，；：、]/.test(letter)) sum += 3;
    else if (/[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}]/u.test(letter)) sum += 3.3;
    else if (/\p{N}/u.test(letter)) sum += 4;
    else sum += 1;
  }
  return sum;
}

/** Seconds that a text may take to be said: only a scale for the first moments of a stream. */
export const expectedSeconds = (text, speed) => (SECONDS * weight(text)) / speed;

/**
 * Words that the server told as { from, to, start, end }: places in the text, seconds of the speech.
 *
 * They come in the order of the text. One that is not in it (SSML may say others) has no place.
 */
export function placed({ words, start, end }, text, behind) {
  let at = behind?.to ?? 0;
  return words.flatMap((word, index) => {
    const from = text.indexOf(word, at);
    if (from < 0) return [];
    at = from + word.length;
    return [{ from, to: at, start: start[index], end: end[index] }];
  });
}

/** The text behind the field, with one word marked. */
export class Mirror {
  #element;
  #mark = make("mark");
  #word;

  constructor(element, field) {
    this.#element = element;
    field.addEventListener("scroll", () => { element.scrollTop = field.scrollTop; });
  }

  /** Marks the word that is heard at a time; before the first and after the last there is none. */
  show(text, words, seconds) {
    const word = words.findLast(({ start }) => start <= seconds);
    if (word === this.#word) return;
    this.#word = word;
    if (!word) return;
    this.#mark.textContent = text.slice(word.from, word.to);
    this.#element.replaceChildren(text.slice(0, word.from), this.#mark, text.slice(word.to));
  }

  clear() {
    this.#word = undefined;
    this.#element.replaceChildren();
  }

  /** The marked word's top and bottom inside the text, to scroll there. */
  get place() {
    return { top: this.#mark.offsetTop, bottom: this.#mark.offsetTop + this.#mark.offsetHeight };
  }
}
