// Playback, shared by every widget that replays segments: the clock, the controls, the keyboard,
// the theme, and what is said aloud. It knows nothing of what is drawn.
// Python joins this file and a widget's own into one module; see labkit/viz/assets.py.

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const SAY_EVERY_MS = 1000;
const REDUCED_STEP_MS = 800;
const SVG_NS = "http://www.w3.org/2000/svg";

/** An SVG element with attributes, appended to a parent. */
function svg(parent, name, attributes = {}, words) {
  const node = document.createElementNS(SVG_NS, name);
  set(node, attributes);
  if (words !== undefined) node.textContent = words;
  if (parent) parent.appendChild(node);
  return node;
}

/** An HTML element with attributes, appended to a parent. */
function html(parent, name, attributes = {}, words) {
  const node = document.createElement(name);
  set(node, attributes);
  if (words !== undefined) node.textContent = words;
  if (parent) parent.appendChild(node);
  return node;
}

/** Set attributes that differ; null and false remove them. */
function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

function setText(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

function whole(microseconds) {
  return Math.floor(microseconds / 1000).toLocaleString("en");
}

/** An instant in whole milliseconds, as the Python side writes it. */
function ms(microseconds) {
  return `${whole(microseconds)} ms`;
}

/** Keep `data-theme` on the root equal to the page's theme; returns how to stop. */
function followTheme(root) {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const read = () => {
    const body = document.body;
    const jupyter = body.dataset.jpThemeLight;
    const named = `${body.className} ${document.documentElement.getAttribute("theme") || ""}`;
    let dark = media.matches;
    if (jupyter) dark = jupyter === "false";
    else if (/vscode-dark|vscode-high-contrast(?!-light)|\bdark\b/.test(named)) dark = true;
    else if (/vscode-light|vscode-high-contrast-light|\blight\b/.test(named)) dark = false;
    root.dataset.theme = dark ? "dark" : "light";
  };
  const observer = new MutationObserver(read);
  observer.observe(document.body, { attributes: true });
  observer.observe(document.documentElement, { attributes: true });
  media.addEventListener("change", read);
  read();
  return () => {
    observer.disconnect();
    media.removeEventListener("change", read);
  };
}

/** A polite live region that speaks at most once a second, and then only the latest. */
function speaker(root) {
  const region = html(root, "div", { role: "status", "aria-live": "polite", class: "lk-aloud" });
  let last = -Infinity;
  let timer = null;
  let latest = "";
  const speak = () => {
    timer = null;
    last = performance.now();
    setText(region, latest);
  };
  const say = (words) => {
    latest = words;
    if (timer !== null) return;
    const wait = last + SAY_EVERY_MS - performance.now();
    if (wait <= 0) speak();
    else timer = setTimeout(speak, wait);
  };
  return { say, stop: () => clearTimeout(timer) };
}

/** Call `hidden` whenever the widget cannot be seen; returns how to stop. */
function whenHidden(root, hidden) {
  const tab = () => document.hidden && hidden();
  document.addEventListener("visibilitychange", tab);
  const observer = new IntersectionObserver((entries) => {
    if (!entries[entries.length - 1].isIntersecting) hidden();
  });
  observer.observe(root);
  return () => {
    document.removeEventListener("visibilitychange", tab);
    observer.disconnect();
  };
}

/**
 * A replay of `horizon` microseconds: `draw(at, still)` at every change, `receipt(at)` says what
 * happened last, `describe(at)` what is to be seen. Nothing is drawn between two places while it
 * stands still. `slider` is the SVG group that shows the time axis.
 */
function replay(root, options) {
  const { horizon, pace, instants, draw, receipt, describe, slider } = options;
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const voice = speaker(root);
  let at = 0;
  let frame = null;
  let timer = null;
  let before = 0;
  let told = receipt(0);

  const row = html(root, "div", { class: "lk-controls", role: "group", "aria-label": "replay" });
  const play = html(row, "button", { type: "button", class: "lk-play" });
  const back = html(row, "button", { type: "button", "aria-label": "one step back" }, "‹ step");
  const next = html(row, "button", { type: "button", "aria-label": "one step on" }, "step ›");
  const speed = html(row, "select", { "aria-label": "speed" });
  for (const value of SPEEDS) html(speed, "option", { value }, `${value}×`);
  speed.value = "1";
  const slow = Math.round(1e6 / pace);
  const pacing = slow >= 2 ? `1× is ${slow.toLocaleString("en")} times slower than real` : "";
  html(row, "span", { class: "lk-note" }, pacing);

  const playing = () => frame !== null || timer !== null;
  const show = () => {
    draw(at, reduced.matches || !playing());
    setText(play, playing() ? "❚❚ pause" : "▶ play");
    set(slider, { "aria-valuenow": Math.floor(at / 1000), "aria-valuetext": ms(at) });
    const now = receipt(at);
    if (now !== told) voice.say(now);
    told = now;
  };
  const pause = () => {
    const was = playing();
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = timer = null;
    if (was) show();
  };
  const go = (to) => {
    pause();
    at = Math.min(Math.max(Math.round(to), 0), horizon);
    show();
    voice.say(describe(at));
  };
  const later = () => instants.find((instant) => instant > at) ?? horizon;
  const earlier = () => instants.findLast((instant) => instant < at) ?? 0;
  const advance = (to) => {
    at = Math.min(to, horizon);
    const over = at >= horizon;
    if (over) frame = timer = null;
    show();
    return !over;
  };
  const tick = (now) => {
    const elapsed = Math.min(now - before, 100);
    before = now;
    frame = requestAnimationFrame(tick);
    if (!advance(at + (elapsed / 1000) * pace * Number(speed.value))) cancelAnimationFrame(frame);
  };
  const hop = () => {
    timer = setTimeout(hop, REDUCED_STEP_MS / Number(speed.value));
    const pending = timer;
    if (!advance(later())) clearTimeout(pending);
  };
  const start = () => {
    if (at >= horizon) at = 0;
    before = performance.now();
    if (reduced.matches) timer = setTimeout(hop, REDUCED_STEP_MS / Number(speed.value));
    else frame = requestAnimationFrame(tick);
    show();
  };
  const toggle = () => (playing() ? pause() : start());
  const keys = {
    " ": toggle,
    ArrowRight: () => go(later()),
    ArrowLeft: () => go(earlier()),
    ArrowUp: () => go(later()),
    ArrowDown: () => go(earlier()),
    Home: () => go(0),
    End: () => go(horizon),
  };
  const press = (event) => {
    if (event.target === speed || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  };
  play.addEventListener("click", toggle);
  back.addEventListener("click", keys.ArrowLeft);
  next.addEventListener("click", keys.ArrowRight);
  root.addEventListener("keydown", press);
  const stopWatching = whenHidden(root, pause);
  set(slider, {
    role: "slider",
    tabindex: 0,
    "aria-label": "time",
    "aria-valuemin": 0,
    "aria-valuemax": Math.floor(horizon / 1000),
  });
  show();
  return {
    go,
    stop: () => {
      pause();
      voice.stop();
      stopWatching();
      root.removeEventListener("keydown", press);
    },
  };
}
