// Scripted features of the console: keys, theme, time zone, dialogs, copying and live fragments. Every
// page works without them.
"use strict";

(() => {
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  root.classList.add("scripted");

  const keep = (name, value) => {
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `${name}=${value}; Path=/; Max-Age=31536000; SameSite=Strict${secure}`;
  };

  // --- theme -----------------------------------------------------------------------------------
  const THEMES = ["auto", "light", "dark"];
  const switchTheme = () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme) + 1) % THEMES.length];
    root.dataset.theme = next;
    one("[data-theme-name]").textContent = next;
    keep("holdfast_theme", next);
  };

  // --- times -----------------------------------------------------------------------------------
  const two = (number) => String(number).padStart(2, "0");
  const localText = (moment) => {
    const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
    const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
    const offset = -moment.getTimezoneOffset();
    const hours = two(Math.floor(Math.abs(offset) / 60));
    return `${day} ${clock} ${offset < 0 ? "-" : "+"}${hours}:${two(Math.abs(offset) % 60)}`;
  };
  const utcText = (moment) => `${moment.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const showTimes = (from = document) => {
    const local = root.dataset.zone === "local";
    for (const time of all("time[datetime]", from)) {
      const moment = new Date(time.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      time.textContent = local ? localText(moment) : utcText(moment);
      time.title = local ? utcText(moment) : localText(moment);
    }
    for (const mark of all("text[data-moment]", from)) {
      const moment = new Date(mark.dataset.moment);
      mark.textContent = (local ? localText(moment) : utcText(moment)).slice(11, 16);
    }
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
    for (const name of all("[data-zone-name]")) name.textContent = local ? zone : "UTC";
  };
  const switchZone = () => {
    root.dataset.zone = root.dataset.zone === "local" ? "utc" : "local";
    keep("holdfast_zone", root.dataset.zone);
    showTimes();
  };

  // --- copying ---------------------------------------------------------------------------------
  const showCopies = (from = document) => {
    if (!navigator.clipboard) return;
    for (const button of all("[data-copy]", from)) button.hidden = false;
  };
  const copy = async (button) => {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  };

  // --- lists -----------------------------------------------------------------------------------
  const rows = () => all("tr[data-row]");
  const move = (step) => {
    const list = rows();
    if (!list.length) return;
    const now = list.findIndex((row) => row.classList.contains("here"));
    const next = Math.min(Math.max(now + step, 0), list.length - 1);
    list[now]?.classList.remove("here");
    list[next].classList.add("here");
    const link = one(".open a, a", list[next]);
    if (link) link.focus({ preventScroll: true });
    list[next].scrollIntoView({ block: "nearest" });
  };
  const open = () => one("tr.here .open a, tr.here a")?.click();

  // --- dialogs and forms -----------------------------------------------------------------------
  const show = (id) => {
    const dialog = document.getElementById(id);
    if (dialog && !dialog.open) dialog.showModal();
  };

  // --- live ------------------------------------------------------------------------------------
  let source = null;
  let seen = "";
  let paused = false;
  // The pointer is down: a link that is replaced before the pointer is up would miss its click.
  let held = false;
  const busy = () => paused || held || document.hidden || one("dialog[open]") !== null;
  const refresh = () => {
    const live = one("[data-live]");
    if (live && window.htmx) window.htmx.trigger(live, "holdfast:live");
  };
  const listen = () => {
    if (source || paused || !one("[data-live]")) return;
    source = new EventSource("/live");
    source.addEventListener("now", (event) => {
      if (event.data === "away") { seen = ""; lost(true); }
      // The page may be older than the first event. While busy, the event is ignored until a later one.
      else if (event.data !== seen && !busy()) { seen = event.data; refresh(); }
    });
    source.addEventListener("over", reload);
  };
  const stop = () => { source?.close(); source = null; };
  // A second navigation would abort the first, and refreshes that are under way lead to the login too.
  let leaving = false;
  const reload = () => { if (!leaving) { leaving = true; stop(); location.reload(); } };
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    if (leaving) event.preventDefault();
    else if (event.detail.xhr.getResponseHeader("HX-Redirect")) { leaving = true; stop(); }
  });
  document.addEventListener("pointerdown", () => { held = true; }, true);
  for (const up of ["pointerup", "pointercancel", "dragend"]) {
    document.addEventListener(up, () => setTimeout(() => { held = false; }), true);
  }
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (held) { event.detail.shouldSwap = false; seen = ""; }
  });
  const showLive = () => {
    const button = one("[data-live-switch]");
    if (!button) return;
    button.hidden = false;
    button.setAttribute("aria-pressed", String(paused));
    one("[data-live-name]", button).textContent = paused ? "Paused" : "Live";
  };
  const switchLive = () => {
    if (!one("[data-live]")) return;
    paused = !paused;
    if (paused) stop(); else { refresh(); listen(); }
    showLive();
  };
  const lost = (is) => { const said = one("[data-lost]"); if (said) said.hidden = !is; };

  // --- keys ------------------------------------------------------------------------------------
  let going = 0;
  const typing = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;
  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (one("dialog[open]")) return;
    if (going) {
      clearTimeout(going);
      going = 0;
      one(`.menu a[data-key="${CSS.escape(event.key)}"]`)?.click();
      return;
    }
    const does = {
      "/": () => { event.preventDefault(); one("#q")?.focus(); },
      "?": () => show("keys"),
      g: () => { going = setTimeout(() => { going = 0; }, 1500); },
      j: () => move(1),
      k: () => move(-1),
      p: switchLive,
    }[event.key];
    if (does) does();
    else if (event.key === "Enter" && event.target === document.body) open();
  };

  // --- set-up ----------------------------------------------------------------------------------
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches("[data-theme-switch]")) switchTheme();
    else if (button.matches("[data-zone-switch]")) switchZone();
    else if (button.matches("[data-copy]")) copy(button);
    else if (button.matches("[data-dialog]")) show(button.dataset.dialog);
    else if (button.matches("[data-close]")) button.closest("dialog").close();
    else if (button.matches("[data-live-switch]")) switchLive();
    else if (button.matches("[data-again]")) { lost(false); refresh(); }
    else if (button.matches("[data-menu]")) {
      const shown = one("#menu").classList.toggle("open");
      button.setAttribute("aria-expanded", String(shown));
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "get") {
      // Empty fields are omitted from the URL.
      for (const field of all("input, select", form)) if (!field.value) field.disabled = true;
    } else if (form.matches("[data-once]")) {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
    }
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop(); else if (!paused && one("[data-live]")) { refresh(); listen(); }
  });
  window.addEventListener("pageshow", () => {
    leaving = false;
    for (const form of all("form")) {
      delete form.dataset.sent;
      if (form.method === "get") for (const field of all("input, select", form)) field.disabled = false;
    }
  });
  window.addEventListener("pagehide", stop);
  document.addEventListener("htmx:afterSwap", () => {
    lost(false);
    const from = one("[data-live]");
    if (!from) {
      // The live part has ended, so the buttons and lists around it have changed.
      reload();
      return;
    }
    showTimes(from);
    showCopies(from);
  });
  for (const failed of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(failed, () => lost(true));
  }
  showTimes();
  showCopies();
  showLive();
  listen();
})();
