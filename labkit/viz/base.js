// What every widget's script begins with: elements, words, the page's theme, what is said aloud.
// Python joins this file and a widget's own into one module; see labkit/viz/assets.py.

const SAY_EVERY_MS = 1000;
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
