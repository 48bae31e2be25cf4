"use strict";
// Draws the figures as SVG from the page's JSON, which reproduction/report/plots.py describes: again whenever the axis,
// the width, the medium, the part that is looked at, or what is hidden changes. Colours are the style sheet's.
(() => {
  const PAPER = 680;  // the width of a printed page in pixels, A4 or letter with its margins
  const HEIGHT = 300, NARROWEST = 330, WIDEST = 800, GAP = 16;  // of panels
  const TOP = 8, BOTTOM = 44, RIGHT = 14;  // the margins of a panel; on the left it depends on the numbers there
  const NEAR = 40;  // how far from a pointer a point can be that it shows
  const SCALES = {  // from a value to where it lies, and back
    linear: [(v) => v, (u) => u],
    log: [Math.log10, (u) => 10 ** u],
    logit: [(v) => Math.log(v / (1 - v)), (u) => 1 / (1 + Math.exp(-u))],
  };
  const ACCURACIES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.985,
    0.99, 0.995, 0.998, 0.999];
  const MARKERS = {
    circle: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    square: "M-3-3h6v6h-6z",
    up: "M0-4.2L4 3h-8z",
    diamond: "M0-4.5L4.5 0L0 4.5L-4.5 0z",
    down: "M0 4.2L4-3h-8z",
    plus: "M-1.4-4.2h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z",
    cross: "M-4-2.2L-2.2-4L0-1.8L2.2-4L4-2.2L1.8 0L4 2.2L2.2 4L0 1.8L-2.2 4L-4 2.2L-1.8 0z",
    star: "M0-8L1.9-2.6L7.6-2.5L3.1 1L4.7 6.5L0 3.2L-4.7 6.5L-3.1 1L-7.6-2.5L-1.9-2.6z",
  };
  const figures = new Map();
  let printing = false;
  let drag = null;  // the panel in which the mouse was pressed, where, and the frame that shows what it selects

  // An element, of SVG if its name starts with "svg:", with attributes and children; texts are shown literally.
  function make(tag, attributes = {}, ...children) {
    const made = tag.startsWith("svg:")
      ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  const ink = (colour) => `color: ${colour === "#000000" ? "var(--text)" : colour}`;  // black is white in the dark
  const marker = (shape, x, y) =>
    make("svg:path", { class: "marker", d: MARKERS[shape], transform: `translate(${x} ${y})` });

  // Numbers in words: with five digits beside a point, shorter at an axis.
  const extreme = (v) => v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e9);
  const full = (v) => extreme(v) ? power(v)
    : v.toLocaleString("en", { maximumSignificantDigits: Number.isInteger(v) ? 15 : 5 });
  function brief(v) {
    const [unit, letter] = Math.abs(v) >= 1e6 ? [1e6, "M"] : Math.abs(v) >= 1e4 ? [1e3, "k"] : [1, ""];
    return extreme(v) ? power(v) : Number((v / unit).toPrecision(4)) + letter;
  }
  function power(v) {
    const [factor, exponent] = v.toExponential(4).split("e").map(Number);
    const raised = [...String(exponent)].map((each) => each === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[each]).join("");
    return `${factor === 1 ? "" : `${factor}×`}10${raised}`;
  }

  // Round numbers from low to high in `count` steps at most, at whole numbers alone if requested.
  function even(low, high, count, whole) {
    const rough = (high - low) / count, unit = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(whole ? 1 : 0, unit * [1, 2, 5, 10].find((each) => each * unit >= 0.999 * rough));
    const first = Math.ceil(low / step), steps = Math.floor(high / step) - first;
    return Array.from({ length: Math.max(0, steps + 1) }, (_, n) => Number(((first + n) * step).toPrecision(12)));
  }

  // The factors times every so many powers of ten, from low to high.
  function decades(low, high, factors, every = 1) {
    const found = [];
    for (let n = Math.floor(Math.log10(low) / every) * every; 10 ** n <= high; n += every) {
      found.push(...factors.map((each) => Number((each * 10 ** n).toPrecision(12))));
    }
    return found.filter((v) => v >= low && v <= high);
  }

  // What could be written at an axis, the best first. thin: leaves out what has no room.
  function* choices(kind, low, high, places, thin) {
    const inside = (values) => thin(values.filter((v) => v >= low && v <= high));
    if (kind === "log" && places.length <= 10) yield inside(places);
    if (kind === "logit") yield inside(ACCURACIES);
    if (kind === "log") {
      for (const factors of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
        yield decades(low, high, factors);
      }
      for (const every of [2, 3, 5, 10]) yield decades(low, high, [1], every);
    }
    const whole = places.length > 0 && places.every(Number.isInteger);
    for (let count = 8; count > 0; count--) yield even(low, high, count, whole);
  }

  // An axis of `size` pixels from start to end in the units of its scale: `at` is the pixel of a value, `unit` the
  // place of a pixel. room: how many pixels a tick of this text needs. places: where there are points.
  function axis(kind, [start, end], size, room, places = []) {
    const [to, from] = SCALES[kind];
    const at = (v) => Math.max(-1e4, Math.min(1e4, (to(v) - start) / (end - start) * size));
    const unit = (pixel) => start + pixel / size * (end - start);
    const apart = (a, b) => at(b) - at(a) >= (room(brief(a)) + room(brief(b))) / 2;
    const thin = (values) => values.reduce(
      (kept, v) => kept.length && !apart(kept.at(-1), v) ? kept : [...kept, v], []);
    let ticks = [];
    for (ticks of choices(kind, from(start), from(end), places, thin)) {
      if (ticks.length > 1 && ticks.every((v, n) => n === 0 || apart(ticks[n - 1], v))) break;
    }
    return { at, unit, ticks };
  }

  // What values fill of a scale, in its units, with a little room at both ends; from the bottom on, if there is one.
  function extent(values, kind, bottom = null) {
    const [to] = SCALES[kind];
    const found = values.filter((v) => v !== null).map(to).filter(Number.isFinite);
    let low = Math.min(...found), high = Math.max(...found);
    if (!found.length) [low, high] = [-1, 0];
    if (low === high) [low, high] = [low - 0.5, high + 0.5];
    const room = 0.04 * (high - low), start = bottom === null ? NaN : to(bottom);
    return [start < high ? start : low - room, high + room];
  }

  // The curves of a panel that have points along the figure's axis.
  function curvesOf({ plot, axis: number }, panel) {
    const found = plot.curves.filter((each) => each.panel === panel).map(
      ({ look, series }) => ({ look, ...series.find((each) => each.at[number] !== null) }));
    return found.filter((each) => each.at).map((each) => ({ ...each, places: plot.places[each.at[number]] }));
  }

  function drawPanel(panel, width) {
    const { figure, number } = panel, { plot, hidden } = figure, { title, measure, ...kinds } = plot.panels[number];
    const name = plot.axes[figure.axis], known = curvesOf(figure, number);
    const curves = known.filter((each) => !hidden.has(each.look)), some = curves.length ? curves : known;
    const stars = plot.marks.filter((each) => each.panel === number && figure.axis === 0 && !hidden.has("stated"));
    const places = [...new Set(some.flatMap((each) => each.places))].sort((a, b) => a - b);
    const values = some.flatMap(({ mean, low = [], high = [] }) => [...mean, ...low, ...high]);
    const tall = HEIGHT - TOP - BOTTOM;
    const y = axis(kinds.y, panel.zoom.y ?? extent([...values, ...stars.map((each) => each.y)], kinds.y, plot.bottom),
      tall, () => 26);
    const left = 26 + 7 * Math.max(1, ...y.ticks.map((v) => brief(v).length)), wide = width - left - RIGHT;
    const x = axis(kinds.x, panel.zoom.x ?? extent([...places, ...stars.map((each) => each.x)], kinds.x),
      wide, (text) => 7 * text.length + 12, places);
    Object.assign(panel, { points: [], area: { left, wide, tall, x, y } });
    const put = (v, w) => [x.at(v), tall - y.at(w)].map((pixel) => Number(pixel.toFixed(1)));
    const drawn = curves.map((each) => drawCurve(panel, plot.looks[each.look], each, put, name));
    const marks = stars.map((each) => {
      const [px, py] = put(each.x, each.y);
      panel.points.push({ px, py, lines: [each.text] });
      return make("svg:g", { class: "star" }, marker("star", px, py));
    });
    panel.ring = make("svg:circle", { class: "ring", r: 7 });
    const inner = make("svg:svg", { x: left, y: TOP, width: wide, height: tall },  // cuts off what is outside
      ...drawn.map(([band]) => band), ...drawn.map(([, line]) => line), ...marks, panel.ring);
    const middle = `translate(12 ${TOP + tall / 2}) rotate(-90)`;
    panel.canvas.replaceChildren(make("svg:svg", { width, height: HEIGHT, "aria-hidden": "true" },
      ...y.ticks.flatMap((v) => tick("y", v, left, TOP + tall - y.at(v), `h${wide}`)),
      ...x.ticks.flatMap((v) => tick("x", v, left + x.at(v), TOP + tall, `v${-tall}`)),
      inner,
      make("svg:text", { class: "name", x: left + wide / 2, y: HEIGHT - 5, "text-anchor": "middle" }, name),
      make("svg:text", { class: "name", transform: middle, "text-anchor": "middle" }, measure)), panel.tip);
    panel.canvas.setAttribute("aria-label", `${title}: ${measure} against ${name}; arrow keys go from point to point`);
    show(panel, null);
  }

  // A line from the axis on, and its number.
  function tick(letter, value, x, y, line) {
    const below = { x, y: y + 17, "text-anchor": "middle" }, beside = { x: x - 6, y: y + 4, "text-anchor": "end" };
    return [make("svg:path", { class: "grid", d: `M${x} ${y}${line}` }),
      make("svg:text", { class: `tick ${letter}`, ...(letter === "x" ? below : beside) }, brief(value))];
  }

  // The band and the line of a curve; adds its points to the panel's. What is not finite is a gap.
  function drawCurve(panel, look, { places, mean, low, high, seeds }, put, unit) {
    const band = make("svg:g", { class: "band", style: ink(look.colour) });
    const line = make("svg:g", { class: "curve", style: ink(look.colour), "data-name": look.name });
    const edge = (values) => places.flatMap((x, n) => values[n] === null ? [] : [put(x, values[n]).join(" ")]);
    if (low) band.append(make("svg:path", { d: `M${[...edge(high), ...edge(low).reverse()].join("L")}z` }));
    let path = "", pen = "M";
    places.forEach((x, n) => {
      const [px, py] = mean[n] === null ? [NaN, NaN] : put(x, mean[n]);
      if (Number.isNaN(px + py)) { pen = "M"; return; }
      path += `${pen}${px} ${py}`;
      pen = "L";
      if (n % Math.max(1, Math.floor(places.length / 8)) === 0) line.append(marker(look.marker, px, py));
      const count = seeds[n] ?? seeds;  // one number if it is the same at all points
      const spread = low && low[n] !== null && count > 1 ? `${full(low[n])} to ${full(high[n])}, ` : "";
      const lines = [look.name, `${full(x)} ${unit}: ${full(mean[n])}`, `${spread}seeds: ${count}`];
      panel.points.push({ px, py, lines });
    });
    line.prepend(make("svg:path", { class: "line", d: path, "stroke-dasharray": look.dash || "none" }));
    return [band, line];
  }

  // Shows a point's numbers beside it; with null, those of none.
  function show(panel, point) {
    panel.shown = point;
    panel.tip.hidden = !point;
    panel.ring.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) return;
    panel.ring.setAttribute("cx", point.px);
    panel.ring.setAttribute("cy", point.py);
    panel.tip.replaceChildren(...point.lines.map((line) => make("div", {}, line)));
    const { offsetWidth: wide, offsetHeight: high } = panel.tip;
    const x = Math.max(0, Math.min(panel.canvas.clientWidth - wide, panel.area.left + point.px - wide / 2));
    const above = TOP + point.py - high - 12;
    panel.tip.style.transform = `translate(${x}px, ${above < 0 ? TOP + point.py + 12 : above}px)`;
  }

  // The place in a panel's area that is nearest to a pointer, in pixels.
  function place({ canvas, area: { left, wide, tall } }, event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left - left, y = event.clientY - box.top - TOP;
    return [Math.max(0, Math.min(wide, x)), Math.max(0, Math.min(tall, y))];
  }

  function showNearest(panel, event) {
    const [x, y] = place(panel, event), { wide, tall } = panel.area;
    const far = ({ px, py }) => Math.hypot(px - x, py - y);
    const seen = panel.points.filter(({ px, py }) => px >= 0 && px <= wide && py >= 0 && py <= tall);
    const nearest = seen.reduce((best, each) => best && far(best) <= far(each) ? best : each, null);
    show(panel, nearest && far(nearest) <= NEAR ? nearest : null);
  }

  // Left and right go through the points of one curve after the other.
  function step(panel, event) {
    const { points, shown } = panel, by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") show(panel, null);
    if (!by || !points.length) return;
    event.preventDefault();
    const next = shown ? points.indexOf(shown) + by : by > 0 ? 0 : -1;
    show(panel, points.at(next % points.length));
  }

  // Looks closer at what lies between two places; in a direction in which they are close it stays as it is.
  function zoom(panel, [x0, y0], [x1, y1]) {
    const { x, y, tall } = panel.area, acrossX = Math.abs(x1 - x0) > 10, acrossY = Math.abs(y1 - y0) > 10;
    if (acrossX) panel.zoom.x = [x.unit(Math.min(x0, x1)), x.unit(Math.max(x0, x1))];
    if (acrossY) panel.zoom.y = [y.unit(tall - Math.max(y0, y1)), y.unit(tall - Math.min(y0, y1))];
    if (acrossX || acrossY) draw(panel.figure);
  }

  function listen(panel) {
    const { canvas, figure } = panel;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") {  // a finger shows a point, and scrolls the page
        showNearest(panel, event);
      } else if (event.button === 0) {
        drag = { panel, from: place(panel, event), frame: make("svg:rect", { class: "frame" }) };
        panel.ring.after(drag.frame);
      }
    });
    canvas.addEventListener("pointermove", (event) => { if (!drag) showNearest(panel, event); });
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") show(panel, null); });
    canvas.addEventListener("blur", () => show(panel, null));
    canvas.addEventListener("keydown", (event) => step(panel, event));
    canvas.addEventListener("dblclick", () => { panel.zoom = {}; draw(figure); });
  }

  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const [x0, y0] = drag.from, [x1, y1] = place(drag.panel, event);
    const box = { x: Math.min(x0, x1), y: Math.min(y0, y1), width: Math.abs(x1 - x0), height: Math.abs(y1 - y0) };
    for (const [name, value] of Object.entries(box)) drag.frame.setAttribute(name, value);
    show(drag.panel, null);
  });
  document.addEventListener("pointerup", (event) => {
    if (!drag) return;
    const { panel, from, frame } = drag;
    drag = null;
    frame.remove();
    zoom(panel, from, place(panel, event));
  });

  // A name of the legend, with a piece of its line: a click hides its curves, a double click all others.
  function entry(figure, key, name, looks, ...sample) {
    const box = { width: 28, height: 16, viewBox: "-14 -8 28 16", "aria-hidden": "true" };
    const svg = make("svg:svg", { ...box, ...looks }, ...sample);
    const button = make("button", { type: "button", "aria-pressed": "true" }, svg, make("span", {}, name));
    const hide = (keys) => {
      figure.hidden = new Set(keys);
      for (const [each, other] of figure.legend) other.setAttribute("aria-pressed", String(!figure.hidden.has(each)));
      draw(figure);
    };
    button.addEventListener("click", () => {
      const { hidden } = figure;
      hide(hidden.has(key) ? [...hidden].filter((each) => each !== key) : [...hidden, key]);
    });
    button.addEventListener("dblclick", () => {
      const others = [...figure.legend.keys()].filter((each) => each !== key);
      hide(others.every((each) => figure.hidden.has(each)) ? [] : others);
    });
    figure.legend.set(key, button);
  }

  function build(name, plot) {
    const div = document.getElementById("plot-" + name);
    const figure = { div, plot, axis: 0, hidden: new Set(), legend: new Map(), grid: make("div", { class: "panels" }) };
    figure.panels = plot.panels.map(({ title }, number) => {
      const canvas = make("div", { class: "canvas", tabindex: 0, role: "group" });
      const box = make("div", { class: "panel" }, make("h3", {}, title), canvas);
      const panel = { figure, number, canvas, box, zoom: {}, tip: make("div", { class: "tip", role: "status" }) };
      listen(panel);
      return panel;
    });
    plot.looks.forEach(({ name: label, colour, marker: shape, dash }, key) => {
      const line = make("svg:path", { class: "line", d: "M-14 0h28", "stroke-dasharray": dash || "none" });
      entry(figure, key, label, { style: ink(colour) }, line, marker(shape, 0, 0));
    });
    if (plot.marks.length) entry(figure, "stated", plot.stated, { class: "star" }, marker("star", 0, 0));
    figure.grid.append(...figure.panels.map((panel) => panel.box));
    const legend = make("div", { class: "legend", role: "group", "aria-label": "Curves" }, ...figure.legend.values());
    div.append(legend, figure.grid);
    figures.set(name, figure);
  }

  // As many panels side by side as there is room for, in rows as even as they can be; without those that are empty.
  function draw(figure) {
    const total = printing ? PAPER : figure.div.clientWidth;
    const used = figure.panels.filter(({ number }) => curvesOf(figure, number).length);
    const rows = Math.ceil(used.length / Math.max(1, Math.min(3, Math.floor((total + GAP) / NARROWEST))));
    const columns = Math.ceil(used.length / rows);
    const width = Math.min(WIDEST, Math.floor((total + GAP) / columns) - GAP);
    figure.grid.style.gridTemplateColumns = `repeat(${columns}, ${width}px)`;
    for (const panel of figure.panels) panel.box.hidden = !used.includes(panel);
    for (const panel of used) drawPanel(panel, width);
  }

  const drawAll = () => figures.forEach(draw);
  for (const button of document.querySelectorAll("button[data-axis]")) {
    button.addEventListener("click", () => {
      for (const other of button.parentElement.querySelectorAll("button")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      const figure = figures.get(button.dataset.figure);
      figure.axis = Number(button.dataset.axis);
      for (const panel of figure.panels) delete panel.zoom.x;  // another axis has another range
      draw(figure);
    });
  }
  let closed = [];
  addEventListener("beforeprint", () => {
    printing = true;
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((each) => { each.open = true; });
    drawAll();
  });
  addEventListener("afterprint", () => {
    printing = false;
    closed.forEach((each) => { each.open = false; });
    drawAll();
  });
  addEventListener("resize", () => { if (!printing) drawAll(); });
  const plots = JSON.parse(document.getElementById("plots").textContent);
  for (const [name, plot] of Object.entries(plots)) build(name, plot);
  drawAll();
})();
