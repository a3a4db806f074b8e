// Elements of the page.

export const by = (id) => document.getElementById(id);

/** Sets a text, only if it is another: a screen reader, or a selection, is not disturbed. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
