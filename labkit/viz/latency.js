// Latency: draws what Python computed, asks it again when a slider moves, and says when nobody
// answers. At most one question is open; of those asked meanwhile only the latest is kept.

const SILENT_AFTER_MS = 2000;

const path = (points) => `M${points.map((point) => point.join(" ")).join("L")}Z`;

function drawLatency(figure, shown) {
  figure.replaceChildren();
  const picture = svg(figure, "svg", {
    viewBox: `0 0 ${shown.width} ${shown.height}`, role: "img", "aria-label": shown.line,
  });
  budgetView(picture, shown.budget);
  const { left, right, floor, limit } = shown;
  if (shown.ghost) svg(picture, "path", { d: path(shown.ghost), class: "lk-ghost" });
  const defs = svg(picture, "defs");
  const growing = shown.grows ? { style: `fill: ${hatch(defs, "teal")}` } : {};
  svg(picture, "path", { d: path(shown.shape), class: "lk-shape", ...growing });
  if (shown.ghost) {
    const id = `lk-shape-${Math.random().toString(36).slice(2, 8)}`;
    svg(svg(defs, "clipPath", { id }), "path", { d: path(shown.shape) });
    svg(picture, "path", {
      d: path(shown.ghost), class: "lk-hidden", "clip-path": `url(#${id})`,
    });
  }
  svg(picture, "path", { d: `M${left} ${floor}H${right}`, class: "lk-lead" });
  for (const { x, words } of shown.ticks) {
    svg(picture, "path", { d: `M${x} ${floor}V${floor + 4}`, class: "lk-lead" });
    svg(picture, "text", { x, y: floor + 18, class: "lk-quiet", "text-anchor": "middle" }, words);
  }
  const quiet = { class: "lk-quiet" };
  svg(picture, "text", { x: right + 30, y: floor + 18, ...quiet }, "ms");
  const { share, title } = shown;
  svg(picture, "path", { d: `M${left - 5} ${share.y}H${left}`, class: "lk-lead" });
  svg(picture, "text", { x: left - 8, y: share.y + 4, "text-anchor": "end", ...quiet }, share.words);
  svg(picture, "text", { x: left, y: title.y, ...quiet }, title.words);
  if (shown.beyond) svg(picture, "text", { x: right + 8, y: floor - 4, ...quiet }, shown.beyond);
  let below = title.y + 17;
  if (shown.grows) {
    svg(picture, "text", { x: left, y: below, class: "lk-red" }, shown.grows);
    below += 17;
  }
  svg(picture, "text", { x: left, y: below, ...quiet }, shown.was);
  svg(picture, "path", { d: `M${limit.x} ${limit.top}V${floor}`, class: "lk-limit" });
  for (const { x, y, words, main, late } of shown.flags) {
    const look = late ? "lk-flag lk-late" : main ? "lk-flag lk-main" : "lk-flag";
    const flag = svg(picture, "g", { class: look });
    svg(flag, "path", { d: `M${x} ${y - 10}V${floor}` });
    svg(flag, "text", { x: x + 5, y }, words);
  }
}

/** One slider over a list of values; returns how to read it and how to move it. */
function sliderView(parent, spec, moved, settled) {
  const label = html(parent, "label", { class: "lk-slider" });
  html(label, "span", {}, spec.label);
  const input = html(label, "input", {
    type: "range", min: 0, max: spec.values.length - 1, step: 1, "aria-label": spec.label,
  });
  const output = html(label, "output", { "aria-hidden": "true" });
  const words = () =>
    `${spec.values[input.value].toLocaleString("en")}${spec.unit ? ` ${spec.unit}` : ""}`;
  const tell = () => {
    setText(output, words());
    set(input, { "aria-valuetext": words() });
  };
  input.addEventListener("input", () => {
    tell();
    moved();
  });
  input.addEventListener("change", settled);
  return {
    value: () => spec.values[input.value],
    put: (value) => {
      const place = spec.values.findIndex((one) => one >= value);
      input.value = place < 0 ? spec.values.length - 1 : place;
      tell();
    },
  };
}

function render({ model, el }) {
  const root = html(el, "div", {
    class: "labkit lk-latency-widget", role: "group", "aria-label": "latency with four sliders",
    "data-lm-suppress-shortcuts": "true",
  });
  const stopTheme = followTheme(root);
  const figure = html(root, "div");
  const row = html(root, "div", { class: "lk-sliders", role: "group", "aria-label": "sliders" });
  const note = html(root, "p", { class: "lk-silent" });
  const voice = speaker(root);
  const view = Math.random().toString(36).slice(2);
  let asked = 0;
  let open = null;
  let waiting = null;
  let fresh = true;
  let timer = null;
  const sliders = {};

  const put = () => {
    const choice = model.get("choice");
    for (const [name, slider] of Object.entries(sliders)) slider.put(choice[name]);
  };
  const silent = () => {
    open = null;
    const words = "Nothing answers: the kernel is busy or gone. The picture is the last one drawn.";
    setText(note, words);
    voice.say(words);
  };
  const ask = (question) => {
    asked += 1;
    open = { ask: asked, at: question.at };
    clearTimeout(timer);
    timer = setTimeout(silent, SILENT_AFTER_MS);
    const { choice } = question;
    try {
      model.send({ type: "set", view, ask: asked, choice, fresh: question.fresh });
    } catch {
      silent();
    }
  };
  const moved = () => {
    const choice = {};
    for (const [name, slider] of Object.entries(sliders)) choice[name] = slider.value();
    const question = { choice, fresh: fresh || Boolean(waiting?.fresh), at: performance.now() };
    fresh = false;
    if (open) waiting = question;
    else ask(question);
  };
  const settled = () => {
    fresh = true;
  };
  const draw = () => {
    drawLatency(figure, model.get("segments"));
    if (!open && !waiting) put();
  };
  const answered = () => {
    const answer = model.get("answered");
    if (!open || answer.view !== view || answer.ask !== open.ask) return;
    clearTimeout(timer);
    setText(note, answer.error);
    voice.say(answer.error || model.get("segments").line);
    const { at } = open;
    requestAnimationFrame(() => {
      root.dataset.took = (performance.now() - at).toFixed(1);
    });
    open = null;
    if (waiting) ask(waiting);
    waiting = null;
  };
  const press = (event) => event.stopPropagation();

  for (const spec of model.get("sliders")) sliders[spec.name] = sliderView(row, spec, moved, settled);
  root.addEventListener("keydown", press);
  model.on("change:segments", draw);
  model.on("change:answered", answered);
  draw();
  return () => {
    model.off("change:segments", draw);
    model.off("change:answered", answered);
    clearTimeout(timer);
    voice.stop();
    stopTheme();
    root.remove();
  };
}

export default { render };
