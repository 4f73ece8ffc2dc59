// The budget of one request as one bar: draws what labkit/viz/budget.py computed.

const LABEL_ROW = 17;

function budgetView(parent, shown) {
  const { bar, limit, over } = shown;
  const group = svg(parent, "g", { class: "lk-budget" });
  const defs = svg(group, "defs");
  const fills = {
    reserve: hatch(defs, "muted"),
    lost: hatch(defs, "red", { crossed: true }),
  };
  for (const { x, width, kind } of shown.boxes) {
    const fill = fills[kind] ? { style: `fill: ${fills[kind]}` } : {};
    svg(group, "rect", {
      x: x + 1, y: bar.y, width: Math.max(width - 2, 1), height: bar.height,
      class: `lk-part lk-${kind}`, ...fill,
    });
  }
  const bottom = bar.y + bar.height;
  for (const { x, row, words } of shown.labels) {
    const base = bottom + 16 + LABEL_ROW * row;
    svg(group, "path", { d: `M${x + 1.5} ${bottom + 3}V${base + 2}`, class: "lk-lead" });
    svg(group, "text", { x: x + 6, y: base }, words);
  }
  if (over) {
    svg(group, "rect", {
      x: over.x + 1, y: bar.y, width: Math.max(over.width - 2, 1), height: bar.height,
      class: "lk-over", style: `fill: ${fills.lost}`,
    });
  }
  svg(group, "path", { d: `M${limit.x} ${bar.y - 14}V${bottom + 6}`, class: "lk-limit" });
  svg(group, "text", {
    x: limit.x + (limit.before ? -6 : 6), y: bar.y - 8, class: over ? "lk-late" : "lk-red",
    "text-anchor": limit.before ? "end" : "start",
  }, limit.words);
  return group;
}
