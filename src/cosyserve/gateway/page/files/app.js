// The page: its two views, its key, and what is known of the server.

import { by } from "./elements.js";
import { openOperateView } from "./operate/view.js";
import { askJson, key } from "./server.js";
import { openSpeakView } from "./speak/view.js";

const operate = openOperateView();
const speak = openSpeakView();

function showView() {
  const chosen = location.hash === "#operate" ? "operate" : "speak";
  for (const name of ["speak", "operate"]) {
    by(`${name}-view`).hidden = name !== chosen;
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (name === chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = chosen === "operate" ? "Operate · cosyserve" : "cosyserve";
  operate.watch(chosen === "operate");
}

/** Asks for all that needs a key, if the server has keys. */
async function connect() {
  try {
    const { data: models } = await askJson("v1/models");
    await speak.connect(models);
    by("key-form").hidden = true;
  } catch (error) {
    if (error.code !== "invalid_api_key") speak.explain(error);
  }
}

document.addEventListener("key-wanted", () => {
  const form = by("key-form");
  form.querySelector("label").textContent = key.get()
    ? "The server doesn't know this key." : "This server asks for a key.";
  if (form.hidden) {
    form.hidden = false;
    by("key").focus();
  }
});

by("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(by("key").value.trim());
  connect();
  showView();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address keeps the view
  by("main").focus();
});

window.addEventListener("hashchange", showView);
showView();
connect();
