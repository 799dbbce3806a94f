// Keeps a page up to date without ever swapping it under somebody's hands. The server names what has changed, and never what it
// says; the page is read again as anybody would. When nothing answers any more, the page says so: what stands there is old.
"use strict";

const EVERY = 10000; // also without news: ages grow
const PATIENCE = 8000;
const GATHER = 250; // what changes at once is read once
const NO_ANSWER = [502, 504]; // of a reverse proxy whose agent has died

let touch = true;
let waiting = 0;
let arrived = Date.now();
let news = null;

function busy(region) {
  const active = document.activeElement;
  const typing = region.contains(active) && active.matches("input, select, textarea, button, summary, a");
  const changed = (one) => one.value !== one.defaultValue || one.checked !== one.defaultChecked;
  const filled = [...region.querySelectorAll("input")].some((one) => changed(one) && one.closest("details:not([open])") === null);
  const opened = region.querySelector("details[open]:not([data-stays])") !== null;
  const selecting = !window.getSelection().isCollapsed;
  return typing || filled || opened || selecting || document.hidden;
}

function say(gone) {
  touch = !gone;
  const banner = document.getElementById("agent-gone");
  if (banner !== null) banner.hidden = !gone;
  showAge();
}

function showAge() {
  const live = document.getElementById("live");
  if (live === null) return;
  live.classList.toggle("lost", !touch);
  live.classList.toggle("on", touch);
  document.getElementById("live-word").textContent = touch ? live.dataset.live : live.dataset.lost;
  const age = document.getElementById("live-age");
  const seconds = Math.max(0, Math.round((Date.now() - arrived) / 1000));
  const told = seconds < 120 ? `${seconds} ${age.dataset.seconds}` : `${Math.floor(seconds / 60)} ${age.dataset.minutes}`;
  age.textContent = seconds < 15 && touch ? "" : ` (${told})`;
}

const ask = (address) => fetch(address, { credentials: "same-origin", redirect: "manual", signal: AbortSignal.timeout(PATIENCE) });

// A page that is not read again, for now or at all, finds out whether anybody would answer.
async function checkAnswer() {
  if (document.getElementById("agent-gone") !== null) say(NO_ANSWER.includes((await ask("/healthz")).status));
}

async function refresh() {
  if (document.hidden) return;
  const region = document.querySelector("[data-auto-refresh]");
  if (region === null || busy(region)) return checkAnswer();
  const here = new URL(location.href);
  here.searchParams.delete("flash");
  const answer = await ask(here);
  const text = await answer.text();
  say(NO_ANSWER.includes(answer.status));
  const reload = region.dataset.autoRefresh === "reload";
  if (answer.type === "opaqueredirect") return location.reload(); // signed out meanwhile
  if (busy(region) || (!answer.ok && (reload || answer.status !== 503))) return;
  if (reload || answer.status === 503) return location.reload(); // the database has begun, or ceased, to work
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const part of ["[data-auto-refresh]", "footer", "nav.pages ul", "#live time"]) {
    const old = document.querySelectorAll(part);
    const next = fresh.querySelectorAll(part);
    old.forEach((one, place) => {
      if (next[place] && one.innerHTML !== next[place].innerHTML) swap(one, next[place]);
    });
  }
  arrived = Date.now();
  showAge();
}

// What somebody has opened stays open, and a table that was moved aside stays where it is.
function swap(old, next) {
  const opened = [...old.querySelectorAll("details[data-stays]")].map((one) => one.open);
  const moved = [...old.querySelectorAll(".scroll-x")].map((one) => one.scrollLeft);
  old.replaceChildren(...next.childNodes);
  old.querySelectorAll("details[data-stays]").forEach((one, place) => (one.open = opened[place] ?? one.open));
  old.querySelectorAll(".scroll-x").forEach((one, place) => (one.scrollLeft = moved[place] ?? 0));
}

const attempt = () =>
  refresh()
    .then(listen)
    .catch(() => say(true)); // the agent may be restarting: the next round asks again

// A browser has six connections to one server, for all of its tabs: one that nobody looks at keeps none of them.
function listen() {
  const region = document.querySelector("[data-topics]");
  if (news !== null || document.hidden || region === null || region.dataset.topics === "") return;
  const topics = new Set(region.dataset.topics.split(" "));
  news = new EventSource("/live");
  news.addEventListener("changed", (event) => {
    if (!event.data.split(" ").some((topic) => topics.has(topic))) return;
    clearTimeout(waiting);
    waiting = setTimeout(attempt, GATHER);
  });
  news.addEventListener("open", () => say(false));
  news.addEventListener("error", () => {
    if (news !== null && news.readyState === EventSource.CLOSED) hush(); // else the browser connects again by itself
    refresh().catch(() => say(true));
  });
}

function hush() {
  if (news !== null) news.close();
  news = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? hush() : attempt()));
addEventListener("pagehide", hush);
addEventListener("pageshow", (event) => event.persisted && location.reload());

document.querySelectorAll("[data-select-all]").forEach((one) => {
  one.hidden = false;
  one.addEventListener("click", () => {
    const boxes = [...one.closest("form").querySelectorAll("input[type=checkbox][name^='order-']")];
    const all = boxes.every((box) => box.checked);
    boxes.forEach((box) => (box.checked = !all));
  });
});

const narrow = matchMedia("(max-width: 62rem)");
const fold = () => document.querySelectorAll(".pages-menu").forEach((one) => (one.open = !narrow.matches));
narrow.addEventListener("change", fold);
fold();
listen();
setInterval(attempt, EVERY);
setInterval(showAge, 1000);
showAge();
