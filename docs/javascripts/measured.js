/* Measured results along the share: a task, a slider, and what the files say there. */

(() => {
  const page = (id) => document.getElementById(id);
  const { tasks } = JSON.parse(page("measured-results").textContent);
  const small = (v) => (v >= 0.01 ? v.toFixed(4) : v.toExponential(1));
  for (const { name } of tasks) page("task").add(new Option(name));

  function draw() {
    const { soft, weights, codes } = Drawing.colours();
    const { metric, file, seeds, orders, backprop } = tasks[page("task").selectedIndex];
    const keys = Object.keys(orders["codes-first"]), shares = keys.map(Number);
    page("at").max = keys.length - 1;
    const i = Math.min(+page("at").value, keys.length - 1);
    page("at-value").textContent = shares[i];
    const curve = (order, colour) => ({ name: order, colour, dots: true, points: keys.map((key, x) => [x, orders[order][key]]) });
    const curves = [{ name: "backprop", colour: soft, dashed: true, points: [[0, backprop], [shares.length - 1, backprop]] },
      curve("codes-first", codes), curve("weights-first", weights)];
    const values = curves.flatMap(({ points }) => points.map(([, y]) => y));
    const logarithmic = Math.max(...values) > 20 * Math.min(...values);
    const ticks = shares.map((share, x) => [x, share]);
    Drawing.plot(page("along"), curves, { ticks, title: metric, mark: i, digits: small, logarithmic });
    const say = (order) => {
      const value = orders[order][keys[i]], difference = value - backprop;
      return `${order} ${small(value)} (${difference < 0 ? "−" : "+"}${small(Math.abs(difference))})`;
    };
    page("along-say").textContent = `Share ${shares[i]}: ${metric} ${say("codes-first")}, ${say("weights-first")}; ` +
      `backprop ${small(backprop)}. ${seeds === 1 ? "One seed" : `${seeds} seeds`}, benchmarks/${file}.`;
  }

  page("task").addEventListener("change", draw);
  page("at").addEventListener("input", draw);
  Drawing.always(draw);
})();
