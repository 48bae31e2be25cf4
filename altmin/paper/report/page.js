"use strict";
// Draws the figures with plotly, again whenever the axis, the width, the colours or the medium change.
(() => {
  const PAPER = 680;  // the width of a printed page in pixels, A4 or letter with its margins
  const PANEL = 330;  // the height of a row of panels
  const plots = JSON.parse(document.getElementById("plots").textContent);
  const shown = Object.fromEntries(Object.keys(plots).map((name) => [name, 0]));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  let printing = false;

  function draw(name) {
    const div = document.getElementById("plot-" + name);
    const width = printing ? PAPER : div.parentElement.clientWidth;
    const night = dark.matches && !printing;
    const rows = Math.ceil(plots[name].panels / Math.max(1, Math.min(3, Math.floor(width / 330))));
    const columns = Math.ceil(plots[name].panels / rows);
    const axis = JSON.stringify(plots[name].axes[shown[name]]);
    const white = axis.replaceAll('"#000000"', '"#ffffff"').replaceAll('"rgba(0, 0, 0, ', '"rgba(255, 255, 255, ');
    const { data, layout } = JSON.parse(night ? white : axis);  // a copy, which plotly may change
    for (const [key, value] of Object.entries(layout)) {
      if (/^[xy]axis/.test(key)) {
        Object.assign(value, { gridcolor: night ? "#353b43" : "#e5e5e5", zeroline: false, automargin: true });
        value.title.standoff = 6;
        value.uirevision = key[0] === "x" ? shown[name] : 0;  // another axis has another range
      }
    }
    Object.assign(layout, {
      width,
      height: rows * PANEL + 70,
      grid: { rows, columns, pattern: "independent", xgap: 0.2, ygap: 0.3 },
      margin: { l: 60, r: 12, t: 40, b: 50 },
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: night ? "#e4e7ea" : "#1c1e21" },
      paper_bgcolor: "transparent",
      plot_bgcolor: "transparent",
      legend: { orientation: "h", x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom" },
      hovermode: "closest",
      hoverlabel: { bgcolor: night ? "#1e2329" : "#ffffff" },
      dragmode: touch.matches ? false : "zoom",  // so that a finger scrolls the page
      uirevision: "kept",
    });
    return Plotly.react(div, data, layout, { displayModeBar: false });
  }

  function drawAll() {
    return Promise.all(Object.keys(plots).map(draw));
  }

  for (const button of document.querySelectorAll("button[data-axis]")) {
    button.addEventListener("click", () => {
      for (const other of button.parentElement.querySelectorAll("button")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      shown[button.dataset.figure] = Number(button.dataset.axis);
      draw(button.dataset.figure);
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
  dark.addEventListener("change", drawAll);
  drawAll();
})();
