"use strict";
// Lines and bars in SVG. Every chart redraws itself to the width it has, so that text keeps its size on a phone.
const colour = (index) => `var(--c${index % 8})`;
const tip = document.getElementById("tip");

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function shape(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}
function number(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(Math.max(digits, Math.floor(Math.log10(size)) + 1))));
}
function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < 4) { value /= 1000; unit += 1; }
  return `${number(value)} ${units[unit]}`;
}
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 12)}px`;
}
const hideTip = () => { tip.hidden = true; };

function redrawOnResize(holder, draw) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.round(holder.clientWidth);
    if (now && now !== width) { width = now; draw(now); }
  }).observe(holder);
}

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}
function scale(low, high, from, to, log) {
  const place = log ? Math.log10 : (value) => value;
  const span = place(high) - place(low) || 1;
  return (value) => from + (to - from) * (place(value) - place(low)) / span;
}
function powers(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += 1) found.push(10 ** power);
  return found.length > 1 ? found : [low, high];
}

// series: [{name, colour, points: [[x, y]], dots: [[x, y]]}]; axis: {x, y, logX, formatX}
function lineChart(holder, series, axis) {
  const figure = node("figure", { "data-chart": axis.id });
  const legend = node("div", { class: "legend" });
  const hidden = new Set();
  for (const [index, line] of series.entries()) {
    const swatch = node("span", { class: "swatch", style: `background:${line.colour}` });
    const button = node("button", { type: "button", "aria-pressed": "true" }, swatch, line.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(index)) hidden.add(index);
      button.setAttribute("aria-pressed", String(!hidden.has(index)));
      draw(figure.clientWidth);
    });
    legend.append(button);
  }
  holder.append(legend, figure);

  function draw(width) {
    const height = Math.max(220, Math.min(360, width * 0.55));
    const shown = series.filter((_, index) => !hidden.has(index));
    const all = shown.flatMap((line) => [...line.points, ...line.dots]).filter((point) => !axis.logX || point[0] > 0);
    figure.replaceChildren();
    if (!all.length) { figure.append(node("p", { class: "note" }, "nothing to show")); return; }
    const xs = all.map((point) => point[0]), ys = all.map((point) => point[1]);
    const lowX = axis.logX ? Math.min(...xs) : 0, highX = Math.max(...xs);
    const lowY = Math.min(...ys), highY = Math.max(...ys);
    const left = 46, right = width - 10, top = 24, bottom = height - 40;
    const x = scale(lowX, highX, left, right, axis.logX), y = scale(lowY, highY, bottom, top, false);
    const drawing = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${axis.y} against ${axis.x}` });
    for (const at of ticks(lowY, highY, 5)) {
      drawing.append(shape("line", { class: "grid", x1: left, x2: right, y1: y(at), y2: y(at) }),
        shape("text", { x: left - 6, y: y(at) + 4, "text-anchor": "end" }, number(at)));
    }
    for (const at of axis.logX ? powers(lowX, highX) : ticks(lowX, highX, width < 500 ? 4 : 8)) {
      drawing.append(shape("line", { class: "grid", x1: x(at), x2: x(at), y1: top, y2: bottom }),
        shape("text", { x: x(at), y: bottom + 16, "text-anchor": x(at) > right - 20 ? "end" : "middle" }, axis.formatX(at)));
    }
    drawing.append(shape("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, axis.x),
      shape("text", { x: 2, y: 12 }, axis.y));
    for (const line of shown) {
      const kept = line.points.filter((point) => point[1] !== null && (!axis.logX || point[0] > 0));
      if (kept.length) drawing.append(shape("path", { class: "series", stroke: line.colour, "data-name": line.name,
        d: kept.map((point, index) => `${index ? "L" : "M"}${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join("") }));
      for (const dot of line.dots) {
        if (dot[1] !== null && (!axis.logX || dot[0] > 0)) drawing.append(shape("circle", { class: "dot", cx: x(dot[0]), cy: y(dot[1]), r: 4, fill: line.colour }));
      }
    }
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect(), factor = width / box.width;
      const px = (event.clientX - box.left) * factor, py = (event.clientY - box.top) * factor;
      let best = null;
      for (const line of shown) for (const [kind, points] of [["", line.points], [", held out", line.dots]]) for (const point of points) {
        if (point[1] === null || (axis.logX && point[0] <= 0)) continue;
        const distance = Math.hypot(x(point[0]) - px, y(point[1]) - py);
        if (!best || distance < best.distance) best = { distance, text: `${line.name}${kind}: ${number(point[1])} at ${axis.formatX(point[0])}` };
      }
      if (best && best.distance < 40) showTip(event, best.text); else hideTip();
    });
    drawing.addEventListener("pointerleave", hideTip);
    figure.append(drawing);
  }
  redrawOnResize(figure, draw);
}

// rows: [{name, parts: {compute, compress, communicate}, total}]
function barChart(holder, rows, parts) {
  const figure = node("figure", { "data-chart": "split" });
  const legend = node("div", { class: "legend" });
  for (const [part, label] of parts) legend.append(node("span", { class: "note" },
    node("span", { class: "swatch", style: `background:var(--${part});display:inline-block;margin-right:.4rem` }), label));
  holder.append(legend, figure);
  redrawOnResize(figure, (width) => {
    const rowHeight = 46, height = rows.length * rowHeight + 24, most = Math.max(...rows.map((row) => row.total));
    const x = scale(0, most, 0, width - 74, false);
    const drawing = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "step time by kind" });
    for (const [index, row] of rows.entries()) {
      const top = index * rowHeight;
      drawing.append(shape("text", { class: "name", x: 0, y: top + 14 }, row.name));
      let at = 0;
      for (const [part, label] of parts) {
        const bar = shape("rect", { class: "bar", x: x(at), y: top + 20, height: 18, fill: `var(--${part})`, width: Math.max(0, x(row[part])) });
        bar.addEventListener("pointermove", (event) => showTip(event, `${row.name}: ${label} ${number(row[part])} ms`));
        bar.addEventListener("pointerleave", hideTip);
        drawing.append(bar);
        at += row[part];
      }
      drawing.append(shape("text", { x: x(at) + 6, y: top + 34 }, `${number(row.total)} ms`));
    }
    figure.replaceChildren(drawing);
  });
}
