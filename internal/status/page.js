"use strict";
const state = document.getElementById("state");
const form = document.forms[0];
const live = form.elements.live;
let requests = 0;
let typing = 0;

// decorate adds what needs a script: a button behind each ID.
function decorate() {
  for (const id of state.querySelectorAll("tbody code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.title = "Copy " + id.textContent;
    button.ariaLabel = button.title;
    id.after("\u2060", button); // a word joiner: the button stays beside its ID
  }
}

// load replaces the state. A refresh keeps sections as they are; a filter unfolds its results.
async function load(keep) {
  const request = ++requests;
  const address = "/?" + new URLSearchParams({ filter: form.elements.filter.value });
  try {
    const response = await fetch(address);
    const text = await response.text();
    if (request !== requests) return; // a later request is under way
    if (!response.ok) throw new Error(text);
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("state");
    const open = new Map();
    if (keep) for (const d of state.querySelectorAll("details")) open.set(d.dataset.key, d.open);
    for (const d of next.querySelectorAll("details")) d.open = open.get(d.dataset.key) ?? d.open;
    const focus = document.activeElement.closest?.("details")?.dataset.key;
    state.replaceChildren(...next.childNodes);
    decorate();
    if (focus) state.querySelector(`details[data-key="${CSS.escape(focus)}"] summary`)?.focus();
    if (!keep) history.replaceState(null, "", form.elements.filter.value ? address : "/");
  } catch (error) {
    if (request !== requests) return;
    const age = document.getElementById("age");
    age.className = "bad";
    age.dataset.asOf ??= age.textContent;
    age.textContent = " no answer, the state is" + age.dataset.asOf;
  }
}

// refresh leaves the page alone while nobody sees it or somebody selects text.
function refresh() {
  if (live.checked && !document.hidden && getSelection().isCollapsed) load(true);
}

form.querySelector("button").hidden = true;
form.querySelector("label").hidden = false;
form.addEventListener("submit", event => { event.preventDefault(); load(false); });
form.elements.filter.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(load, 200, false);
});
document.addEventListener("visibilitychange", refresh);
document.addEventListener("click", async event => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  await navigator.clipboard.writeText(button.title.slice("Copy ".length));
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1500);
});
decorate();
setInterval(refresh, 5000);
