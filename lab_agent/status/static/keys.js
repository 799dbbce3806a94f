// Keys that lead somewhere; a page lists them under /keys.
"use strict";

const GO = { o: "/orders", h: "/", w: "/waiting", m: "/results", a: "/alerts", c: "/catalogue", f: "/failures" };
let leader = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search !== null) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "?") location.href = "/keys";
  else if (event.key === "g") leader = Date.now();
  else if (Date.now() - leader < 1500 && GO[event.key] !== undefined) location.href = GO[event.key];
  else if ((event.key === "j" || event.key === "k") && document.querySelector("main table a, main .list a")) {
    const links = [...document.querySelectorAll("main tbody th a, main .list > li a:first-of-type")];
    const place = links.indexOf(document.activeElement) + (event.key === "j" ? 1 : -1);
    if (links[place] !== undefined) links[place].focus();
  }
});
