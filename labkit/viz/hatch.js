// Hatching: what must not be told by colour alone is told by lines.

let hatches = 0;

/** A pattern of slanting lines in one token's colour on another's; returns it as a fill. */
function hatch(parent, lines, { under = "paper", crossed = false, gap = 7, width = 1.4 } = {}) {
  hatches += 1;
  const id = `lk-hatch-${hatches}-${Math.random().toString(36).slice(2, 8)}`;
  const pattern = svg(parent, "pattern", {
    id, width: gap, height: gap, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
  });
  svg(pattern, "rect", { width: gap, height: gap, style: `fill: var(--${under})` });
  const style = `stroke: var(--${lines}); stroke-width: ${width}; fill: none`;
  svg(pattern, "path", { d: `M${gap / 2} 0V${gap}${crossed ? `M0 ${gap / 2}H${gap}` : ""}`, style });
  return `url(#${id})`;
}
