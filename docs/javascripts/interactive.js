/* The page that shows one network learn by alternating minimization and another by backprop, step by step. */

(() => {
  const SIZES = [2, 8, 8, 2];
  const SHARES = [0, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 1];
  const PHASES = ["ready", "encoded", "last", "first"];
  const SAMPLES = 96;
  const page = (id) => document.getElementById(id);
  const state = {};
  let timer = null;

  const options = () => ({ share: SHARES[page("share").value], order: page("order").value, mu: state.mu });
  const rate = () => 10 ** +page("rate").value;
  const short = (value) => (value === 0 ? "0" : Math.abs(value) < 0.001 || Math.abs(value) >= 1000 ? value.toExponential(1) : value.toPrecision(3));

  function reset() {
    stop();
    const seed = 7;
    const points = Points.create(page("points").value, SAMPLES, AltMin.random(seed));
    const [am, bp] = [0, 1].map(() => AltMin.create(SIZES, AltMin.random(seed)));
    Object.assign(state, { ...points, am, bp, amStep: AltMin.adam(am), bpStep: AltMin.adam(bp), mu: 10, steps: 0, phase: 0,
      curves: { am: [], bp: [] }, chosen: 0, changes: null });
    look();
    draw();
  }

  /* What the next step of alternating minimization would do, at the weights as they are. */
  function look() {
    state.seen = AltMin.moveCodes(state.am, state.x, state.y, options());
    state.exact = AltMin.backprop(state.am, state.x, state.y);
  }

  function takeStep() {
    look();
    state.curves.am.push(state.seen.loss);
    state.curves.bp.push(AltMin.backprop(state.bp, state.x, state.y).loss);
    const before = state.am.map(({ W }) => W.map((row) => [...row]));
    state.amStep(state.seen.blocks.map(({ grad }) => grad), rate());
    state.bpStep(AltMin.backprop(state.bp, state.x, state.y).grads, rate());
    state.changes = state.am.map(({ W }, l) => W.map((row, i) => row.map((value, j) => value - before[l][i][j])));
    state.mu = AltMin.grown(state.mu);
    state.steps += 1;
    state.phase = 0;
    state.shown = state.seen;
    look();
  }

  function nextPhase() {
    if (state.phase === PHASES.length - 1) return takeStep();
    state.changes = null;
    state.phase += 1;
  }

  // Words

  function words() {
    const { blocks, loss } = state.seen;
    const code = (l) => {
      const { a, bounded } = blocks[l].code;
      return `length a = ${short(a)}${bounded ? ", bounded by the share" : a === 0 ? ", it does not move" : ""}`;
    };
    const first = state.steps ? `Step ${state.steps} is done: the weights of all three blocks were updated, each by its own gradient.` : "Ready.";
    return {
      ready: `${first} mu is ${short(state.mu)}.`,
      encoded: `1. Encode: a forward pass sets every code to the output of its block. The mean loss is ${short(loss)}.`,
      last: `2. The last code moves along g = Jᵀδ, δ the gradient of the loss at the output: ${code(1)}. Moved by ${short(AltMin.rms(blocks[1].code.move))} (rms).`,
      first: `3. The first code moves along g = Jᵀδ, δ from the code above: ${code(0)}. Moved by ${short(AltMin.rms(blocks[0].code.move))} (rms). Next: 4. each block's weights are fitted to their residual.`,
    }[PHASES[state.phase]];
  }

  // Pictures

  function regions(canvas, net, colours) {
    const { context, width, height } = Drawing.start(canvas);
    const cells = 36, side = width / cells;
    const grid = Array.from({ length: cells * cells }, (_, k) => [
      ((k % cells) + 0.5) * (2.4 / cells) - 1.2, 1.2 - (Math.floor(k / cells) + 0.5) * (2.4 / cells)]);
    AltMin.encode(net, grid).values.at(-1).forEach(([a, b], k) => {
      const p = 1 / (1 + Math.exp(a - b));
      context.globalAlpha = 0.12 + 0.5 * Math.abs(p - 0.5);
      context.fillStyle = p > 0.5 ? colours.codes : colours.weights;
      const [left, top] = [Math.round((k % cells) * side), Math.round(Math.floor(k / cells) * side)];
      context.fillRect(left, top, Math.round(((k % cells) + 1) * side) - left, Math.round((Math.floor(k / cells) + 1) * side) - top);
    });
    context.globalAlpha = 1;
    const at = ([u, v]) => [((u + 1.2) / 2.4) * width, ((1.2 - v) / 2.4) * height];
    state.x.forEach((point, i) => {
      context.fillStyle = state.y[i] ? colours.codes : colours.weights;
      context.strokeStyle = colours.back;
      context.beginPath();
      context.arc(...at(point), 3.5, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    });
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(...at(state.x[state.chosen]), 8, 0, 2 * Math.PI);
    context.stroke();
  }

  const accuracy = (net) => AltMin.encode(net, state.x).values.at(-1)
    .reduce((sum, [a, b], i) => sum + ((b > a ? 1 : 0) === state.y[i] ? 1 : 0), 0) / SAMPLES;

  function diagram(colours) {
    const { context, width, height } = Drawing.start(page("diagram"));
    const columns = ["point", "code 1", "code 2", "output"];
    const X = (l) => 40 + (l * (width - 100)) / 3, radius = Math.min(9, height / 26);
    const Y = (l, i) => 26 + (i + 0.5) * ((height - 64) / SIZES[l]);
    const { values, blocks } = state.seen, drawn = state.changes ?? state.am.map(({ W }) => W);
    const largest = Math.max(...drawn.flat(2).map(Math.abs)) || 1;
    drawn.forEach((W, l) => W.forEach((row, i) => row.forEach((value, j) => {
      context.strokeStyle = value < 0 ? colours.soft : colours.weights;
      context.globalAlpha = 0.08 + 0.8 * (Math.abs(value) / largest);
      context.lineWidth = 0.4 + 3 * (Math.abs(value) / largest);
      context.beginPath();
      context.moveTo(X(l), Y(l, j));
      context.lineTo(X(l + 1), Y(l + 1, i));
      context.stroke();
    })));
    context.globalAlpha = 1;
    context.lineWidth = 1.5;
    const shown = [state.x[state.chosen], ...values.map((value) => value[state.chosen])];
    const moves = [blocks[0].code.move[state.chosen], blocks[1].code.move[state.chosen]];
    const magnified = moves.map((move) => 20 / (Math.max(...move.map(Math.abs)) || Infinity));
    shown.forEach((column, l) => column.forEach((value, i) => {
      const hidden = l > 0 && state.phase === 0 && state.steps === 0;
      context.fillStyle = colours.back;
      context.strokeStyle = colours.text;
      context.beginPath();
      context.arc(X(l), Y(l, i), radius, 0, 2 * Math.PI);
      context.fill();
      context.fillStyle = value < 0 ? colours.weights : colours.codes;
      context.globalAlpha = hidden ? 0 : Math.abs(Math.tanh(value));
      context.fill();
      context.globalAlpha = 1;
      context.stroke();
      const move = (l === 1 && state.phase > 2) || (l === 2 && state.phase > 1) ? moves[l - 1][i] : 0;
      const length = move * magnified[l - 1];
      if (Math.abs(length) > 1) arrow(context, X(l), Y(l, i), -length, radius, colours.codes);
    }));
    context.fillStyle = colours.soft;
    context.textAlign = "center";
    columns.forEach((name, l) => context.fillText(name, X(l), 14));
    context.fillText(state.changes ? "lines: how the weights have changed" : "lines: the weights", width / 2, height - 4);
    [0, 1].forEach((l) => {
      if (state.phase > 2 - l && magnified[l]) context.fillText(`moves × ${Number(magnified[l].toPrecision(2)).toLocaleString("en")}`, X(l + 1), height - 20);
    });
  }

  function arrow(context, x, y, length, radius, colour) {
    const [from, tip, head] = [x + radius + 4, y + length, Math.sign(length) * 4];
    context.strokeStyle = context.fillStyle = colour;
    context.beginPath();
    context.moveTo(from, y);
    context.lineTo(from, tip);
    context.moveTo(from - 3, tip - head);
    context.lineTo(from, tip);
    context.lineTo(from + 3, tip - head);
    context.stroke();
  }

  const bar = (part, kind = "") => `<span class="lab-bar ${kind}" style="width: ${Math.round(100 * Math.min(1, Math.max(0, part)))}%"></span>`;

  function blocksTable() {
    page("blocks").innerHTML = state.seen.blocks.map(({ code, r, delta, grad }, l) => {
      const move = code ? AltMin.rms(code.move) : null, left = AltMin.norm(r) / AltMin.norm(delta);
      const cosine = AltMin.cosine(grad, state.exact.grads[l]), size = AltMin.ratio(grad, state.exact.grads[l]);
      const name = l === SIZES.length - 2 ? "output" : `${l + 1}`;
      const moved = move === null ? "no code" : short(move) + bar(move > 0 ? 1 + Math.log10(move) / 8 : 0, "code");
      return `<tr><td>${name}</td><td>${moved}</td><td>${left.toFixed(3)}${bar(left)}</td>` +
        `<td>${cosine.toFixed(4)}${bar(cosine)}</td><td>${size.toFixed(3)}${bar(size)}</td></tr>`;
    }).join("");
  }

  function draw() {
    const colours = Drawing.colours();
    page("share-value").textContent = SHARES[page("share").value];
    page("rate-value").textContent = short(rate());
    regions(page("am"), state.am, colours);
    regions(page("bp"), state.bp, colours);
    const caption = (name, net) => `${name}: loss ${short(AltMin.backprop(net, state.x, state.y).loss)}, accuracy ${accuracy(net).toFixed(3)}, step ${state.steps}`;
    page("am-caption").textContent = caption("Alternating minimization", state.am);
    page("bp-caption").textContent = caption("Backprop", state.bp);
    page("say").textContent = words();
    diagram(colours);
    blocksTable();
    const curve = (values) => values.map((value, i) => [i, value]);
    const { am, bp } = state.curves;
    Drawing.plot(page("curve"), am.length > 1 ? [
      { name: "backprop", colour: colours.soft, dashed: true, points: curve(bp) },
      { name: "AM", colour: colours.codes, points: curve(am) },
    ] : [{ name: "", colour: colours.soft, points: [[0, 0.69], [1, 0.69]] }],
    { title: "mean loss", ticks: [[0, "0"], [Math.max(am.length - 1, 1), `${state.steps}`]], logarithmic: am.length > 1 });
  }

  // Buttons

  function stop() {
    clearInterval(timer);
    timer = null;
    page("run").textContent = "Run";
  }

  function run() {
    if (timer !== null) return stop();
    page("run").textContent = "Pause";
    timer = setInterval(() => {
      for (let i = 0; i < 2; i++) takeStep();
      if (state.steps >= 2000) stop();
      draw();
    }, 60);
  }

  function choose(event) {
    const box = event.target.getBoundingClientRect();
    const [u, v] = [((event.clientX - box.left) / box.width) * 2.4 - 1.2, 1.2 - ((event.clientY - box.top) / box.height) * 2.4];
    const apart = state.x.map(([a, b]) => (a - u) ** 2 + (b - v) ** 2);
    state.chosen = apart.indexOf(Math.min(...apart));
    draw();
  }

  page("share").value = 3;
  page("rate").value = -1.75;
  page("phase").addEventListener("click", () => { stop(); nextPhase(); draw(); });
  page("step").addEventListener("click", () => { stop(); takeStep(); draw(); });
  page("run").addEventListener("click", run);
  for (const [id, event] of [["reset", "click"], ["points", "change"]]) page(id).addEventListener(event, reset);
  for (const [id, event] of [["share", "input"], ["rate", "input"], ["order", "change"]]) {
    page(id).addEventListener(event, () => { look(); draw(); });
  }
  for (const id of ["am", "bp"]) page(id).addEventListener("click", choose);
  reset();
  Drawing.always(draw);
})();
