// Which word of a text is heard at a time.

import { make } from "../elements.js";

const segmenter = new Intl.Segmenter(undefined, { granularity: "word" });
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
 * Words as { from, to, start, end }: places in the text, seconds of the speech.
 *
 * The API tells no times of words, so that they are estimated: each has the share of the speech that
 * its letters have of the text. Times of the server would take the place of this function.
 */
export function wordTimes(text, seconds) {
  const perLetter = seconds / Math.max(1, weight(text.trim()));
  const words = [];
  let now = 0;
  for (const { segment, index, isWordLike } of segmenter.segment(text)) {
    const start = now;
    if (words.length || segment.trim()) now += perLetter * weight(segment);
    if (isWordLike) words.push({ from: index, to: index + segment.length, start, end: now });
  }
  return words;
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
