// Keeps the page fresh: every few seconds its content is fetched again, unless somebody is busy in it. Every page works without.
"use strict";

const EVERY = 10000;

function busy(region) {
  const active = document.activeElement;
  const typing = region.contains(active) && active.matches("input, button, summary, a");
  const changed = (one) => one.value !== one.defaultValue || one.checked !== one.defaultChecked;
  const filled = [...region.querySelectorAll("input")].some((one) => changed(one) && one.closest("details:not([open])") === null);
  const opened = region.querySelector("details[open]") !== null;
  const selecting = !window.getSelection().isCollapsed;
  return typing || filled || opened || selecting || document.hidden;
}

async function refresh() {
  const region = document.querySelector("[data-auto-refresh]");
  if (region === null || busy(region)) return;
  const here = new URL(location.href);
  here.searchParams.delete("flash");
  const answer = await fetch(here, { credentials: "same-origin", redirect: "manual" });
  if (answer.type === "opaqueredirect") return location.reload(); // signed out meanwhile
  if (!answer.ok || busy(region)) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of ["[data-auto-refresh]", "footer"]) {
    const now = document.querySelector(part);
    const next = fresh.querySelector(part);
    if (now && next && now.innerHTML !== next.innerHTML) now.replaceChildren(...next.childNodes);
  }
}

setInterval(() => refresh().catch(() => {}), EVERY); // the agent may be restarting: the next round asks again
