// A running service in live numbers, with a button that kills each GPU. Python looks and kills.

const SILENT_AFTER_MS = 3000;

const STAGES = [
  ["clients", [["sent", "sent"], ["on the way", "on_the_way"]]],
  ["front door", [["answered", "answered"], ["refused", "refused"]]],
  ["queue", [["waiting", "depth"], ["out again", "again"]]],
];

/** The boxes before the GPUs; returns how to fill them. */
function stages(flow) {
  const places = STAGES.flatMap(([name, counts]) => {
    const box = html(flow, "section", { class: "lk-stage", "aria-label": name });
    html(box, "h4", {}, name);
    return counts.map(([words, key]) => {
      const row = html(box, "div", { class: "lk-count" });
      html(row, "span", {}, words);
      return [html(row, "b", { "data-count": key }), key];
    });
  });
  return (now) => places.forEach(([place, key]) => setText(place, now[key].toLocaleString("en")));
}

/** One GPU's row; returns how to fill it. */
function gpuRow(list, gpu, kill) {
  const row = html(list, "li", { "data-gpu": gpu });
  html(row, "span", {}, `GPU ${gpu}`);
  const load = html(html(row, "span", { class: "lk-hold", "aria-hidden": "true" }), "i");
  const said = html(row, "span");
  const button = html(row, "button", { type: "button", "aria-label": `Kill GPU ${gpu}` }, "Kill");
  button.addEventListener("click", () => kill(gpu));
  return (seen, most, over) => {
    const ready = seen.state === "ready";
    load.style.width = `${Math.min(100, (100 * seen.aboard) / most)}%`;
    setText(said, ready ? `${seen.aboard} aboard` : seen.state);
    set(said, { class: ready ? "" : "lk-gone" });
    set(row, { "data-state": seen.state, "data-restarts": seen.restarts });
    button.disabled = over || !ready;
  };
}

function render({ model, el }) {
  const root = html(el, "div", { class: "labkit lk-wall", role: "group", "aria-label": "Board" });
  const stopTheme = followTheme(root);
  const flow = html(root, "div", { class: "lk-flow" });
  const fill = stages(flow);
  const list = html(flow, "ol", { class: "lk-gpus", "aria-label": "GPUs" });
  const note = html(root, "p", { class: "lk-done" });
  const voice = speaker(root);
  const rows = new Map();
  let asked = null;
  let timer = null;

  const say = (words) => {
    setText(note, words);
    voice.say(words);
  };
  const silent = () => say("Nothing answers: the kernel is busy or gone.");
  const kill = (gpu) => {
    asked = Math.random().toString(36).slice(2);
    clearTimeout(timer);
    timer = setTimeout(silent, SILENT_AFTER_MS);
    try {
      model.send({ type: "kill", gpu, ask: asked });
    } catch {
      silent();
    }
  };
  const draw = () => {
    const now = model.get("now");
    const over = model.get("over");
    if (now.gpus) {
      fill(now);
      for (const seen of now.gpus) {
        if (!rows.has(seen.gpu)) rows.set(seen.gpu, gpuRow(list, seen.gpu, kill));
        rows.get(seen.gpu)(seen, now.most, over);
      }
    }
    if (over) say("The server has ended; these were its last numbers.");
  };
  const told = () => {
    const { ask, words } = model.get("told");
    if (ask !== asked) return;
    clearTimeout(timer);
    say(words);
  };
  const press = (event) => event.stopPropagation();

  root.addEventListener("keydown", press);
  model.on("change:now", draw);
  model.on("change:over", draw);
  model.on("change:told", told);
  draw();
  return () => {
    model.off("change:now", draw);
    model.off("change:over", draw);
    model.off("change:told", told);
    clearTimeout(timer);
    voice.stop();
    stopTheme();
    root.remove();
  };
}

export default { render };
