// Keeps the page fresh: every few seconds its content is fetched again, unless somebody is busy in it. Every page works without.
// Where nothing answers any more, it says so: what stands there is old.
"use strict";

const EVERY = 10000;
const PATIENCE = 8000;

function busy(region) {
  const active = document.activeElement;
  const typing = region.contains(active) && active.matches("input, button, summary, a");
  const changed = (one) => one.value !== one.defaultValue || one.checked !== one.defaultChecked;
  const filled = [...region.querySelectorAll("input")].some((one) => changed(one) && one.closest("details:not([open])") === null);
  const opened = region.querySelector("details[open]") !== null;
  const selecting = !window.getSelection().isCollapsed;
  return typing || filled || opened || selecting || document.hidden;
}

function say(gone) {
  const banner = document.getElementById("agent-gone");
  if (banner !== null) banner.hidden = !gone;
}

async function refresh() {
  const region = document.querySelector("[data-auto-refresh]");
  if (region === null || busy(region)) return;
  const here = new URL(location.href);
  here.searchParams.delete("flash");
  const answer = await fetch(here, { credentials: "same-origin", redirect: "manual", signal: AbortSignal.timeout(PATIENCE) });
  const text = await answer.text();
  say(false);
  const reload = region.dataset.autoRefresh === "reload";
  if (answer.type === "opaqueredirect") return location.reload(); // signed out meanwhile
  if (busy(region) || (!answer.ok && (reload || answer.status !== 503))) return;
  if (reload || answer.status === 503) return location.reload(); // the database has begun, or ceased, to work
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of ["[data-auto-refresh]", "footer"]) {
    const now = document.querySelector(part);
    const next = fresh.querySelector(part);
    if (now && next && now.innerHTML !== next.innerHTML) now.replaceChildren(...next.childNodes);
  }
}

setInterval(() => refresh().catch(() => say(true)), EVERY); // the agent may be restarting: the next round asks again
